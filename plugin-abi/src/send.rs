// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_send` and `btl_sendi`: messages.
//!
//! A small message goes inside the work request, straight from the header and the user's memory; a larger one from a
//! descriptor's slot. Neither is ever half done, and neither says "busy": what cannot be posted now waits in the engine, in
//! order. Grade: hot. Threads: inside the module's `Exclusive`.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use engine::event::{EndpointId, Token};
use engine::events;
use engine::send::Inline;
use ibex_ffi::openmpi::convertor::Convertor;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::LocalSpan;

use crate::descriptor::{self, Descriptor};
use crate::guard::fence;
use crate::module::{Module, State, endpoint};
use crate::watch::{self, Outgoing};

/// The most a work request can carry, bytes: the greatest value of the parameter `max_inline`.
pub(crate) const INLINE_MAX: usize = 1024;

/// `btl_send`: sends a descriptor. 1: done as far as Open MPI is concerned, no callback; 0: the callback will come; negative:
/// not taken.
pub(crate) unsafe extern "C" fn btl_send(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    descriptor: *mut sys::mca_btl_base_descriptor_t,
    tag: u8,
) -> c_int {
    fence("btl_send", sys::OPAL_ERROR, || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        let descriptor: *mut Descriptor = descriptor.cast();
        // SAFETY: M2; the second segment was made by btl_prepare_src.
        let (spans, count) = unsafe { descriptor::spans(descriptor) };
        // SAFETY: M2.
        let flags = unsafe { (*descriptor).base.des_flags };
        // The data is in the slot, and the descriptor may be ibex's: Open MPI need not hear of it again.
        let silent = flags & (sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | sys::MCA_BTL_DES_SEND_ALWAYS_CALLBACK)
            == sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP
            && count == 1;
        // SAFETY: M2. Before the send: another thread may see it complete before this one goes on.
        unsafe { (*descriptor).callback_wanted = !silent };
        if events::is_any_active() {
            // SAFETY: M2.
            return unsafe { post_watched(module, endpoint(peer), tag, descriptor, silent) };
        }
        post(module, endpoint(peer), tag, &spans[..count], descriptor, silent)
    })
}

/// Hands a descriptor to the port.
#[inline]
fn post(
    module: &Module,
    to: EndpointId,
    tag: u8,
    spans: &[LocalSpan],
    descriptor: *mut Descriptor,
    silent: bool,
) -> c_int {
    let Some(mut state) = module.enter() else {
        return sys::OPAL_ERR_OUT_OF_RESOURCE;
    };
    match state.port.send(to, tag, spans, token(descriptor), !silent) {
        Ok(()) => c_int::from(silent),
        Err(_) => sys::OPAL_ERR_UNREACH,
    }
}

/// [`post`] while a tool listens.
///
/// # Safety
/// M2.
#[cold]
#[inline(never)]
unsafe fn post_watched(module: &Module, to: EndpointId, tag: u8, descriptor: *mut Descriptor, silent: bool) -> c_int {
    // SAFETY: M2: Open MPI has filled the descriptor, and it is not posted yet.
    let (spans, count) = unsafe { descriptor::spans(descriptor) };
    let length = spans[..count].iter().map(|span| u64::from(span.len())).sum();
    // SAFETY: as above: the slot holds as many bytes as its span says (R2).
    let outgoing = unsafe {
        let slot = descriptor::slot(NonNull::new_unchecked(descriptor));
        Outgoing::new(module, to, tag, (slot, spans[0].len() as usize), length, events::moment())
    };
    let code = post(module, to, tag, &spans[..count], descriptor, silent);
    if code >= 0 {
        outgoing.posted();
    }
    code
}

/// `btl_sendi`: sends header and data at once, or not at all.
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_sendi(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    convertor: *mut sys::opal_convertor_t,
    header: *mut c_void,
    header_size: usize,
    payload_size: usize,
    _order: u8,
    _flags: u32,
    tag: u8,
    descriptor: *mut *mut sys::mca_btl_base_descriptor_t,
) -> c_int {
    fence("btl_sendi", sys::OPAL_ERROR, || {
        if !descriptor.is_null() {
            // SAFETY: the out parameter: there is nothing left for Open MPI to fill in.
            unsafe { descriptor.write(null_mut()) };
        }
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        // SAFETY: the header is the caller's for this call; it is not registered, so no adapter touches it (R1).
        let header = unsafe { std::slice::from_raw_parts(header.cast::<u8>(), header_size) };
        // Without data the convertor may be uninitialised (pml_ob1_isend.c), so it is not looked at.
        let convertor = if payload_size == 0 { null_mut() } else { convertor };
        // SAFETY: null, or with data: the caller's for this call.
        let mut data = unsafe { Convertor::from_raw(convertor) };
        let to = endpoint(peer);
        if events::is_any_active() {
            watch::posting();
        }
        // SAFETY: M1, M3.
        let code = match unsafe { inline(module, to, tag, header, data.as_mut(), payload_size) } {
            Ok(Inline::Posted) => sys::OPAL_SUCCESS,
            // SAFETY: M1, M3.
            Ok(Inline::Busy) => unsafe { from_slot(module, to, tag, header, data, payload_size) },
            Err(code) => code,
        };
        if events::is_any_active() && code == sys::OPAL_SUCCESS {
            sent(module, to, tag, header, payload_size);
        }
        code
    })
}

/// A message was posted while a tool listens. All that Open MPI's ob1 sends in this way [is
/// whole](crate::watch::is_whole), so that it can be told of afterwards.
#[cold]
#[inline(never)]
fn sent(module: &Module, to: EndpointId, tag: u8, header: &[u8], payload_size: usize) {
    let length = (header.len() + payload_size) as u64;
    // SAFETY: the header's own bytes.
    unsafe { Outgoing::new(module, to, tag, (header.as_ptr(), header.len()), length, watch::posted()) }.posted();
}

/// Sends inside the work request, where it fits; leaves the convertor where it was unless it was posted.
///
/// # Safety
/// M1, M3.
#[inline]
unsafe fn inline(
    module: &Module,
    to: EndpointId,
    tag: u8,
    header: &[u8],
    mut data: Option<&mut Convertor<'_>>,
    size: usize,
) -> Result<Inline, c_int> {
    let mut staging = [MaybeUninit::<u8>::uninit(); INLINE_MAX];
    let mut packed_from = None;
    let contiguous = data.as_ref().map(|data| data.contiguous());
    let payload: &[u8] = match (contiguous, &mut data) {
        // SAFETY: M3: the user's send buffer, which MPI forbids the program to write until the send is done. Should some
        // adapter write it all the same, through a window or a receive into the same bytes, that program is in error (R1).
        (Some(Some(start)), _) => unsafe { std::slice::from_raw_parts(start.as_ptr(), size) },
        (Some(None), Some(data)) => {
            if header.len() + size > module.max_inline() {
                return Ok(Inline::Busy);
            }
            // SAFETY: the payload is smaller than the staging, which is ours alone.
            packed_from = unsafe { pack(data, staging.as_mut_ptr().cast(), size) };
            if packed_from.is_none() {
                return Err(sys::OPAL_ERROR);
            }
            // SAFETY: `pack` has written that many bytes.
            unsafe { std::slice::from_raw_parts(staging.as_ptr().cast::<u8>(), size) }
        }
        _ => &[],
    };
    let Some(mut state) = module.enter() else {
        return Err(sys::OPAL_ERR_OUT_OF_RESOURCE);
    };
    let outcome = state.port.send_inline(to, tag, header, payload);
    drop(state);
    if let (Some(start), Some(data)) = (packed_from, data)
        && outcome != Ok(Inline::Posted)
    {
        data.rewind(start);
    }
    outcome.map_err(|_| sys::OPAL_ERR_UNREACH)
}

/// Packs exactly `size` bytes to `to`. Returns where the convertor stood before; `None`: it could not, and stands there again.
///
/// # Safety
/// `to` may be written for `size` bytes and no adapter touches them (R2).
#[inline]
unsafe fn pack(data: &mut Convertor<'_>, to: *mut u8, size: usize) -> Option<usize> {
    let start = data.position();
    // SAFETY: this function's own rule. The datatype engine does not call back into ibex.
    if unsafe { data.pack(to, size) } == Ok(size) {
        return Some(start);
    }
    data.rewind(start);
    None
}

/// Copies header and data to a slot and sends that; the descriptor frees itself.
///
/// # Safety
/// M1, M3.
#[inline(never)]
unsafe fn from_slot(
    module: &Module,
    to: EndpointId,
    tag: u8,
    header: &[u8],
    data: Option<Convertor<'_>>,
    payload_size: usize,
) -> c_int {
    let Some(mut state) = module.enter() else {
        return sys::OPAL_ERR_OUT_OF_RESOURCE;
    };
    let State { port, descriptors, .. } = &mut *state;
    let size = header.len() + payload_size;
    let Some(descriptor) = descriptors.take(port, size, sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) else {
        return sys::OPAL_ERR_OUT_OF_RESOURCE;
    };
    // SAFETY: just taken (M2).
    let slot = unsafe { descriptor::slot(descriptor) };
    // SAFETY: the slot holds `size` bytes and is ours until it is sent (R2); a header on the stack does not overlap it.
    unsafe { slot.copy_from_nonoverlapping(header.as_ptr(), header.len()) };
    // SAFETY: as above, behind the header.
    let packed = data.is_none_or(|mut data| unsafe { pack(&mut data, slot.add(header.len()), payload_size) }.is_some());
    let code = if packed {
        // SAFETY: M2, just filled.
        let (spans, count) = unsafe { descriptor::spans(descriptor.as_ptr()) };
        match port.send(to, tag, &spans[..count], token(descriptor.as_ptr()), false) {
            Ok(()) => return sys::OPAL_SUCCESS,
            Err(_) => sys::OPAL_ERR_UNREACH,
        }
    } else {
        sys::OPAL_ERROR
    };
    // SAFETY: not packed or refused, so the adapter has never seen it.
    unsafe { descriptors.give_back(descriptor.as_ptr()) };
    code
}

/// The low bit of a token tells an RDMA operation from a descriptor; both are aligned further.
pub(crate) const OPERATION: u64 = 1;

/// The bits of a token that are an address: programs have the lower half of 48 bits. Above them a watched operation has a number, so that
/// its name is not soon used again.
const ADDRESS: u64 = ((1 << TURN_SHIFT) - 1) & !OPERATION;

/// See [`ADDRESS`].
pub(crate) const TURN_SHIFT: u32 = 48;

#[inline]
fn token(descriptor: *mut Descriptor) -> Token {
    Token(descriptor.expose_provenance() as u64)
}

/// What a token stands for.
pub(crate) enum Record {
    /// A message.
    Descriptor(NonNull<Descriptor>),
    /// A put, a get or an atomic.
    Operation(NonNull<crate::rdma::Operation>),
}

/// Reads back a token of this module's; `None` for 0, which the engine never gives back.
#[inline]
pub(crate) fn record(token: Token) -> Option<Record> {
    let address = (token.0 & ADDRESS) as usize;
    if token.0 & OPERATION == 0 {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).map(Record::Descriptor)
    } else {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).map(Record::Operation)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_send` and `btl_sendi`: messages. A small message goes inside the work request, straight from the header and the
//! user's memory; a larger one goes from a descriptor's slot. A blocking send returns only once the adapter has the
//! message, because the program may stay away from MPI for long. So `btl_sendi` either posts the whole message or
//! refuses it; `btl_send` either posts it, or queues it in the engine, in order, and calls back later. Called by Open
//! MPI and `emulated_atomic`. Grade: hot. Threads: any; each call enters the port. Tests: `first_contact.c`,
//! `pt2pt_flood.c` and others in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use engine::events::{self, HostTimestamp};
use engine::transport::{EndpointId, Refused, Sent, WhenDiverted};
use ibex_ffi::openmpi::convertor::Convertor;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::InlineSpan;

use super::descriptor::pool::{Descriptor, Descriptors, bytes, spans};
use super::{descriptor, detour};
use crate::btl::endpoint::endpoint;
use crate::btl::module::{INLINE_MAX, Module, State};
use crate::btl::{token, watch};
use crate::runtime::device::Port;
use crate::runtime::guard::fence;

/// `btl_send`: sends a descriptor. Returns 1 if it is done, 0 if the callback will follow, a negative code if refused.
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
        // SAFETY: M2.
        let flags = unsafe { (*descriptor).base.des_flags };
        // If ibex owns the descriptor and Open MPI wants no callback, none is needed once the adapter has the message.
        let silent = flags & (sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | sys::MCA_BTL_DES_SEND_ALWAYS_CALLBACK)
            == sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
        if events::has_interest() {
            // SAFETY: M2.
            return unsafe { post_watched(module, endpoint(peer), tag, descriptor, silent) };
        }
        // SAFETY: M2.
        unsafe { post(module, endpoint(peer), tag, descriptor, silent) }
    })
}

/// Posts or queues a descriptor's message. `silent`: no callback is needed once the adapter has it.
///
/// # Safety
/// M2.
#[inline]
unsafe fn post(module: &Module, to: EndpointId, tag: u8, descriptor: *mut Descriptor, silent: bool) -> c_int {
    let Some(mut state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    // SAFETY: M2.
    if unsafe { descriptor::bytes(descriptor) }.is_none() {
        // SAFETY: M2; btl_prepare_src made the second segment, if there is one.
        let (spans, count) = unsafe { descriptor::spans(descriptor) };
        // User memory that is sent in place belongs to Open MPI, which must learn when the adapter has read it.
        let silent = silent && count == 1;
        // SAFETY: M2. While the port is entered no other thread sees its completion.
        unsafe { (*descriptor).callback_wanted = !silent };
        if state.port.send(to, tag, &spans[..count], token::descriptor(descriptor), !silent) == Ok(Sent::Posted) {
            return c_int::from(silent);
        }
    }
    // SAFETY: M2, M3: `btl_send` has the descriptor, and it was not posted.
    unsafe { not_posted(module, state, to, tag, descriptor) }
}

/// Queues a descriptor's message, at this port or at another one.
///
/// # Safety
/// M2, M3. The descriptor is filled and was not posted.
#[cold]
#[inline(never)]
unsafe fn not_posted(
    module: &Module,
    mut state: State<'_>,
    to: EndpointId,
    tag: u8,
    descriptor: *mut Descriptor,
) -> c_int {
    // SAFETY: M2, M3: the caller says that it is filled and was not posted.
    if unsafe { wait(&mut state.port, to, tag, descriptor, WhenDiverted::Refuse) }.is_ok() {
        return sys::OPAL_SUCCESS;
    }
    drop(state);
    // SAFETY: M2, M3: the caller says that it is filled; it was refused, so not posted.
    unsafe { detour::send(module, to, tag, descriptor) }
}

/// # Safety
/// M2.
#[cold]
#[inline(never)]
unsafe fn post_watched(module: &Module, to: EndpointId, tag: u8, descriptor: *mut Descriptor, silent: bool) -> c_int {
    // SAFETY: M2. Read before the post, after which it may be given back.
    let length = unsafe { descriptor::length(descriptor) };
    let moment = events::host_timestamp();
    // SAFETY: M2.
    let code = unsafe { post(module, to, tag, descriptor, silent) };
    if code >= 0 {
        sent(module, to, length, moment);
    }
    code
}

#[cold]
#[inline(never)]
fn sent(module: &Module, to: EndpointId, bytes: u64, moment: HostTimestamp) {
    if events::interest().has_messages()
        && let Some(peer) = module.peer_name(to)
    {
        watch::sent(peer.rank, module.index, bytes, moment);
    }
}

/// `btl_sendi`: posts header and data at once, or refuses them and returns a descriptor with room for both, if it can.
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_sendi(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    convertor: *mut sys::opal_convertor_t,
    header: *mut c_void,
    header_size: usize,
    payload_size: usize,
    _order: u8,
    flags: u32,
    tag: u8,
    descriptor: *mut *mut sys::mca_btl_base_descriptor_t,
) -> c_int {
    fence("btl_sendi", sys::OPAL_ERROR, || {
        if !descriptor.is_null() {
            // SAFETY: `descriptor` is the call's out parameter.
            unsafe { descriptor.write(null_mut()) };
        }
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        // SAFETY: the header is the caller's during this call; R1: it is not registered, so no adapter accesses it.
        let header = unsafe { InlineSpan::new(header.cast(), header_size) };
        // Without data the convertor may be uninitialised (pml_ob1_isend.c), so it is not read.
        let convertor = if payload_size == 0 { null_mut() } else { convertor };
        // SAFETY: null, or the caller's during this call.
        let mut data = unsafe { Convertor::from_raw(convertor) };
        let to = endpoint(peer);
        let moment = if events::has_interest() { Some(began()) } else { None };
        // SAFETY: M1; M3: header and data are the caller's during this call.
        let code = match unsafe { inline(module, to, tag, header, data.as_mut(), payload_size) } {
            Ok(Sent::Posted) => sys::OPAL_SUCCESS,
            Ok(Sent::Busy) => {
                // SAFETY: M1; M3: header and data are the caller's during this call.
                let code = unsafe { from_slot(module, to, tag, header, data, payload_size) };
                if code == sys::OPAL_ERR_RESOURCE_BUSY && !descriptor.is_null() {
                    let instead = descriptor::take(module, header_size + payload_size, flags);
                    // SAFETY: `descriptor` is the call's out parameter.
                    unsafe { descriptor.write(instead.map_or(null_mut(), |taken| taken.as_ptr().cast())) };
                }
                code
            }
            Err(code) => code,
        };
        if let Some(moment) = moment
            && code == sys::OPAL_SUCCESS
        {
            sent(module, to, (header_size + payload_size) as u64, moment);
        }
        code
    })
}

#[cold]
#[inline(never)]
fn began() -> HostTimestamp {
    events::host_timestamp()
}

/// Sends inside the work request, if the message fits. Rewinds the convertor unless the message was posted.
///
/// # Safety
/// M1, M3.
#[inline]
unsafe fn inline(
    module: &Module,
    to: EndpointId,
    tag: u8,
    header: InlineSpan<'_>,
    data: Option<&mut Convertor<'_>>,
    size: usize,
) -> Result<Sent, c_int> {
    let payload = match data {
        None => InlineSpan::EMPTY,
        Some(data) => match data.contiguous() {
            // SAFETY: M3: the user's send buffer, which MPI forbids the program to write until the send is done. Its
            // bytes may be uninitialised, which `InlineSpan` permits.
            Some(start) => unsafe { InlineSpan::new(start.as_ptr(), size) },
            // SAFETY: M1, M3, which the caller ensures.
            None => return unsafe { inline_packed(module, to, tag, header, data, size) },
        },
    };
    post_inline(module, to, tag, header, payload)
}

#[inline(always)]
fn post_inline(
    module: &Module,
    to: EndpointId,
    tag: u8,
    header: InlineSpan<'_>,
    payload: InlineSpan<'_>,
) -> Result<Sent, c_int> {
    let Some(mut state) = module.enter() else { return Err(sys::OPAL_ERR_OUT_OF_RESOURCE) };
    // After a refusal `btl_send` reports the reason, or sends by another port.
    Ok(state.port.send_inline(to, tag, header, payload).unwrap_or(Sent::Busy))
}

/// # Safety
/// M1, M3.
#[inline(never)]
unsafe fn inline_packed(
    module: &Module,
    to: EndpointId,
    tag: u8,
    header: InlineSpan<'_>,
    data: &mut Convertor<'_>,
    size: usize,
) -> Result<Sent, c_int> {
    if header.len() + size > module.max_inline {
        return Ok(Sent::Busy);
    }
    let mut staging = [MaybeUninit::<u8>::uninit(); INLINE_MAX];
    // SAFETY: the payload is smaller than the staging buffer, which only this function uses.
    let Some(start) = (unsafe { pack(data, staging.as_mut_ptr().cast(), size) }) else { return Err(sys::OPAL_ERROR) };
    // SAFETY: within the staging buffer, which outlives the post.
    let payload = unsafe { InlineSpan::new(staging.as_ptr().cast(), size) };
    let outcome = post_inline(module, to, tag, header, payload);
    if outcome != Ok(Sent::Posted) {
        data.rewind(start);
    }
    outcome
}

/// Packs exactly `size` bytes to `to`. Returns the former position of the convertor; `None`: packing failed, and the
/// convertor has its former position again.
///
/// # Safety
/// `size` bytes at `to` may be written, and no adapter accesses them (R2).
#[inline]
unsafe fn pack(data: &mut Convertor<'_>, to: *mut u8, size: usize) -> Option<usize> {
    let start = data.position();
    // SAFETY: the caller says that the bytes at `to` may be written. The datatype engine does not call back into ibex.
    if unsafe { data.pack(to, size) } == Ok(size) {
        return Some(start);
    }
    data.rewind(start);
    None
}

/// Copies header and data to a slot, and posts it; its completion gives the descriptor back. `OPAL_ERR_RESOURCE_BUSY`:
/// the message cannot be posted now, and the convertor has its former position.
///
/// # Safety
/// M1, M3.
#[inline(never)]
unsafe fn from_slot(
    module: &Module,
    to: EndpointId,
    tag: u8,
    header: InlineSpan<'_>,
    data: Option<Convertor<'_>>,
    payload_size: usize,
) -> c_int {
    let Some(mut state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    let State { port, descriptors, .. } = &mut state;
    if !port.has_room(to) && !makes_room(port, descriptors, to) {
        return sys::OPAL_ERR_RESOURCE_BUSY;
    }
    let size = header.len() + payload_size;
    let Some(descriptor) = descriptors.take_slot(&mut **port, size, sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) else {
        return sys::OPAL_ERR_RESOURCE_BUSY;
    };
    // SAFETY: M2: it has just been taken.
    let slot = unsafe { descriptor::start(descriptor) };
    // SAFETY: the slot has `size` bytes, which no adapter has before the post (R2); the header does not overlap it.
    unsafe { slot.copy_from_nonoverlapping(header.as_ptr(), header.len()) };
    let mut data = data;
    // SAFETY: the slot has `size` bytes, which no adapter has before the post (R2); the payload follows the header.
    let pack = |data: &mut Convertor<'_>| unsafe { pack(data, slot.add(header.len()), payload_size) };
    let start = data.as_mut().map(pack);
    let code = if start == Some(None) {
        sys::OPAL_ERROR
    } else {
        // SAFETY: M2: it has just been filled.
        let (spans, count) = unsafe { descriptor::spans(descriptor.as_ptr()) };
        match port.send(to, tag, &spans[..count], token::descriptor(descriptor.as_ptr()), false) {
            Ok(Sent::Posted) => return sys::OPAL_SUCCESS,
            // If the connection has just failed, `btl_send` reports the reason, or sends by another port.
            Ok(Sent::Busy) | Err(Refused) => sys::OPAL_ERR_RESOURCE_BUSY,
        }
    };
    if let (Some(Some(start)), Some(data)) = (start, &mut data) {
        data.rewind(start);
    }
    // SAFETY: M2, R2: it was not posted.
    unsafe { descriptors.give_back(descriptor.as_ptr()) };
    code
}

/// Takes completions and posts waiting requests, because a program that only sends makes no progress. Returns whether a
/// message can be posted now.
#[cold]
fn makes_room(port: &mut Port, descriptors: &mut Descriptors, to: EndpointId) -> bool {
    descriptor::reap(port, descriptors);
    port.has_room(to)
}

/// Queues a descriptor's message in the engine. Its callback will follow, because the upper layer may wait for it.
///
/// # Safety
/// M2. The descriptor is filled and was not posted.
pub(crate) unsafe fn wait(
    port: &mut Port,
    to: EndpointId,
    tag: u8,
    descriptor: *mut Descriptor,
    when: WhenDiverted,
) -> Result<(), Refused> {
    // SAFETY: M2.
    unsafe {
        (*descriptor).callback_wanted = true;
        (*descriptor).tag = tag;
    }
    // SAFETY: M2.
    if let Some(message) = unsafe { bytes(descriptor) } {
        return port.queue_bytes(to, tag, message, token::descriptor(descriptor), when);
    }
    // SAFETY: M2; btl_prepare_src made the second segment, if there is one.
    let (spans, count) = unsafe { spans(descriptor) };
    port.queue_send(to, tag, &spans[..count], token::descriptor(descriptor), when)
}

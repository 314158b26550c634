// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_send` and `btl_sendi`: messages. A small message goes inside the work request, straight from the header and the
//! user's memory; a larger one goes from a descriptor's slot. A blocking send returns only once the adapter has the
//! message, because the program may stay away from MPI for long. So `btl_sendi` either posts the whole message or
//! refuses it; `btl_send` either posts it, or queues it in the engine, in order, and calls back later. Called by Open
//! MPI and `emulated_atomic`. Grade: hot. Threads: any; each call enters the port. Tests: `first_contact.c`,
//! `pt2pt_flood.c` and others in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};
use std::hint::cold_path;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use engine::events::{self, HostTimestamp};
use engine::transport::{EndpointId, Refused, Sent, WhenDiverted};
use ibex_ffi::openmpi::convertor::Convertor;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::InlineSpan;

use super::descriptor::pool::{Descriptor, Descriptors};
use super::{descriptor, detour};
use crate::btl::endpoint::endpoint;
use crate::btl::module::{INLINE_MAX, Module, State};
use crate::btl::{token, watch};
use crate::runtime::device::Port;
use crate::runtime::entry::Out;
use crate::runtime::free_list::Owned;
use crate::runtime::guard::fence;

/// `btl_send`: sends a descriptor. Returns 1 if it is done, 0 if the callback will follow, a negative code if refused.
pub(crate) extern "C" fn btl_send(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    descriptor: Owned<Descriptor>,
    tag: u8,
) -> c_int {
    fence("btl_send", sys::OPAL_ERROR, || {
        let flags = descriptor.base.des_flags;
        // If ibex owns the descriptor and Open MPI wants no callback, none is needed once the adapter has the message.
        let silent = flags & (sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | sys::MCA_BTL_DES_SEND_ALWAYS_CALLBACK)
            == sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
        if events::interest().has_messages() {
            return post_watched(module, endpoint(peer), tag, descriptor, silent);
        }
        post(module, endpoint(peer), tag, descriptor, silent)
    })
}

/// Posts or queues a descriptor's message. `silent`: no callback is needed once the adapter has it.
#[inline]
fn post(module: &Module, to: EndpointId, tag: u8, mut descriptor: Owned<Descriptor>, silent: bool) -> c_int {
    let Some(mut state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    if descriptor.has_slot() {
        let (spans, count) = descriptor.spans();
        // User memory that is sent in place belongs to Open MPI, which must learn when the adapter has read it.
        let silent = silent && count == 1;
        // While the port is entered no other thread sees its completion.
        descriptor.callback_wanted = !silent;
        if state.port.send(to, tag, &spans[..count], token::descriptor(&descriptor), !silent) == Ok(Sent::Posted) {
            return c_int::from(silent);
        }
    }
    not_posted(module, state, to, tag, descriptor)
}

/// Queues a descriptor's message, at this port or at another one.
#[cold]
#[inline(never)]
fn not_posted(module: &Module, mut state: State<'_>, to: EndpointId, tag: u8, descriptor: Owned<Descriptor>) -> c_int {
    match wait(&mut state.port, to, tag, descriptor, WhenDiverted::Refuse) {
        Ok(()) => sys::OPAL_SUCCESS,
        Err(descriptor) => {
            drop(state);
            detour::send(module, to, tag, descriptor)
        }
    }
}

#[cold]
#[inline(never)]
fn post_watched(module: &Module, to: EndpointId, tag: u8, descriptor: Owned<Descriptor>, silent: bool) -> c_int {
    let length = descriptor.length();
    let moment = events::host_timestamp();
    let code = post(module, to, tag, descriptor, silent);
    if code >= 0 {
        sent(module, to, length, moment);
    }
    code
}

#[inline]
fn sent(module: &Module, to: EndpointId, bytes: u64, moment: HostTimestamp) {
    if let Some(peer) = module.peer_name(to) {
        watch::sent(peer.rank, module.index, bytes, moment);
    }
}

/// `btl_sendi`: posts header and data at once, or refuses them and returns a descriptor with room for both, if it can.
/// Open MPI calls the one that is not `WATCHED`. It tests once whether a tool listens to messages, and calls the other.
///
/// # Safety
/// M3: the header has `header_size` bytes. Unless `payload_size` is 0, the convertor is null or has so many bytes.
#[inline(never)]
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_sendi<const WATCHED: bool>(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    convertor: *mut sys::opal_convertor_t,
    header: *mut c_void,
    header_size: usize,
    payload_size: usize,
    order: u8,
    flags: u32,
    tag: u8,
    descriptor: Out<'_, *mut sys::mca_btl_base_descriptor_t>,
) -> c_int {
    if !WATCHED && events::interest().has_messages() {
        cold_path();
        let watched = btl_sendi::<true>;
        // SAFETY: M3, as the caller says.
        return unsafe {
            watched(module, peer, convertor, header, header_size, payload_size, order, flags, tag, descriptor)
        };
    }
    fence("btl_sendi", sys::OPAL_ERROR, || {
        descriptor.give(null_mut);
        // SAFETY: M3: the header is the caller's during this call; R1: no adapter accesses it.
        let header = unsafe { InlineSpan::new(header.cast(), header_size) };
        // Without data the convertor may be uninitialised (pml_ob1_isend.c), so it is not read.
        let convertor = if payload_size == 0 { null_mut() } else { convertor };
        // SAFETY: M3: null, or the caller's during this call.
        let data = unsafe { Convertor::from_raw(convertor) };
        let to = endpoint(peer);
        let moment = WATCHED.then(events::host_timestamp);
        let in_place = match &data {
            None => Some(InlineSpan::EMPTY),
            // SAFETY: M3: the user's send buffer, which MPI forbids the program to write until the send is done. Its
            // bytes may be uninitialised, which `InlineSpan` permits.
            Some(data) => data.contiguous().map(|start| unsafe { InlineSpan::new(start.as_ptr(), payload_size) }),
        };
        let code = match in_place.map(|payload| post_inline(module, to, tag, header, payload)) {
            Some(Ok(Sent::Posted)) => sys::OPAL_SUCCESS,
            Some(Ok(Sent::Busy)) => from_slot(module, to, tag, header, data, payload_size),
            Some(Err(code)) => code,
            None => inline_packed(module, to, tag, header, data, payload_size),
        };
        if code == sys::OPAL_ERR_RESOURCE_BUSY {
            let instead = || descriptor::take(module, header_size + payload_size, flags);
            descriptor.give(|| instead().map_or(null_mut(), |taken| taken.into_raw().cast()));
        }
        if let Some(moment) = moment
            && code == sys::OPAL_SUCCESS
        {
            sent(module, to, (header_size + payload_size) as u64, moment);
        }
        code
    })
}

/// Sends inside the work request, if the message fits.
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

/// Sends data that must be packed: inside the work request if it fits, else from a slot.
#[inline(never)]
fn inline_packed(
    module: &Module,
    to: EndpointId,
    tag: u8,
    header: InlineSpan<'_>,
    mut data: Option<Convertor<'_>>,
    size: usize,
) -> c_int {
    let mut staging = [MaybeUninit::<u8>::uninit(); INLINE_MAX];
    let fits = header.len() + size <= module.max_inline;
    if let (Some(data), Some(staging)) = (&mut data, staging.get_mut(..size).filter(|_| fits)) {
        let Some(start) = pack(data, staging) else { return sys::OPAL_ERROR };
        let outcome = post_inline(module, to, tag, header, InlineSpan::from(&*staging));
        if outcome == Ok(Sent::Posted) {
            return sys::OPAL_SUCCESS;
        }
        data.rewind(start);
        if let Err(code) = outcome {
            return code;
        }
    }
    from_slot(module, to, tag, header, data, size)
}

/// Fills `to` with packed data. Returns the former position of the convertor; `None`: packing failed, and the convertor
/// has its former position again.
#[inline]
fn pack(data: &mut Convertor<'_>, to: &mut [MaybeUninit<u8>]) -> Option<usize> {
    let start = data.position();
    // The datatype engine does not call back into ibex.
    if data.pack(to) == Ok(to.len()) {
        return Some(start);
    }
    data.rewind(start);
    None
}

/// Copies header and data to a slot, and posts it; its completion gives the descriptor back. `OPAL_ERR_RESOURCE_BUSY`:
/// the message cannot be posted now, and the convertor has its former position.
#[inline(never)]
fn from_slot(
    module: &Module,
    to: EndpointId,
    tag: u8,
    header: InlineSpan<'_>,
    mut data: Option<Convertor<'_>>,
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
    let slot = descriptor.start();
    let payload = slot.wrapping_add(header.len()).cast();
    // SAFETY: R2: the slot has `size` bytes, which no adapter has before the post; the header does not overlap it.
    unsafe { slot.copy_from_nonoverlapping(header.as_ptr(), header.len()) };
    // SAFETY: R2: the slot has `size` bytes, which no adapter has before the post; the payload follows the header.
    let payload = unsafe { std::slice::from_raw_parts_mut(payload, payload_size) };
    let start = data.as_mut().map(|data| pack(data, payload));
    let code = if start == Some(None) {
        sys::OPAL_ERROR
    } else {
        let (spans, count) = descriptor.spans();
        match port.send(to, tag, &spans[..count], token::descriptor(&descriptor), false) {
            Ok(Sent::Posted) => return sys::OPAL_SUCCESS,
            // If the connection has just failed, `btl_send` reports the reason, or sends by another port.
            Ok(Sent::Busy) | Err(Refused) => sys::OPAL_ERR_RESOURCE_BUSY,
        }
    };
    if let (Some(Some(start)), Some(data)) = (start, &mut data) {
        data.rewind(start);
    }
    // SAFETY: M2: it was taken from this port's pools, above.
    unsafe { descriptors.give_back(descriptor) };
    code
}

/// Takes completions and posts waiting requests, because a program that only sends makes no progress. Returns whether a
/// message can be posted now.
#[cold]
fn makes_room(port: &mut Port, descriptors: &mut Descriptors, to: EndpointId) -> bool {
    descriptor::reap(port, descriptors);
    port.has_room(to)
}

/// Queues a descriptor's message in the engine. Its callback will follow, because the upper layer may wait for it. The
/// error is the descriptor, which the engine has refused.
pub(crate) fn wait(
    port: &mut Port,
    to: EndpointId,
    tag: u8,
    mut descriptor: Owned<Descriptor>,
    when: WhenDiverted,
) -> Result<(), Owned<Descriptor>> {
    descriptor.callback_wanted = true;
    descriptor.tag = tag;
    let token = token::descriptor(&descriptor);
    let queued = if let Some(message) = descriptor.bytes() {
        port.queue_bytes(to, tag, message, token, when)
    } else {
        let (spans, count) = descriptor.spans();
        port.queue_send(to, tag, &spans[..count], token, when)
    };
    queued.map_err(|Refused| descriptor)
}

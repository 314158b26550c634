// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives messages to the port of one route: inside the work request, from a send buffer, or as a copy in the engine's
//! queue. `routing` and `failover` choose the route, and another one if it fails.
//!
//! The engine queues answers to a peer, fragments, and messages for which there is no send buffer. The request of such
//! a message is finished only when the adapter has the message, because the caller of a send may stay away from MPI for
//! long. If a peer is lost ([`State::has_failed`]), the job ends once nothing is entered. Grade: hot. Threads: the one
//! that has entered the PML; [`at_once`] and [`inline`]: any. Tests: the MPI programs of `hw-tests`.

use std::ptr::NonNull;
use std::sync::Arc;

use engine::messenger::header::MAX_SIZE;
use engine::messenger::host::Data;
pub(crate) use engine::messenger::host::Transmitted;
use engine::messenger::rendezvous::stripes::Part;
use engine::messenger::route::Route;
use engine::transport::{Sent, Token, WhenDiverted};
use ibex_ffi::verbs::{InlineSpan, LocalSpan, RemoteSpan};

use super::buffer::{Content, SendBuffer, SendBuffers};
use super::{rails, token};
use crate::pml::datatype::{Extent, UserData};
use crate::pml::instance::{Pml, Rail, State, pml};
use crate::pml::request::Handle;
use crate::runtime::device::Port;
use crate::runtime::messages;
use crate::runtime::token::Tag;
use crate::runtime::variables::now;

/// Sends header and contiguous data inside the work request. Returns false if that cannot be done now.
#[inline(always)]
pub(crate) unsafe fn inline(port: &mut Port, route: Route, header: &[u8], extent: Extent) -> bool {
    // SAFETY: P2: the data may be read during the call; a span of no bytes is not read.
    let payload = unsafe { InlineSpan::new(extent.start, extent.length) };
    port.send_inline(route.to(), Tag::PML.0, header.into(), payload) == Ok(Sent::Posted)
}

#[inline(never)]
pub(crate) unsafe fn inline_apart(port: &mut Port, route: Route, header: &[u8], extent: Extent) -> bool {
    // SAFETY: P2: the data may be read during the call.
    unsafe { inline(port, route, header, extent) }
}

/// [`inline`] by one port of several, if it is the peer's home.
#[inline(never)]
pub(crate) unsafe fn at_once(route: Route, header: &[u8], extent: Extent) -> bool {
    if !route.is_open_multi_rail() {
        return false;
    }
    let Some(rail) = pml().and_then(|pml| pml.rails().get(route.rail())) else { return false };
    let Some(mut port) = rail.enter() else { return false };
    if !rail.sent(&mut port, route.to()).is_home {
        return false;
    }
    // SAFETY: P2: the data may be read during the call.
    if !unsafe { inline(&mut port, route, header, extent) } {
        return false;
    }
    rails::note(rail, &mut port, route, true);
    true
}

/// Returns the length of the longest data that is now sent eagerly to a peer, bytes.
pub(crate) fn eager_limit(pml: &Pml, route: Route) -> usize {
    if route.as_local().is_some() {
        return pml.shared_memory().map_or(0, |shared| shared.eager_limit);
    }
    let rail = if route == Route::LOOPBACK { pml.rails().first() } else { pml.rails().get(route.rail()) };
    rail.map_or(0, |rail| now::eager_limit(rail.copy_size) - MAX_SIZE)
}

/// Sends a message without data by this route. Returns false if the port refuses it.
pub(crate) fn control_by(pml: &Pml, route: Route, header: &[u8]) -> bool {
    let Some(rail) = pml.rails().get(route.rail()) else { return false };
    let Some(mut port) = rail.enter() else { return false };
    // SAFETY: P2: there are no bytes to read.
    let transmitted = if unsafe { inline_apart(&mut port, route, header, Extent::EMPTY) } {
        Transmitted::Posted
    } else {
        queue(&mut port, route, (Arc::from(header), header.len() as u32), Token(0))
    };
    note(pml, rail, &mut port, route, transmitted);
    transmitted != Transmitted::Failed
}

/// Queues the turn of pending messages. Returns false if the port refuses it.
pub(crate) fn queue_turn_by(pml: &Pml, route: Route) -> bool {
    let port = pml.rails().get(route.rail()).and_then(Rail::enter);
    port.is_some_and(|mut port| port.queue_turn(route.to(), Tag::PML.0, token::turn()).is_ok())
}

/// Queues a message in the engine. `bytes`: an array that begins with the message, and the message's length.
pub(crate) fn queue(port: &mut Port, route: Route, bytes: (Arc<[u8]>, u32), token: Token) -> Transmitted {
    match port.queue_bytes(route.to(), Tag::PML.0, bytes, token, WhenDiverted::Wait) {
        Ok(()) => Transmitted::Waits,
        Err(_) => Transmitted::Failed,
    }
}

/// Posts a read of a part of a request's message, which `from` names in the sender's memory. False: the port refuses.
///
/// # Safety
/// R3, R2, P2: until the read is done, the part is registered at `to` under `lkey`, and belongs to the adapter.
pub(crate) unsafe fn read(
    port: &mut Port,
    route: Route,
    Part { offset, length }: Part,
    (to, lkey): (*mut u8, u32),
    from: RemoteSpan,
    request: Handle,
) -> bool {
    let addr = to.wrapping_add(offset as usize).expose_provenance() as u64;
    // SAFETY: R3, R2, P2: until the read is done, the part is registered and belongs to the adapter.
    let local = unsafe { LocalSpan::new(addr, length, lkey) };
    let remote = RemoteSpan { addr: from.addr.wrapping_add(offset), rkey: from.rkey };
    port.get(route.to(), local, remote, token::read(request)).is_ok()
}

/// Counts a message that was given to a port, with several rails.
pub(crate) fn note(pml: &Pml, rail: &Rail, port: &mut Port, route: Route, transmitted: Transmitted) {
    if pml.is_multi_rail() && matches!(transmitted, Transmitted::Posted | Transmitted::Waits) {
        rails::note(rail, port, route, transmitted == Transmitted::Posted);
    }
}

/// [`super::routing::message`] by this route.
pub(crate) fn message_by(
    pml: &Pml,
    state: &mut State,
    route: Route,
    header: &[u8],
    request: Handle,
    finishes: bool,
) -> Transmitted {
    let Some(rail) = pml.rails().get(route.rail()) else { return Transmitted::Failed };
    let Some(mut port) = rail.enter() else { return Transmitted::Failed };
    let transmitted = give(state, &mut port, route, header, request, finishes);
    note(pml, rail, &mut port, route, transmitted);
    transmitted
}

#[inline(always)]
fn give(
    state: &mut State,
    port: &mut Port,
    route: Route,
    header: &[u8],
    request: Handle,
    finishes: bool,
) -> Transmitted {
    let data = &state.requests.core(request).data;
    let (extent, is_contiguous) = (data.extent(), data.is_contiguous());
    // SAFETY: P2: the data of a send that is not finished.
    if is_contiguous && unsafe { inline_apart(port, route, header, extent) } {
        return Transmitted::Posted;
    }
    if !port.has_room(route.to()) {
        return Transmitted::NoRoom;
    }
    let length = header.len() + extent.length;
    let buffers = &mut state.buffers[route.rail()];
    let Some(buffer) = buffers.take(port, length) else {
        let mut bytes = vec![0; length];
        if !fill(&mut bytes, header, &mut state.requests.core(request).data) {
            return cannot_pack(state, extent.length);
        }
        let token = if finishes { token::sent(request) } else { Token(0) };
        return queue(port, route, (Arc::from(bytes), length as u32), token);
    };
    // SAFETY: P3, R1, R2: just taken, so ours alone, and at least `length` bytes long.
    let bytes = unsafe { std::slice::from_raw_parts_mut((*buffer.as_ptr()).start(), length) };
    if !fill(bytes, header, &mut state.requests.core(request).data) {
        // SAFETY: P3, R2: just taken from these buffers, and not sent.
        unsafe { buffers.give_back(buffer) };
        return cannot_pack(state, extent.length);
    }
    // SAFETY: P3, R2: the buffer was taken from these, has `length` bytes, and is ours alone.
    if unsafe { post(buffers, port, route, buffer, length) } { Transmitted::Posted } else { Transmitted::NoRoom }
}

/// Sends header and contiguous data from a send buffer. Returns false if that cannot be done now.
#[inline(always)]
pub(crate) unsafe fn copied(state: &mut State, port: &mut Port, route: Route, header: &[u8], extent: Extent) -> bool {
    let length = header.len() + extent.length;
    let buffers = &mut state.buffers[route.rail()];
    let Some(buffer) = buffers.take(port, length) else { return false };
    // SAFETY: P3, R2: just taken, so ours alone, and at least `length` bytes long; P2: the data may be read.
    unsafe {
        let start = (*buffer.as_ptr()).start();
        start.copy_from_nonoverlapping(header.as_ptr(), header.len());
        start.add(header.len()).copy_from_nonoverlapping(extent.start, extent.length);
        post(buffers, port, route, buffer, length)
    }
}

/// Sends the first `length` bytes of a buffer as a message. If that cannot be done now, gives the buffer back to
/// `buffers` and returns false.
#[inline(always)]
unsafe fn post(
    buffers: &mut SendBuffers,
    port: &mut Port,
    route: Route,
    buffer: NonNull<SendBuffer>,
    length: usize,
) -> bool {
    // SAFETY: P3, R2: the buffer is ours alone.
    let b = unsafe { &mut *buffer.as_ptr() };
    b.content = Content::Silent;
    let is_posted =
        port.send(route.to(), Tag::PML.0, &[b.filled(length)], token::buffer(buffer), false) == Ok(Sent::Posted);
    if !is_posted {
        // SAFETY: P3, R2: the port refused it, so the adapter never had it.
        unsafe { buffers.give_back(buffer) };
    }
    is_posted
}

/// Sends the first `length` bytes of a buffer, which are a fragment of this request's message.
pub(crate) unsafe fn fragment(
    port: &mut Port,
    route: Route,
    buffer: NonNull<SendBuffer>,
    length: usize,
    request: Handle,
) -> Transmitted {
    // SAFETY: P3, R2: the buffer is ours alone.
    let b = unsafe { &mut *buffer.as_ptr() };
    let (spans, tag, token) = ([b.filled(length)], Tag::PML.0, token::buffer(buffer));
    b.content = Content::Fragment(request);
    match port.send(route.to(), tag, &spans, token, true) {
        Ok(Sent::Posted) => return Transmitted::Posted,
        Ok(Sent::Busy) => {}
        Err(_) => return Transmitted::Failed,
    }
    match port.queue_send(route.to(), tag, &spans, token, WhenDiverted::Wait) {
        Ok(()) => Transmitted::Waits,
        Err(_) => Transmitted::Failed,
    }
}

/// Copies header and data of a send to `to`, which is as long as both. Returns false if the data cannot be packed.
fn fill(to: &mut [u8], header: &[u8], send: &mut UserData) -> bool {
    let (before, data) = to.split_at_mut(header.len());
    before.copy_from_slice(header);
    send.take_all(data)
}

/// Notes that the job must end: a peer is lost, or the reason was printed.
#[cold]
pub(crate) fn failed(state: &mut State) -> Transmitted {
    state.has_failed = true;
    state.has_more = true;
    Transmitted::Failed
}

#[cold]
pub(crate) fn cannot_pack(state: &mut State, length: usize) -> Transmitted {
    failed_for(state, &messages::cannot_pack(length))
}

/// Ends the job for a reason that no port knows. Prints the reason, unless the job ends already.
#[cold]
pub(crate) fn failed_for(state: &mut State, why: &str) -> Transmitted {
    if !state.has_failed {
        messages::operation_failed(why);
    }
    failed(state)
}

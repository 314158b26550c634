// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receive and its message have met: what becomes of the message's bytes.
//!
//! Called where a receive is posted that finds its message, and where a message comes that finds its receive. The
//! status is noted here: bytes for which there is no room are left, and the receive ends with `MPI_ERR_TRUNCATE` and
//! the message's length; where bytes cannot be put, with `MPI_ERR_INTERN`. Grade: hot for whole messages. Threads: who has entered the PML.

use std::ptr::NonNull;

use engine::matching::Envelope;
use engine::protocol::header::{Header, Memory, PortKey};
use engine::protocol::transfers::TransferId;
use ibex_ffi::openmpi::sys;

use super::arrived::{Arrived, Body};
use super::finish::{Outcome, finish, note, note_not_put};
use super::instance::{Pml, State};
use super::link::Link;
use super::passage::{Protocol, Reason};
use super::request::Request;
use super::{datatype, flight, flow, getting, oneself, passage, pieces, reading, routing, striped, watch};
use crate::runtime::listeners::{Event, Listeners};

/// A whole message goes to a receive, of which tools are told if `TOLD`.
///
/// # Safety
/// A receive of the PML's that is matched by it; the bytes may be read.
#[inline(always)]
pub(crate) unsafe fn whole<const TOLD: bool>(
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    from: *const u8,
    length: usize,
) {
    // SAFETY: this function's rule.
    let room = unsafe { request.as_ref() }.extent.length;
    if length > room {
        // SAFETY: this function's rule.
        return unsafe { truncated::<TOLD>(state, request, envelope, from, length) };
    }
    let outcome = Outcome { source: envelope.source(), tag: envelope.tag(), length, error: sys::OPAL_SUCCESS };
    // SAFETY: this function's rule; there is room.
    unsafe { put::<TOLD>(state, request, &outcome, from, length) };
}

/// [`whole`] of a message that is longer than its receive.
///
/// # Safety
/// As for [`whole`].
#[cold]
#[inline(never)]
unsafe fn truncated<const TOLD: bool>(
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    from: *const u8,
    length: usize,
) {
    let error = sys::MPI_ERR_TRUNCATE as i32;
    let outcome = Outcome { source: envelope.source(), tag: envelope.tag(), length, error };
    // SAFETY: the caller's rule.
    let room = unsafe { request.as_ref() }.extent.length;
    // SAFETY: the caller's rule; as much as there is room for.
    unsafe { put::<TOLD>(state, request, &outcome, from, room) };
}

/// Puts the first `wanted` bytes of a message where they belong, and ends the receive.
///
/// # Safety
/// As for [`whole`]; the receive has room for them.
#[inline(always)]
unsafe fn put<const TOLD: bool>(
    state: &mut State,
    request: NonNull<Request>,
    outcome: &Outcome,
    from: *const u8,
    wanted: usize,
) {
    // SAFETY: this function's rule.
    unsafe { note(request, outcome) };
    if TOLD {
        // SAFETY: as above.
        unsafe { watch::begins(&mut *request.as_ptr()) };
    }
    // SAFETY: as above.
    let r = unsafe { request.as_ref() };
    // SAFETY: the user's buffer (M3); this function's rule.
    if !unsafe { datatype::put(&r.data, r.extent, from, wanted) } {
        // SAFETY: noted above.
        unsafe { note_not_put(request) };
    }
    if TOLD {
        // SAFETY: as above.
        unsafe { watch::ends(&mut *request.as_ptr()) };
    }
    // SAFETY: all its bytes are there.
    unsafe { finish(state, request) };
}

/// [`whole`] of a blocking call's receive, as long as the message at least, to whose communicator a tool listens.
///
/// # Safety
/// As for [`whole`]; the listeners are those of the receive's communicator.
#[inline(always)]
pub(crate) unsafe fn whole_watched(
    listeners: &Listeners,
    request: NonNull<Request>,
    envelope: Envelope,
    from: *const u8,
    length: usize,
) {
    let outcome = Outcome { source: envelope.source(), tag: envelope.tag(), length, error: sys::OPAL_SUCCESS };
    // SAFETY: this function's rule.
    unsafe {
        note(request, &outcome);
        let r = &mut *request.as_ptr();
        watch::told(listeners, r, Event::XferBegin);
        if !datatype::put(&r.data, r.extent, from, length) {
            note_not_put(request);
        }
        watch::told(listeners, r, Event::XferEnd);
        watch::told(listeners, r, Event::Complete);
        // All its bytes are there.
        r.set_finished(true);
    }
}

/// An announced message goes to a receive.
///
/// # Safety
/// A receive of the PML's that is matched by it.
pub(crate) unsafe fn announced(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    (from, sender): (Link, TransferId),
    (memory, keys): (Memory, &[PortKey]),
) {
    if from == Link::ONESELF {
        // SAFETY: this function's rule.
        return unsafe { oneself::receive(state, request, envelope, sender) };
    }
    // SAFETY: this function's rule.
    unsafe { note_match(request, envelope, memory.length as usize) };
    // SAFETY: as above.
    let extent = unsafe { request.as_ref() }.extent;
    let wanted = memory.length.min(extent.length as u64);
    if wanted == 0 {
        // SAFETY: this function's rule. No bytes are to come.
        unsafe { watch::piece(&mut *request.as_ptr(), true, true) };
        routing::control(pml, state, from, &Header::Finished { request: sender.0, length: 0 });
        // SAFETY: nothing is to come.
        return unsafe { finish(state, request) };
    }
    // SAFETY: this function's rule.
    unsafe { flight::begins(&mut *request.as_ptr(), sender, wanted) };
    let mut why = Reason::Gaps;
    if memory.address != 0 && !extent.start.is_null() {
        let message = (from, sender, memory);
        // SAFETY: memory of one piece; this function's rule.
        let is_read = unsafe {
            match keys {
                _ if from.as_local().is_some() => getting::begin(pml, state, request, message, wanted),
                [] => reading::begin(pml, state, request, message, wanted),
                keys => striped::begin(pml, state, request, message, (keys, wanted)),
            }
        };
        if is_read {
            return;
        }
        why = Reason::NotRegistered;
        // By shared memory it goes as was told, read or not.
        if from.as_local().is_none() {
            // SAFETY: this function's rule.
            unsafe {
                let how = (Protocol::Pieces, why);
                watch::goes(&mut *request.as_ptr(), |_| Some(passage::by_home(pml, state, from, how)));
            }
        }
    }
    // SAFETY: this function's rule.
    unsafe { pieces::ask(pml, state, request, (from, sender), (wanted, passage::code(why))) };
}

/// A message that was unexpected goes to a receive.
///
/// # Safety
/// A receive of the PML's that is matched by it.
pub(crate) unsafe fn unexpected(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    message: Arrived,
) {
    flow::give_up(pml, state, &message);
    // SAFETY: this function's rule.
    unsafe { arrived(pml, state, request, envelope, message) };
}

/// A message of which it is known what came goes to a receive.
///
/// # Safety
/// As for [`unexpected`].
pub(crate) unsafe fn arrived(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    message: Arrived,
) {
    let Arrived { from, body, .. } = message;
    match body {
        Body::Short { length, bytes } => {
            // SAFETY: this function's rule; a copy of the bytes.
            unsafe { whole::<true>(state, request, envelope, bytes.as_ptr(), usize::from(length)) };
        }
        Body::Whole { bytes } => {
            // SAFETY: this function's rule; a copy of the bytes.
            unsafe { whole::<true>(state, request, envelope, bytes.as_ptr(), bytes.len()) };
        }
        Body::Synchronous { bytes, sender } => {
            routing::control(pml, state, from, &Header::Acknowledge { request: sender.0 });
            // SAFETY: as above.
            unsafe { whole::<true>(state, request, envelope, bytes.as_ptr(), bytes.len()) };
        }
        Body::Announced { sender, memory } => {
            // SAFETY: this function's rule.
            unsafe { announced(pml, state, request, envelope, (from, sender), (memory, &[])) };
        }
        Body::AnnouncedKeyed { sender, memory, keys } => {
            // SAFETY: this function's rule.
            unsafe { announced(pml, state, request, envelope, (from, sender), (memory, &keys)) };
        }
    }
}

/// # Safety
/// A receive of the PML's that is matched by the message.
#[inline(always)]
unsafe fn note_match(request: NonNull<Request>, envelope: Envelope, length: usize) {
    // SAFETY: this function's rule.
    let room = unsafe { request.as_ref() }.extent.length;
    let error = if length > room { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS };
    let outcome = Outcome { source: envelope.source(), tag: envelope.tag(), length, error };
    // SAFETY: this function's rule.
    unsafe { note(request, &outcome) };
}

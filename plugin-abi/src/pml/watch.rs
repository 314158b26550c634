// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the PERUSE events of requests, messages and searches.
//!
//! Each raising function first tests whether a tool listens to the communicator of the request or message
//! (`runtime/listeners.rs`). It raises the event where it happens, with the PML entered, so a callback may not call MPI
//! (PERUSE 5.1.2). The fast paths of short messages raise nothing: `listening.rs` closes them while a tool listens.
//!
//! Tools know a request by a number, from its first raised event until its caller knows of its end or has freed it; a
//! message from its arrival to its match; and a search while it lasts. No number is used twice. Called by all modules
//! that change a request or a message. Grade: pending; [`tell`] is on the path of a watched message. Threads: the one
//! that has entered the PML. Tests: `hw-tests/tools/peruse_requests.c`.
//!
//! Safety: each unsafe function requires that the PML is entered (P3), that the communicator lives and was added to the
//! PML (P1, P4), and that listeners are its own. One that reports a match or a transfer also requires that the request
//! is not finished (P1).

use std::ffi::c_int;
use std::hint::cold_path;
use std::ptr::{NonNull, null_mut};

use engine::messenger::arrived::Arrived;
use engine::messenger::matching::{Envelope, Message, MessageHandle, Pattern};
use ibex_ffi::openmpi::{release, sys};

use super::communicator::{Communicator, Queues};
use super::datatype::Data;
use super::request::{Owner, Request, Role, Told};
use super::transfers::{self, Bytes, Moved};
use crate::runtime::listeners::{Event, Listeners, Passage, ProtocolSpec, Spec};
use crate::runtime::watch::{number, numbers};

/// `PERUSE_SEND`, `PERUSE_RECV`
pub(crate) const SEND: c_int = 0;
pub(crate) const RECEIVE: c_int = 1;

fn saturated(count: usize) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Raises an event of a request.
#[inline(always)]
pub(crate) unsafe fn request(request: &mut Request, event: Event) {
    // SAFETY: P3; the communicator lives, so its listeners do.
    unsafe {
        if let Some(listeners) = Listeners::of(request.comm()) {
            tell(listeners, request, event);
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn tell(listeners: &Listeners, request: &mut Request, event: Event) {
    // A blocking call that began before a tool listened has not noted its arguments.
    if listeners.wants(event) && request.shell.owner != Owner::Call {
        listeners.tell(event, number_of(request), &mut request.spec);
    }
}

/// Raises the events of a request that MPI frees. If it is complete and not persistent, its wait ends here.
#[inline(always)]
pub(crate) unsafe fn freed(request: &mut Request, is_complete: bool) {
    // SAFETY: P3; the communicator lives, and the listeners are its.
    unsafe {
        if let Some(listeners) = Listeners::of(request.comm()) {
            if is_complete && !request.base().req_persistent {
                tell(listeners, request, Event::Notify);
            }
            tell(listeners, request, Event::Free);
        }
    }
}

/// [`request`], with the listeners of its communicator at hand. Fast if the request has a number.
#[inline(always)]
pub(crate) unsafe fn told(listeners: &Listeners, request: &mut Request, event: Event) {
    if request.id == 0 {
        // SAFETY: P3; the communicator lives, and the listeners are its.
        return unsafe { tell(listeners, request, event) };
    }
    listeners.tell(event, request.id, &mut request.spec);
}

/// Gives a request its number for tools, and its specification.
#[inline(always)]
pub(crate) fn introduce(request: &mut Request, id: u64, spec: Spec) {
    (request.id, request.spec, request.core.told) = (id, spec, Told::Nothing);
}

/// [`introduce`] for a request that has noted its call's arguments.
#[cold]
#[inline(never)]
fn introduce_itself(request: &mut Request, id: u64) {
    let operation = if request.core.role == Role::Receive { RECEIVE } else { SEND };
    let (envelope, length) = ((request.core.peer, request.core.tag), request.core.extent.length);
    // SAFETY: P3; the communicator lives, which all callers require of theirs.
    let spec = unsafe { spec(request.comm(), &request.core.data, envelope, (operation, length)) };
    (request.id, request.spec) = (id, spec);
}

/// Returns the specification of a request of `length` bytes; `operation`: [`SEND`] or [`RECEIVE`].
#[inline(always)]
pub(crate) unsafe fn spec(
    comm: *mut sys::ompi_communicator_t,
    data: &Data,
    (peer, tag): (i32, i32),
    (operation, length): (c_int, usize),
) -> Spec {
    let (buf, count, datatype) = (data.buffer, saturated(data.count), data.datatype);
    // SAFETY: P1, P4: `comm` lives, as this function requires.
    let context = unsafe { release::context(comm) };
    Spec { comm, buf, count, datatype, peer, tag, operation, context, bytes: length as u64, stamp: 0 }
}

/// Returns the specification of a message of `length` bytes that has arrived.
#[inline(always)]
unsafe fn spec_of_message(comm: *mut sys::ompi_communicator_t, envelope: Envelope, length: usize) -> Spec {
    Spec {
        comm,
        buf: null_mut(),
        count: saturated(length),
        // SAFETY: takes the address of an object that Open MPI never frees.
        datatype: unsafe { sys::ibex_byte() },
        peer: envelope.source(),
        tag: envelope.tag(),
        operation: RECEIVE,
        // SAFETY: P1: `comm` lives, as this function requires.
        context: unsafe { release::context(comm) },
        bytes: length as u64,
        stamp: 0,
    }
}

/// Returns the number by which tools know a request.
pub(crate) unsafe fn id(mut request: NonNull<Request>) -> u64 {
    // SAFETY: P3.
    number_of(unsafe { request.as_mut() })
}

/// [`id`], which a request without a number gets now.
#[inline(always)]
fn number_of(request: &mut Request) -> u64 {
    if request.id == 0 {
        introduce_itself(request, number());
    }
    request.id
}

/// Gives a send, before it begins, the number of the request whose message it carries.
pub(crate) unsafe fn set_id(mut request: NonNull<Request>, id: u64) {
    if id != 0 {
        // SAFETY: P3.
        introduce_itself(unsafe { request.as_mut() }, id);
    }
}

#[inline(always)]
pub(crate) fn forget(request: &mut Request) {
    request.id = 0;
    request.core.told = Told::Nothing;
}

/// Raises the event that the first data of a request's message is about to be sent or stored. Does nothing for an
/// unwatched blocking call, which gives its request back without resetting it.
#[inline]
pub(crate) unsafe fn begins(of: &mut Request, moved: Moved) {
    // SAFETY: P1: the request is not finished; P3.
    unsafe { begins_by(of, moved, |_| None) };
}

/// [`begins`]; reports the passage of the data, if `how` returns it now.
#[inline]
pub(crate) unsafe fn begins_by(of: &mut Request, moved: Moved, how: impl FnOnce(&Request) -> Option<Passage>) {
    if of.core.told == Told::Nothing && of.shell.owner != Owner::Call {
        of.core.told = Told::Begun;
        // SAFETY: P1: the request is not finished; P3.
        unsafe { request_by(of, Event::XferBegin, moved, how) };
    }
}

/// Raises the event that the adapter has the last data, or that it is stored.
#[inline]
pub(crate) unsafe fn ends(of: &mut Request, moved: Moved) {
    // SAFETY: P1: the request is not finished; P3.
    unsafe { ends_by(of, moved, |_| None) };
}

/// [`ends`]; reports the passage of the data, if `how` returns it now.
#[inline]
pub(crate) unsafe fn ends_by(of: &mut Request, moved: Moved, how: impl FnOnce(&Request) -> Option<Passage>) {
    if of.core.told != Told::Ended && of.shell.owner != Owner::Call {
        of.core.told = Told::Ended;
        // SAFETY: P1: the request is not finished; P3.
        unsafe { request_by(of, Event::XferEnd, moved, how) };
    }
}

/// [`request`]; before it, reports the passage of the data, if `how` returns it.
#[inline(always)]
unsafe fn request_by(request: &mut Request, event: Event, moved: Moved, how: impl FnOnce(&Request) -> Option<Passage>) {
    // SAFETY: P1: the request is not finished; P3.
    unsafe {
        if let Some(listeners) = Listeners::of(request.comm()) {
            goes_as(listeners, request, how);
            tell(listeners, request, event);
            told_moved(listeners, request, event, moved);
        }
    }
}

/// Raises the transfer event of a step of a request, with its bytes, if a tool wants it.
#[inline(always)]
pub(crate) unsafe fn told_moved(listeners: &Listeners, request: &mut Request, event: Event, moved: Moved) {
    if listeners.wants(Event::Transfer) && request.shell.owner != Owner::Call {
        cold_path();
        number_of(request);
        if let Some(step) = transfers::step(event) {
            // SAFETY: P1: the request is not finished; P3.
            unsafe { transfers::tell(request, step, moved) };
        }
    }
}

/// Reports the passage of a request's message, if `how` returns it.
#[inline]
pub(crate) unsafe fn goes(request: &mut Request, how: impl FnOnce(&Request) -> Option<Passage>) {
    // SAFETY: P1: the request is not finished; P3.
    unsafe {
        if let Some(listeners) = Listeners::of(request.comm()) {
            goes_as(listeners, request, how);
        }
    }
}

#[inline(always)]
unsafe fn goes_as(listeners: &Listeners, request: &mut Request, how: impl FnOnce(&Request) -> Option<Passage>) {
    if listeners.wants(Event::Protocol) && request.shell.owner != Owner::Call {
        cold_path();
        let Some(passage) = how(request) else { return };
        let bytes = match request.core.role {
            Role::Receive => request.base().req_status._ucount,
            Role::Send(_) => request.core.extent.length,
        };
        // SAFETY: P1: the request is not finished; P3.
        unsafe { tell_passage(listeners, request, bytes, passage) };
    }
}

#[cold]
#[inline(never)]
unsafe fn tell_passage(listeners: &Listeners, request: &mut Request, bytes: usize, passage: Passage) {
    let (id, (of, message)) = (number_of(request), request.message);
    let message = if of == id { message } else { 0 };
    let mut told = ProtocolSpec { spec: Spec { bytes: bytes as u64, ..request.spec }, message, passage };
    listeners.tell_protocol(id, &mut told);
}

/// Whether a tool wants events that name the message of a receive.
#[inline(always)]
fn asks_for_message(listeners: &Listeners) -> bool {
    listeners.wants(Event::Protocol) || listeners.wants(Event::Transfer)
}

/// Notes the message `id`, of `length` bytes, that a receive has matched. Reports its passage, if a tool wants it and
/// `how` returns it now.
#[cold]
#[inline(never)]
unsafe fn has_message(
    listeners: &Listeners,
    receive: &mut Request,
    (id, length): (u64, usize),
    how: impl FnOnce(&Request) -> Option<Passage>,
) {
    if receive.shell.owner == Owner::Call {
        return;
    }
    receive.message = (number_of(receive), id);
    if listeners.wants(Event::Protocol)
        && let Some(passage) = how(receive)
    {
        // SAFETY: P1: the receive is not finished; P3.
        unsafe { tell_passage(listeners, receive, length, passage) };
    }
}

/// Raises the event of a fragment, neither the first nor the last, that the adapter has or that is stored.
#[inline]
pub(crate) unsafe fn continues(of: &mut Request, moved: Moved) {
    // SAFETY: P1: the request is not finished; P3.
    unsafe { request_by(of, Event::XferContinue, moved, |_| None) };
}

/// Raises the events of a fragment of a send that the adapter has.
#[inline]
pub(crate) unsafe fn piece_sent(of: &mut Request, (offset, length): (u64, usize), is_last: bool) {
    let moved = Bytes::Of { offset, length: length as u64 }.posted();
    // SAFETY: P1: the request is not finished; P3.
    unsafe {
        let begins_now = offset == 0 && of.core.told == Told::Nothing;
        if begins_now {
            begins(of, moved);
        } else if !is_last {
            continues(of, moved);
        }
        if is_last {
            let nothing_more = Bytes::Of { offset: offset + length as u64, length: 0 }.posted();
            ends(of, if begins_now { nothing_more } else { moved });
        }
    }
}

/// Takes out the receive that an arrived message matches; without one, returns the message's number for tools.
/// `lengths`: of the message, and of the part that came with its header. While a tool asks for passages, reports this
/// one if `how` returns it now, or calls `kept` if no receive matches.
#[inline]
pub(crate) unsafe fn take_posted(
    communicator: &Communicator,
    envelope: Envelope,
    lengths: (usize, usize),
    (how, kept): (impl FnOnce(&Request) -> Option<Passage>, impl FnOnce()),
) -> Result<NonNull<Request>, u64> {
    // SAFETY: P3; P1: the communicator lives.
    unsafe {
        match Listeners::of(communicator.comm) {
            None => communicator.take_posted(envelope).ok_or(0),
            Some(listeners) => take_posted_watched(listeners, communicator, envelope, lengths, (how, kept)),
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn take_posted_watched(
    listeners: &Listeners,
    communicator: &Communicator,
    envelope: Envelope,
    (length, here): (usize, usize),
    (how, kept): (impl FnOnce(&Request) -> Option<Passage>, impl FnOnce()),
) -> Result<NonNull<Request>, u64> {
    let id = numbers(2);
    let search = id + 2;
    // SAFETY: P1: a posted receive of this communicator, which lives; P3.
    unsafe {
        let mut spec = spec_of_message(communicator.comm, envelope, length);
        listeners.tell(Event::Arrived, id, &mut spec);
        if listeners.wants(Event::Transfer) {
            transfers::arrived(id, &spec, envelope, here);
        }
        listeners.tell(Event::SearchPostedBegin, search, &mut spec);
        let found = communicator.take_posted_watched(envelope);
        listeners.tell(Event::SearchPostedEnd, search, &mut spec);
        let Some(mut found) = found else {
            if listeners.wants(Event::Protocol) {
                kept();
            }
            return Err(id);
        };
        told(listeners, found.as_mut(), Event::RemovePosted);
        listeners.tell(Event::MatchPosted, id, &mut spec);
        if asks_for_message(listeners) {
            has_message(listeners, found.as_mut(), (id, length), how);
        }
        Ok(found)
    }
}

/// Stores an unexpected message, and raises its event.
pub(crate) unsafe fn insert_unexpected(communicator: &Communicator, envelope: Envelope, message: Arrived) {
    let (id, length) = (message.id, message.length());
    // SAFETY: P3; P1: the communicator lives.
    unsafe {
        communicator.insert_unexpected(envelope, message);
        tell_of_message(communicator, Event::InsertUnexpected, (id, envelope, length));
    }
}

#[inline]
unsafe fn tell_of_message(
    communicator: &Communicator,
    event: Event,
    (id, envelope, length): (u64, Envelope, usize),
) -> u64 {
    // SAFETY: P3; P1: the communicator lives.
    unsafe {
        if let Some(listeners) = Listeners::of(communicator.comm) {
            // A message that arrived while nobody listened has no number yet.
            let id = if id == 0 { number() } else { id };
            let mut spec = spec_of_message(communicator.comm, envelope, length);
            listeners.tell(event, id, &mut spec);
            return id;
        }
    }
    id
}

/// Takes out the unexpected message that a numbered receive of this communicator matches, and raises the events of the
/// search. Reports the passage of the message, if `how` returns it now.
#[inline(always)]
pub(crate) unsafe fn take_unexpected(
    listeners: &Listeners,
    communicator: &Communicator,
    of: &mut Request,
    pattern: Pattern,
    how: impl FnOnce(&Request, &Message<Arrived>) -> Option<Passage>,
) -> Option<Message<Arrived>> {
    let search = number();
    // SAFETY: P1: the receive is not finished, so its communicator lives; P3.
    unsafe {
        listeners.tell(Event::SearchUnexpectedBegin, search, &mut of.spec);
        let is_any = communicator.queues().unexpected() > 0;
        let found = if is_any { communicator.take_unexpected(pattern) } else { None };
        listeners.tell(Event::SearchUnexpectedEnd, search, &mut of.spec);
        let found = found?;
        let length = found.message.length();
        let id = tell_of_message(communicator, Event::RemoveUnexpected, (found.message.id, found.envelope, length));
        request(of, Event::MatchUnexpected);
        if asks_for_message(listeners) {
            has_message(listeners, of, (id, length), |receive| how(receive, &found));
        }
        Some(found)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Probed {
    pub(crate) from: i32,
    pub(crate) tag: i32,
    pub(crate) comm: *mut sys::ompi_communicator_t,
}

/// Runs the `search` of a probe through the unexpected messages, and raises its events.
pub(crate) unsafe fn probe<T>(probed: Probed, search: impl FnOnce(&mut Queues) -> T) -> T {
    let Probed { from, tag, comm } = probed;
    // SAFETY: P3; P4: `comm` lives. The datatype is the address of an object that Open MPI never frees.
    unsafe {
        let communicator = Communicator::of(comm);
        let Some(listeners) = Listeners::of(comm) else { return search(communicator.queues()) };
        let (id, datatype, context) = (number(), sys::ibex_byte(), release::context(comm));
        let mut spec = Spec { comm, datatype, peer: from, tag, operation: RECEIVE, context, ..Spec::EMPTY };
        listeners.tell(Event::SearchUnexpectedBegin, id, &mut spec);
        let found = search(communicator.queues());
        listeners.tell(Event::SearchUnexpectedEnd, id, &mut spec);
        found
    }
}

/// Raises the event of a message that a matched probe has taken out.
pub(crate) unsafe fn taken(comm: *mut sys::ompi_communicator_t, envelope: Envelope, handle: MessageHandle) {
    // SAFETY: P3; P4: `comm` lives.
    unsafe {
        let communicator = Communicator::of(comm);
        if let Some(message) = communicator.queues().message_mut(handle) {
            let (id, length) = (message.id, message.length());
            let told = tell_of_message(communicator, Event::RemoveUnexpected, (id, envelope, length));
            if told != id {
                // The events of its receive name the same number.
                if let Some(message) = communicator.queues().message_mut(handle) {
                    message.id = told;
                }
            }
        }
    }
}

/// Raises the events of a receive that gets the message of a matched probe.
pub(crate) unsafe fn match_probed(
    receive: &mut Request,
    found: &Message<Arrived>,
    how: impl FnOnce(&Request, &Message<Arrived>) -> Option<Passage>,
) {
    // SAFETY: P1: the receive is not finished; P3.
    unsafe {
        if let Some(listeners) = Listeners::of(receive.comm()) {
            tell(listeners, receive, Event::MatchUnexpected);
            if asks_for_message(listeners) {
                let of = (found.message.id, found.message.length());
                has_message(listeners, receive, of, |receive| how(receive, found));
            }
        }
    }
}

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

use std::ffi::c_int;
use std::hint::cold_path;
use std::ptr::null_mut;

use engine::events;
use engine::messenger::host::{Data, Moved};
use engine::messenger::matching::{Envelope, Message};
use engine::messenger::path_taken::{PathTaken, of_message};
use engine::messenger::receive::arrived::Arrived;
use engine::messenger::route::Route;
use ibex_ffi::openmpi::sys;

use super::transfers;
use crate::pml::communicator::Communicator;
use crate::pml::instance::{Pml, State};
use crate::pml::request::{Call, Handle, Owner, Request, Role, Told};
use crate::runtime::listeners::{Event, Listeners, ProtocolSpec, Spec};
use crate::runtime::watch::number;

/// `PERUSE_SEND`, `PERUSE_RECV`
pub(crate) const SEND: c_int = 0;
pub(crate) const RECEIVE: c_int = 1;

fn saturated(count: usize) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Raises an event of a request.
#[inline(always)]
pub(crate) fn request(state: &mut State, request: Handle, event: Event) {
    let request = state.requests.get(request);
    if let Some(listeners) = request.listeners() {
        tell(listeners, request, event);
    }
}

#[cold]
#[inline(never)]
fn tell(listeners: &Listeners, request: &mut Request, event: Event) {
    // A blocking call that began before a tool listened has not noted its arguments.
    if listeners.wants(event) && request.shell.owner != Owner::Call {
        listeners.tell(event, number_of(request), &mut request.spec);
    }
}

/// Raises the events of a request that MPI frees. If it is complete and not persistent, its wait ends here.
#[inline(always)]
pub(crate) fn freed(request: &mut Request, is_complete: bool) {
    if let Some(listeners) = request.listeners() {
        if is_complete && !request.base().req_persistent {
            tell(listeners, request, Event::Notify);
        }
        tell(listeners, request, Event::Free);
    }
}

/// [`request`], with the listeners of its communicator at hand. Fast if the request has a number.
#[inline(always)]
pub(crate) fn told(state: &mut State, listeners: &Listeners, request: Handle, event: Event) {
    let request = state.requests.get(request);
    if request.id == 0 {
        return tell(listeners, request, event);
    }
    listeners.tell(event, request.id, &mut request.spec);
}

/// Gives a request its number for tools, and its specification.
#[inline(always)]
pub(crate) fn introduce(request: &mut Request, id: u64, spec: Spec) {
    (request.id, request.spec, request.shell.told) = (id, spec, Told::Nothing);
}

/// [`introduce`] for a request that has noted its call's arguments.
#[cold]
#[inline(never)]
fn introduce_itself(request: &mut Request, id: u64) {
    let operation = if request.core.role == Role::Receive { RECEIVE } else { SEND };
    let spec = spec(&request.call(), operation, request.core.data.length());
    (request.id, request.spec) = (id, spec);
}

/// Returns the specification of a request of `length` bytes; `operation`: [`SEND`] or [`RECEIVE`].
#[inline(always)]
pub(crate) fn spec(call: &Call, operation: c_int, length: usize) -> Spec {
    let Call { data, peer, tag, comm } = *call;
    let (buf, count, datatype) = (data.buffer(), saturated(data.count()), data.datatype().raw());
    let (context, bytes) = (comm.context(), length as u64);
    Spec { comm: comm.raw(), buf, count, datatype, peer, tag, operation, context, bytes, stamp: 0 }
}

/// Returns the specification of a message, or of a search, of bytes that are in no buffer yet.
#[inline(always)]
fn spec_of_bytes(communicator: &Communicator, (peer, tag): (i32, i32), length: usize) -> Spec {
    Spec {
        comm: communicator.comm.raw(),
        buf: null_mut(),
        count: saturated(length),
        // SAFETY: takes the address of an object that Open MPI never frees.
        datatype: unsafe { sys::ibex_byte() },
        peer,
        tag,
        operation: RECEIVE,
        context: communicator.context,
        bytes: length as u64,
        stamp: 0,
    }
}

#[inline(always)]
pub(super) fn spec_of_message(communicator: &Communicator, envelope: Envelope, length: usize) -> Spec {
    spec_of_bytes(communicator, (envelope.source(), envelope.tag()), length)
}

/// Returns the number by which tools know a request.
pub(crate) fn id(state: &mut State, request: Handle) -> u64 {
    number_of(state.requests.get(request))
}

/// [`id`]; gives a request its number if it has none.
#[inline(always)]
fn number_of(request: &mut Request) -> u64 {
    if request.id == 0 {
        introduce_itself(request, number());
    }
    request.id
}

/// Gives a send, before it begins, the number of the request whose message it carries.
pub(crate) fn set_id(state: &mut State, send: Handle, id: u64) {
    if id != 0 {
        introduce_itself(state.requests.get(send), id);
    }
}

#[inline(always)]
pub(crate) fn forget(request: &mut Request) {
    request.id = 0;
    request.shell.told = Told::Nothing;
}

/// Raises the event that the first data of a request's message is about to be sent or stored, and reports the path of
/// the data, if `how` returns it now. Does nothing for an unwatched blocking call, which gives its request back without
/// resetting it.
#[inline]
pub(crate) fn begins_by(
    state: &mut State,
    of: Handle,
    moved: Moved,
    how: impl FnOnce(&mut State) -> Option<PathTaken>,
) {
    let request = state.requests.get(of);
    if request.shell.told == Told::Nothing && request.shell.owner != Owner::Call {
        request.shell.told = Told::Begun;
        request_by(state, of, Event::XferBegin, moved, how);
    }
}

/// [`begins_by`], without a path; if a tool listens and `may_begin` returns false, raises nothing and returns false.
#[inline]
pub(crate) fn begins_if(
    state: &mut State,
    of: Handle,
    moved: Moved,
    may_begin: impl FnOnce(&mut State) -> bool,
) -> bool {
    let request = state.requests.get(of);
    if request.shell.told != Told::Nothing || request.shell.owner == Owner::Call {
        return true;
    }
    if request.listeners().is_some() && !may_begin(state) {
        return false;
    }
    begins_by(state, of, moved, |_| None);
    true
}

/// Raises the event that the adapter has the last data, or that it is stored; reports the path as [`begins_by`] does.
#[inline]
pub(crate) fn ends_by(state: &mut State, of: Handle, moved: Moved, how: impl FnOnce(&mut State) -> Option<PathTaken>) {
    let request = state.requests.get(of);
    if request.shell.told != Told::Ended && request.shell.owner != Owner::Call {
        request.shell.told = Told::Ended;
        request_by(state, of, Event::XferEnd, moved, how);
    }
}

/// [`request`]; before it, reports the path of the data, if `how` returns it.
#[inline(always)]
pub(super) fn request_by(
    state: &mut State,
    of: Handle,
    event: Event,
    moved: Moved,
    how: impl FnOnce(&mut State) -> Option<PathTaken>,
) {
    if let Some(listeners) = state.requests.get(of).listeners() {
        goes_as(state, listeners, of, how);
        tell(listeners, state.requests.get(of), event);
        told_moved(state, listeners, of, event, moved);
    }
}

/// Raises the transfer event of a step of a request, with its bytes, if a tool wants it.
#[inline(always)]
pub(crate) fn told_moved(state: &mut State, listeners: &Listeners, of: Handle, event: Event, moved: Moved) {
    let request = state.requests.get(of);
    if listeners.wants(Event::Transfer) && request.shell.owner != Owner::Call {
        cold_path();
        number_of(request);
        if let Some(step) = transfers::step(event)
            && events::interest().has(step)
        {
            transfers::tell(request, step, moved);
        }
    }
}

/// Reports the path of a request's message, if `how` returns it.
#[inline]
pub(super) fn goes(state: &mut State, of: Handle, how: impl FnOnce(&mut State) -> Option<PathTaken>) {
    if let Some(listeners) = state.requests.get(of).listeners() {
        goes_as(state, listeners, of, how);
    }
}

#[inline(always)]
fn goes_as(state: &mut State, listeners: &Listeners, of: Handle, how: impl FnOnce(&mut State) -> Option<PathTaken>) {
    if listeners.wants(Event::Protocol) && state.requests.get(of).shell.owner != Owner::Call {
        cold_path();
        let Some(path) = how(state) else { return };
        let request = state.requests.get(of);
        let bytes = match request.core.role {
            Role::Receive => request.base().req_status._ucount,
            Role::Send(_) => request.core.data.length(),
        };
        tell_path(listeners, request, bytes, path);
    }
}

#[cold]
#[inline(never)]
fn tell_path(listeners: &Listeners, request: &mut Request, bytes: usize, path: PathTaken) {
    let (id, (of, message)) = (number_of(request), request.message);
    let message = if of == id { message } else { 0 };
    let mut told = ProtocolSpec { spec: Spec { bytes: bytes as u64, ..request.spec }, message, path };
    listeners.tell_protocol(id, &mut told);
}

/// Reports the path of a message that the only port sent without a request.
#[cold]
#[inline(never)]
pub(crate) fn tell_path_at_once(pml: &Pml, listeners: &Listeners, (id, spec): (u64, &Spec), route: Route) {
    let path = of_message::eager(pml, route, spec.bytes as usize);
    listeners.tell_protocol(id, &mut ProtocolSpec { spec: *spec, message: 0, path });
}

/// Notes the message `id`, of `length` bytes, that a receive has matched, if a tool wants events that name it. Reports
/// its path, if a tool wants it and `how` returns it now.
#[inline(always)]
pub(super) fn has_message(
    state: &mut State,
    listeners: &Listeners,
    receive: Handle,
    message: (u64, usize),
    how: impl FnOnce(&mut State) -> Option<PathTaken>,
) {
    if listeners.wants(Event::Protocol) || listeners.wants(Event::Transfer) {
        note_message(state, listeners, receive, message, how);
    }
}

#[cold]
#[inline(never)]
fn note_message(
    state: &mut State,
    listeners: &Listeners,
    of: Handle,
    (id, length): (u64, usize),
    how: impl FnOnce(&mut State) -> Option<PathTaken>,
) {
    let receive = state.requests.get(of);
    if receive.shell.owner == Owner::Call {
        return;
    }
    receive.message = (number_of(receive), id);
    if listeners.wants(Event::Protocol)
        && let Some(path) = how(state)
    {
        tell_path(listeners, state.requests.get(of), length, path);
    }
}

/// Raises an event of a message with this number and length. Returns its number.
#[inline]
pub(super) fn tell_of_message(
    state: &State,
    (communicator, envelope): (&Communicator, Envelope),
    event: Event,
    (id, length): (u64, usize),
) -> u64 {
    let Some(listeners) = communicator.comm.listeners(state) else { return id };
    // A message that arrived while nobody listened has no number yet.
    let id = if id == 0 { number() } else { id };
    listeners.tell(event, id, &mut spec_of_message(communicator, envelope, length));
    id
}

/// Runs the `search` of a probe for this source and tag through the unexpected messages, and raises its events.
pub(super) fn probe<T>(
    state: &mut State,
    communicator: &Communicator,
    of: (i32, i32),
    search: impl FnOnce(&mut State) -> T,
) -> T {
    let Some(listeners) = communicator.comm.listeners(state) else { return search(state) };
    let (id, mut spec) = (number(), spec_of_bytes(communicator, of, 0));
    listeners.tell(Event::SearchUnexpectedBegin, id, &mut spec);
    let found = search(state);
    listeners.tell(Event::SearchUnexpectedEnd, id, &mut spec);
    found
}

/// Raises the events of a receive that gets the message of a matched probe.
pub(super) fn match_probed(
    state: &mut State,
    receive: Handle,
    found: &Message<Arrived>,
    how: impl FnOnce(&mut State) -> Option<PathTaken>,
) {
    let request = state.requests.get(receive);
    if let Some(listeners) = request.listeners() {
        tell(listeners, request, Event::MatchUnexpected);
        let of = (found.message.id, found.message.length());
        has_message(state, listeners, receive, of, how);
    }
}

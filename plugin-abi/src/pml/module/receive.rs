// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_recv`, `pml_irecv`, `pml_mrecv`, `pml_imrecv`: a receive takes an unexpected message, or is posted.
//!
//! Grade: hot. Threads: any. Tests: `pt2pt_matching.c` and others in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};

use engine::messenger::events;
use engine::messenger::host::{Communicators, Data};
use engine::messenger::matching::Pattern;
use engine::messenger::receive::probe;
use engine::messenger::receive::search::{self, Posting};
use ibex_ffi::openmpi::sys;

use super::probe::{Matched, Status};
use super::{Answer, Code, answer, enter, there};
use crate::pml::communicator::Comm;
use crate::pml::datatype::{Buffer, Datatype, Description};
use crate::pml::host::{finish, note};
use crate::pml::instance::{Pml, State, unwatched};
use crate::pml::progress::{leave, leave_call, poll_here, until};
use crate::pml::request::{Call, Handle, Outcome, Owner, Place, Request, Role};
use crate::pml::tools::{self, listening};
use crate::runtime::exclusive::Entered;
use crate::runtime::listeners::Event;
use crate::runtime::watch::number;

pub(crate) extern "C" fn pml_recv(
    buffer: Buffer<*mut c_void>,
    count: usize,
    datatype: Datatype,
    peer: c_int,
    tag: c_int,
    comm: Comm,
    status: Status<'_>,
) -> c_int {
    answer("pml_recv", || {
        let call = Call { data: Description::new(buffer, count, datatype), peer, tag, comm };
        match unwatched() {
            Some(pml) => receive::<false>(pml, &call, status),
            None => recv_watched(call, status),
        }
    })
}

#[cold]
#[inline(never)]
fn recv_watched(call: Call, status: Status<'_>) -> Answer {
    let ended = receive::<true>(there()?, &call, status);
    listening::returns(call.tag);
    ended
}

pub(crate) extern "C" fn pml_irecv(
    buffer: Buffer<*mut c_void>,
    count: usize,
    datatype: Datatype,
    peer: c_int,
    tag: c_int,
    comm: Comm,
    place: Place<'_>,
) -> c_int {
    answer("pml_irecv", || {
        let call = Call { data: Description::new(buffer, count, datatype), peer, tag, comm };
        match unwatched() {
            Some(pml) => receive_nonblocking::<false>(pml, &call, place),
            None => irecv_watched(call, place),
        }
    })
}

#[cold]
#[inline(never)]
fn irecv_watched(call: Call, place: Place<'_>) -> Answer {
    receive_nonblocking::<true>(there()?, &call, place)
}

/// Blocking receive. `WATCHED`: a tool may be listening to its communicator.
#[inline(always)]
fn receive<const WATCHED: bool>(pml: &Pml, call: &Call, status: Status<'_>) -> Answer {
    let mut state = enter(pml)?;
    let request = state.requests.take();
    state.requests.get(request).fill(Role::Receive, Owner::Call, call);
    let posting = begin::<WATCHED>(pml, &mut state, request, call);
    wait::<WATCHED>(pml, state, request, matches!(posting, Posting::Matched), status)
}

/// Nonblocking receive; `WATCHED` as for [`receive`].
#[inline(always)]
fn receive_nonblocking<const WATCHED: bool>(pml: &Pml, call: &Call, place: Place<'_>) -> Answer {
    let mut state = enter(pml)?;
    let request = state.requests.take();
    // Written before the PML is left, so before a callback sees the request.
    place.write(Request::as_raw(request));
    post_new::<WATCHED>(pml, &mut state, request, Owner::Mpi, call);
    leave(pml, state);
    Ok(())
}

/// Posts a new receive, or gives it its unexpected message. It may be finished when this returns.
#[inline(always)]
pub(crate) fn post_new<const WATCHED: bool>(pml: &Pml, state: &mut State, request: Handle, owner: Owner, call: &Call) {
    state.requests.get(request).fill(Role::Receive, owner, call);
    let posting = begin::<WATCHED>(pml, state, request, call);
    note_name(state, request, posting);
}

/// Posts the receive of a call, or gives it its unexpected message.
#[inline(always)]
fn begin<const WATCHED: bool>(pml: &Pml, state: &mut State, request: Handle, call: &Call) -> Posting {
    let pattern = || Pattern::new(call.peer, call.tag);
    let listeners = if WATCHED { call.comm.listeners(state) } else { None };
    let Some(listeners) = listeners else { return search::post(pml, state, request, pattern()) };
    let r = state.requests.get(request);
    if r.shell.owner == Owner::Call {
        r.shell.owner = Owner::WatchedCall;
    }
    let spec = tools::spec(call, tools::RECEIVE, r.core.data.length());
    tools::introduce(r, number(), spec);
    search::post_with_events(pml, state, request, pattern(), listeners)
}

/// Posts a receive that has noted its call, or gives it its unexpected message. It may be finished when this returns.
pub(crate) fn post(pml: &Pml, state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    let pattern = Pattern::new(r.core.peer, r.core.tag);
    let posting = match r.listeners() {
        None => search::post(pml, state, request, pattern),
        Some(listeners) => search::post_with_events(pml, state, request, pattern, listeners),
    };
    note_name(state, request, posting);
}

/// Notes the name of a receive that waits.
#[inline(always)]
fn note_name(state: &mut State, request: Handle, posting: Posting) {
    if let Posting::Waits(name) = posting {
        state.requests.core(request).posted = name;
    }
}

pub(crate) extern "C" fn pml_mrecv(
    buffer: Buffer<*mut c_void>,
    count: usize,
    datatype: Datatype,
    message: &mut Matched,
    status: Status<'_>,
) -> c_int {
    answer("pml_mrecv", || {
        let (pml, data) = (there()?, Description::new(buffer, count, datatype));
        let (state, request, comm) = receive_matched(pml, data, message, Owner::WatchedCall)?;
        let ended = wait::<true>(pml, state, request, true, status);
        comm.release();
        ended
    })
}

pub(crate) extern "C" fn pml_imrecv(
    buffer: Buffer<*mut c_void>,
    count: usize,
    datatype: Datatype,
    message: &mut Matched,
    place: Place<'_>,
) -> c_int {
    answer("pml_imrecv", || {
        let (pml, data) = (there()?, Description::new(buffer, count, datatype));
        let (state, request, comm) = receive_matched(pml, data, message, Owner::Mpi)?;
        place.write(Request::as_raw(request));
        leave(pml, state);
        comm.release();
        Ok(())
    })
}

/// Receives the message of a matched probe. Returns the request, and the message's reference to the communicator, which
/// the caller releases once it has left the PML.
pub(crate) fn receive_matched<'pml>(
    pml: &'pml Pml,
    data: Description,
    message: &mut Matched,
    owner: Owner,
) -> Result<(Entered<'pml, State>, Handle, Comm), Code> {
    let mut state = enter(pml)?;
    let (comm, handle) = message.take();
    let request = state.requests.take();
    let call = Call { data, peer: sys::MPI_ANY_SOURCE, tag: sys::MPI_ANY_TAG, comm };
    state.requests.get(request).fill(Role::Receive, owner, &call);
    probe::receive(pml, &mut *state, request, handle);
    Ok((state, request, comm))
}

/// Waits for a blocking receive to finish, and gives it back. Returns its error. `EVENTS`: raises events.
#[inline(always)]
fn wait<'pml, const EVENTS: bool>(
    pml: &'pml Pml,
    mut state: Entered<'pml, State>,
    request: Handle,
    is_matched: bool,
    status: Status<'_>,
) -> Answer {
    let is_finished = |state: &mut State| state.requests.get(request).is_finished();
    if !(is_matched && is_finished(&mut state)) {
        state = until(pml, state, is_finished, poll_here::<EVENTS>);
    }
    let r = state.requests.get(request);
    let listeners = if EVENTS { r.listeners() } else { None };
    let ended = &r.base().req_status;
    let error = ended.MPI_ERROR;
    say(status, ended);
    if EVENTS {
        if let Some(listeners) = listeners {
            events::raise_to(&mut *state, listeners, request, Event::Notify);
        }
        state.requests.core(request).watched.renew(0);
    }
    state.requests.give_back(request);
    leave_call(pml, state);
    Code::answer(error)
}

/// Fills a status in, but not its error field, which only calls for several messages set (MPI 4.1, 3.2.5).
#[inline(always)]
pub(super) fn say(status: Status<'_>, ended: &sys::ompi_status_public_t) {
    if let Some(status) = status {
        status.MPI_SOURCE = ended.MPI_SOURCE;
        status.MPI_TAG = ended.MPI_TAG;
        status._cancelled = ended._cancelled;
        status._ucount = ended._ucount;
    }
}

/// Cancels a receive of MPI's, posted or not, that has not matched, and finishes it.
pub(crate) fn cancel(state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    let name = r.core.posted;
    let Some(communicator) = r.comm().if_added() else { return };
    // If the receive matched at once, the name is from an earlier use; so this compares the request as well.
    let (queues, lengths) = state.queues(communicator);
    if queues.cancel(lengths, name, request) {
        let outcome = Outcome { source: sys::MPI_ANY_SOURCE, tag: sys::MPI_ANY_TAG, length: 0, is_truncated: false };
        events::raise(state, request, Event::RemovePosted);
        events::raise(state, request, Event::Cancel);
        let r = state.requests.get(request);
        note(r, &outcome);
        r.base().req_status._cancelled = 1;
        finish(state, request);
    }
}

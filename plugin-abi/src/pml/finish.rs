// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completes requests: [`finish`] at once, or on a chain if they have a callback. [`tell`] completes those on the chain
//! with nothing entered, because a callback may free its request, start it again, post others and wait for them.
//!
//! Called wherever a transfer ends, and by `progress` ([`tell`]). Grade: hot. Threads: the one that has entered the
//! PML. Tests: `pml/tests.rs`, and the MPI programs of `hw-tests`.

use engine::messenger::events;
use engine::messenger::host::Data;
use ibex_ffi::openmpi::sys;

use super::instance::{Pml, State};
use super::request::{Handle, Outcome, Owner, Request, Role, Transfer, release};
use crate::runtime::exclusive::Entered;
use crate::runtime::listeners::Event;

/// Writes the status of a request.
#[inline]
pub(crate) fn note(request: &mut Request, outcome: &Outcome) {
    let status = &mut request.base().req_status;
    status.MPI_SOURCE = outcome.source;
    status.MPI_TAG = outcome.tag;
    status.MPI_ERROR = if outcome.is_truncated { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS };
    status._cancelled = 0;
    status._ucount = outcome.length;
}

/// Notes, after [`note`], that data could not be unpacked: Open MPI has no memory for a convertor (for which its own
/// error is `MPI_ERR_INTERN`, too), or the convertor refuses the datatype.
#[cold]
#[inline(never)]
pub(crate) fn note_not_put(request: &mut Request) {
    let error = &mut request.base().req_status.MPI_ERROR;
    // A truncated receive keeps its error: an element that is cut in the middle cannot be unpacked either.
    if *error == sys::OPAL_SUCCESS {
        *error = sys::MPI_ERR_INTERN as i32;
    }
}

/// Finishes a request that has no transfer in progress: wakes its waiter now, or in [`tell`] if the request has a
/// callback. Only its owner uses it afterwards (P1).
#[inline]
pub(crate) fn finish(state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    if r.shell.owner == Owner::Call {
        r.set_finished(true);
    } else {
        finish_of_mpi(state, request);
    }
}

/// [`finish`], apart from the code of a watched blocking call.
#[cold]
#[inline(never)]
pub(super) fn finish_of_others(state: &mut State, request: Handle) {
    finish(state, request);
}

#[inline(never)]
fn finish_of_mpi(state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    debug_assert!(matches!(r.core.transfer, Transfer::None), "nothing is under way");
    // The copy of a buffered send raises no `Complete`: its original has raised it.
    if r.shell.attached.is_none() {
        events::request(state, request, Event::Complete);
    }
    let r = state.requests.get(request);
    if r.shell.owner == Owner::WatchedCall {
        r.set_finished(true);
        return;
    }
    if let Role::Send(_) = r.core.role {
        // Sets tag and source for sends, too: callbacks of osc/pt2pt tell the purpose of a send by its tag.
        let (source, tag, length) = (r.comm().rank(), r.core.tag, r.core.data.length());
        note(r, &Outcome { source, tag, length, is_truncated: false });
    }
    r.shell.attached = None;
    if r.shell.owner == Owner::Mpi && r.base().req_complete_cb.is_none() {
        return Request::complete(request);
    }
    r.shell.next = None;
    state.has_more = true;
    match state.finished.first {
        None => state.finished.first = Some(request),
        Some(_) => _ = state.finished.last.map(|last| state.requests.get(last).shell.next = Some(request)),
    }
    state.finished.last = Some(request);
}

/// Completes the requests on the chain, in order, with nothing entered. A callback may call this again, and wait for
/// those behind it. Before a request with a callback is complete, only the callback may free it; so the request is
/// alive until the callback returns, and afterwards if the callback returned 0.
#[cold]
#[inline(never)]
pub(crate) fn tell(pml: &Pml) {
    loop {
        let Some(mut state) = pml.enter() else { return };
        let Some(request) = state.finished.first else { return };
        let r = state.requests.get(request);
        let (next, owner) = (r.shell.next, r.shell.owner);
        // From here on, freeing the request also gives it back (`persistent.rs`).
        r.set_finished(true);
        let callback = r.base().req_complete_cb.take();
        state.finished.first = next;
        if owner == Owner::Nobody {
            give_back(state, request);
            continue;
        }
        drop(state);
        // SAFETY: P1: its status is filled in, and only this callback may free it, and then does not return 0.
        let is_taken = callback.is_some_and(|callback| unsafe { callback(Request::as_raw(request)) } != 0);
        if !is_taken && let Some(mut state) = pml.enter() {
            // A callback that was set for the request's next use: `ibex_request_complete` would call it now.
            let next = state.requests.get(request).base().req_complete_cb.take();
            // The callback returned 0, so it has not freed the request, and no other thread can now.
            Request::complete(request);
            state.requests.get(request).base().req_complete_cb = next;
        }
    }
}

/// Gives a request back that is finished or was never begun, and to which nothing refers any more (P1). Leaves the PML,
/// and then releases the request's communicator and datatype.
#[inline]
pub(crate) fn give_back(mut state: Entered<'_, State>, request: Handle) {
    let r = state.requests.get(request);
    let references = r.take_references();
    r.core.watched.renew(0);
    state.requests.give_back(request);
    drop(state);
    if let Some(references) = references {
        release(references);
    }
}

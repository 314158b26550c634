// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completes requests: [`finish`] at once, or on a chain if they have a callback. [`tell`] completes those on the chain
//! with nothing entered, because a callback may free its request, start it again, post others and wait for them.
//!
//! Called wherever a transfer ends, and by `progress` ([`tell`]). Grade: hot. Threads: the one that has entered the
//! PML. Tests: `pml/tests.rs`, and the MPI programs of `hw-tests`.

use std::ptr::{NonNull, null_mut};

use engine::messenger::host::Data;
use ibex_ffi::openmpi::sys;

use super::instance::{Chain, Pml, State};
use super::libmpi;
use super::request::{Handle, Outcome, Owner, Request, Role, Transfer};
use super::tools::watch;
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

#[inline(never)]
fn finish_of_mpi(state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    debug_assert!(matches!(r.core.transfer, Transfer::None), "nothing is under way");
    // The copy of a buffered send raises no `Complete`: its original has raised it.
    if r.shell.attached.is_null() {
        watch::request(state, request, Event::Complete);
    }
    let r = state.requests.get(request);
    if r.shell.owner == Owner::WatchedCall {
        r.set_finished(true);
        return;
    }
    if let Role::Send(_) = r.core.role {
        // SAFETY: P1: the request is not finished, so its communicator is alive.
        let source = unsafe { (*r.comm()).c_my_rank };
        // Sets tag and source for sends, too: callbacks of osc/pt2pt tell the purpose of a send by its tag.
        let outcome = Outcome { source, tag: r.core.tag, length: r.core.data.length(), is_truncated: false };
        note(r, &outcome);
    }
    if !r.shell.attached.is_null() {
        // SAFETY: Open MPI gave this memory for this message, which has been sent.
        unsafe { libmpi::mca_pml_base_bsend_request_free(r.shell.attached.cast()) };
        r.shell.attached = null_mut();
    }
    if r.shell.owner == Owner::Mpi && r.base().req_complete_cb.is_none() {
        // SAFETY: P1: not yet complete for MPI, its status filled in. Without a callback this only wakes the waiter.
        return unsafe { libmpi::ibex_request_complete(Request::as_raw(request)) };
    }
    r.shell.next = null_mut();
    state.has_more = true;
    let (request, Chain { first, last }) = (request.pointer().as_ptr(), &mut state.finished);
    if first.is_null() {
        *first = request;
    } else {
        // SAFETY: P1: `last` is on the chain `state.finished`; P3.
        unsafe { (**last).shell.next = request };
    }
    *last = request;
}

/// Completes the requests on the chain, in order, with nothing entered. A callback may call this again, and wait for
/// those behind it. Before a request with a callback is complete, only the callback may free it; so the request is
/// alive until the callback returns, and afterwards if the callback returned 0.
#[cold]
#[inline(never)]
pub(crate) fn tell(pml: &Pml) {
    loop {
        let Some(mut state) = pml.enter() else { return };
        let Some(first) = NonNull::new(state.finished.first) else { return };
        // SAFETY: P1: a request on the chain.
        let request = unsafe { Handle::new(first) };
        let r = state.requests.get(request);
        let (next, owner) = (r.shell.next, r.shell.owner);
        // From here on, freeing the request also gives it back (`persistent.rs`).
        r.set_finished(true);
        let callback = r.base().req_complete_cb.take();
        state.finished.first = next;
        if owner == Owner::Nobody {
            // SAFETY: P1: finished, freed by MPI, and no longer on the chain.
            unsafe { give_back(state, request) };
            continue;
        }
        drop(state);
        // SAFETY: P1: its status is filled in, and only this callback may free it, and then does not return 0.
        let is_taken = callback.is_some_and(|callback| unsafe { callback(Request::as_raw(request)) } != 0);
        if !is_taken && let Some(mut state) = pml.enter() {
            // A callback that was set for the request's next use: `ibex_request_complete` would call it now.
            let next = state.requests.get(request).base().req_complete_cb.take();
            // SAFETY: P1: the callback returned 0, so it has not freed the request; P3: no other thread can now.
            unsafe { libmpi::ibex_request_complete(Request::as_raw(request)) };
            state.requests.get(request).base().req_complete_cb = next;
        }
    }
}

/// Gives a request back, leaves the PML, and then releases the request's communicator and datatype, because freeing a
/// communicator may call the PML.
///
/// # Safety
/// P1: the request is finished or was never begun, and nothing refers to it any more.
#[inline]
pub(crate) unsafe fn give_back(mut state: Entered<'_, State>, request: Handle) {
    let r = state.requests.get(request);
    let references = r.shell.has_references.then(|| (r.comm(), r.core.data.description().datatype));
    if references.is_some() {
        r.shell.has_references = false;
        // SAFETY: P1: MPI has freed the request, so nobody uses Open MPI's part of it.
        unsafe { libmpi::ibex_request_fini(r.base()) };
    }
    watch::forget(r);
    // SAFETY: P1: finished or never begun, and nothing refers to it any more, as this function requires.
    unsafe { state.requests.give_back(request) };
    drop(state);
    if let Some((comm, datatype)) = references {
        // SAFETY: both references were taken when the request was made (`has_references`), and are released once.
        unsafe { libmpi::ibex_references_release(comm, datatype) };
    }
}

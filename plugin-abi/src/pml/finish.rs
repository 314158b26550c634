// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a request: it is finished inside the PML, and told of outside.
//!
//! [`finish`] completes a request, or chains it where that would call something of Open MPI's; [`tell`] is for those on
//! the chain, with nothing entered: a callback may free its request, begin it anew, post others and wait for them.
//! Grade: hot. Threads: as marked.

use std::ptr::{NonNull, null_mut};

use ibex_ffi::openmpi::sys;

use super::instance::{Chain, Pml, State};
use super::request::{Owner, Request, Role, Transfer};
use super::watch;
use crate::runtime::exclusive::Entered;
use crate::runtime::listeners::Event;

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) source: i32,
    pub(crate) tag: i32,
    /// Bytes of the message, also of those for which there was no room.
    pub(crate) length: usize,
    pub(crate) error: i32,
}

/// Notes how a request that is not finished will have ended, once its bytes are where they belong.
#[inline]
pub(crate) fn note(request: &mut Request, outcome: &Outcome) {
    let status = &mut request.base().req_status;
    status.MPI_SOURCE = outcome.source;
    status.MPI_TAG = outcome.tag;
    status.MPI_ERROR = outcome.error;
    status._cancelled = 0;
    status._ucount = outcome.length;
}

/// Notes that not all bytes of a receive could be put where they belong, after [`note`]: Open MPI has no memory for a
/// convertor, or that refuses the datatype. A lack of memory is this class of errors for all of Open MPI.
#[cold]
#[inline(never)]
pub(crate) fn note_not_put(request: &mut Request) {
    let error = &mut request.base().req_status.MPI_ERROR;
    // One that is truncated says so: of an element that is cut there may be none.
    if *error == sys::OPAL_SUCCESS {
        *error = sys::MPI_ERR_INTERN as i32;
    }
}

/// A request is finished: who waits for it is told, here where that calls nothing of Open MPI's, else by [`tell`].
///
/// # Safety
/// P1: a request that is not finished, and of which nothing is under way. This is its last use in the PML but by a
/// blocking call that owns it.
#[inline]
pub(crate) unsafe fn finish(state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: a request that is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    if r.owner == Owner::Call {
        r.set_finished(true);
    } else {
        // SAFETY: P1: a request of which nothing is under way, and which is not used in the PML after this.
        unsafe { finish_of_mpi(state, request) };
    }
}

/// # Safety
/// P1: a request that is not finished, and of which nothing is under way. This is its last use in the PML but by a
/// blocking call that owns it.
#[inline(never)]
unsafe fn finish_of_mpi(state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: a request that is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    debug_assert!(matches!(r.transfer, Transfer::None), "nothing is under way");
    if r.attached.is_null() {
        // SAFETY: P1: a request that is not finished; P3. A copy is the end of no request.
        unsafe { watch::request(r, Event::Complete) };
    }
    if r.owner == Owner::WatchedCall {
        r.convertor = None;
        r.set_finished(true);
        return;
    }
    if let Role::Send(_) = r.role {
        // SAFETY: P1: not finished, so that its communicator is alive.
        let source = unsafe { (*r.comm()).c_my_rank };
        // Also the tag and the source: callbacks of osc/pt2pt tell by the tag of a send what it was for.
        let outcome = Outcome { source, tag: r.tag, length: r.extent.length, error: sys::OPAL_SUCCESS };
        note(r, &outcome);
    }
    if !r.attached.is_null() {
        // SAFETY: memory that Open MPI gave for this message, which has gone.
        unsafe { sys::mca_pml_base_bsend_request_free(r.attached.cast()) };
        r.attached = null_mut();
    }
    r.convertor = None;
    if r.owner == Owner::Mpi && r.base().req_complete_cb.is_none() {
        // SAFETY: P1: it is not finished for MPI before this, its status filled in. Without a callback of its own that
        // wakes who waits, and calls nothing.
        return unsafe { sys::ibex_request_complete(Request::as_raw(request)) };
    }
    r.next = null_mut();
    state.has_more = true;
    let Chain { first, last } = &mut state.finished;
    if first.is_null() {
        *first = request.as_ptr();
    } else {
        // SAFETY: P1: in state.finished; P3.
        unsafe { (**last).next = request.as_ptr() };
    }
    *last = request.as_ptr();
}

/// Tells of those that are finished, one after the other; nothing is entered. A callback may come back here, and has
/// those told of that are left, so that it can wait for them.
///
/// A request with a callback is one of Open MPI's own parts', and nobody but its callback frees it before it is
/// complete. So it is there until the callback has returned, and after that if the callback has left it to be completed.
#[cold]
#[inline(never)]
pub(crate) fn tell(pml: &Pml) {
    loop {
        let Some(mut state) = pml.enter() else { return };
        let Some(request) = NonNull::new(state.finished.first) else { return };
        // SAFETY: P1: in state.finished, and nobody gives it back before it is told of; P3.
        let r = unsafe { &mut *request.as_ptr() };
        state.finished.first = r.next;
        // From here on who frees it gives it back himself.
        r.set_finished(true);
        let callback = r.base().req_complete_cb.take();
        if r.owner == Owner::Nobody {
            // SAFETY: P1: finished, freed by MPI, and off the chain.
            unsafe { give_back(state, request) };
            continue;
        }
        drop(state);
        // SAFETY: P1: its status is filled in, and only this callback frees it. It may be gone when this returns
        // anything but 0.
        let is_taken = callback.is_some_and(|callback| unsafe { callback(Request::as_raw(request)) } != 0);
        if !is_taken && let Some(_state) = pml.enter() {
            // SAFETY: P1: left to be completed, so that nobody has freed it, which takes entering the PML; P3.
            unsafe {
                let r = &mut *request.as_ptr();
                // One that the callback has set anew is for the next time; without one this calls nothing.
                let next = r.base().req_complete_cb.take();
                sys::ibex_request_complete(Request::as_raw(request));
                r.base().req_complete_cb = next;
            }
        }
    }
}

/// MPI and the PML are through with a request: it goes back, and communicator and datatype are let go. The end of the
/// former may call the PML, which is left before.
///
/// # Safety
/// P1: a request that is finished, or was never begun, and that nothing names any more.
#[inline]
pub(crate) unsafe fn give_back(mut state: Entered<'_, State>, request: NonNull<Request>) {
    // SAFETY: P1: not given back before this; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let references = r.has_references.then(|| (r.comm(), r.data.datatype));
    if references.is_some() {
        r.has_references = false;
        // SAFETY: P1: MPI has freed it.
        unsafe { sys::ibex_request_fini(r.base()) };
    }
    r.convertor = None;
    watch::forget(r);
    // SAFETY: P1: finished, or never begun, and nothing names it any more.
    unsafe { state.requests.give_back(request) };
    drop(state);
    if let Some((comm, datatype)) = references {
        // SAFETY: both were retained when the request was made (`has_references`).
        unsafe { sys::ibex_references_release(comm, datatype) };
    }
}

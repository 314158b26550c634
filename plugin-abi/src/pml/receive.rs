// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_recv`, `pml_irecv`, `pml_mrecv`, `pml_imrecv`: a receive takes an unexpected message, or is posted.
//!
//! Grade: hot. Threads: any. Tests: `pt2pt_matching.c` and others in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};

use engine::messenger::host::{Communicators, Data};
use engine::messenger::matching::{ANY_TAG, Envelope, MessageHandle, Pattern};
use engine::messenger::receive::probe;
use engine::messenger::receive::search::{self, Posting};
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::datatype::Description;
use super::finish::{finish, note};
use super::instance::{Pml, State, pml, unwatched};
use super::libmpi;
use super::progress::{leave, leave_call, poll_here, until};
use super::request::{Handle, Outcome, Owner, Request, Role};
use super::send::hold;
use super::tools::{listening, watch};
use crate::runtime::exclusive::Entered;
use crate::runtime::guard::fence;
use crate::runtime::listeners::{Event, Listeners};
use crate::runtime::watch::number;

/// A message to receive, as MPI describes it.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) data: Description,
    pub(crate) from: i32,
    pub(crate) tag: i32,
    pub(crate) comm: *mut sys::ompi_communicator_t,
}

pub(crate) unsafe extern "C" fn pml_recv(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    from: c_int,
    tag: c_int,
    comm: *mut sys::ompi_communicator_t,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    fence("pml_recv", sys::OPAL_ERROR, || {
        let wanted = Wanted { data: Description { buffer, count, datatype }, from, tag, comm };
        let Some(pml) = unwatched() else {
            // SAFETY: P4: MPI's arguments.
            return unsafe { recv_watched(wanted, status) };
        };
        // SAFETY: P4: MPI's arguments.
        unsafe { receive::<false>(pml, &wanted, status) }
    })
}

#[cold]
#[inline(never)]
unsafe fn recv_watched(wanted: Wanted, status: *mut sys::ompi_status_public_t) -> c_int {
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    // SAFETY: P4, as this function requires.
    let code = unsafe { receive::<true>(pml, &wanted, status) };
    listening::returns(wanted.tag);
    code
}

/// Blocking receive. `WATCHED`: a tool may be listening to its communicator.
#[inline(always)]
unsafe fn receive<const WATCHED: bool>(pml: &Pml, wanted: &Wanted, status: *mut sys::ompi_status_public_t) -> c_int {
    let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    let request = state.requests.take();
    let pattern = || pattern(wanted.from, wanted.tag);
    // SAFETY: P1: just taken by this call; P3; P4, as this function requires.
    let listeners = unsafe {
        fill(request, wanted, Owner::Call);
        if WATCHED { Listeners::of(wanted.comm) } else { None }
    };
    let posting = match listeners {
        None => search::post(pml, &mut *state, request, pattern()),
        Some(listeners) => {
            let r = state.requests.get(request);
            r.shell.owner = Owner::WatchedCall;
            // SAFETY: P4, as this function requires.
            unsafe { introduce(r, wanted) };
            search::post_told(pml, &mut *state, request, pattern(), listeners)
        }
    };
    // SAFETY: P1: it belongs to this call; P4, as this function requires.
    unsafe { wait::<WATCHED>(pml, state, request, matches!(posting, Posting::Matched), status) }
}

#[inline(always)]
unsafe fn introduce(request: &mut Request, wanted: &Wanted) {
    let of = (watch::RECEIVE, request.core.data.length());
    // SAFETY: P4: MPI's communicator lives.
    let spec = unsafe { watch::spec(wanted.comm, &wanted.data, (wanted.from, wanted.tag), of) };
    watch::introduce(request, number(), spec);
}

pub(crate) unsafe extern "C" fn pml_irecv(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    from: c_int,
    tag: c_int,
    comm: *mut sys::ompi_communicator_t,
    place: *mut *mut sys::ompi_request_t,
) -> c_int {
    fence("pml_irecv", sys::OPAL_ERROR, || {
        let wanted = Wanted { data: Description { buffer, count, datatype }, from, tag, comm };
        let Some(pml) = unwatched() else {
            // SAFETY: P4: MPI's arguments, and `place` is its out parameter.
            return unsafe { irecv_watched(wanted, place) };
        };
        // SAFETY: P4: MPI's arguments, and `place` is its out parameter.
        unsafe { receive_nonblocking::<false>(pml, &wanted, place) }
    })
}

#[cold]
#[inline(never)]
unsafe fn irecv_watched(wanted: Wanted, place: *mut *mut sys::ompi_request_t) -> c_int {
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    // SAFETY: P4, as this function requires.
    unsafe { receive_nonblocking::<true>(pml, &wanted, place) }
}

/// Nonblocking receive; `WATCHED` as for [`receive`].
#[inline(always)]
unsafe fn receive_nonblocking<const WATCHED: bool>(
    pml: &Pml,
    wanted: &Wanted,
    place: *mut *mut sys::ompi_request_t,
) -> c_int {
    let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    let request = state.requests.take();
    let pattern = || pattern(wanted.from, wanted.tag);
    // SAFETY: P1: just taken; P3: no other thread sees it while the PML is entered; P4, as this function requires.
    let listeners = unsafe {
        fill(request, wanted, Owner::Mpi);
        hold(state.requests.get(request));
        place.write(Request::as_raw(request));
        if WATCHED { Listeners::of(wanted.comm) } else { None }
    };
    let posting = match listeners {
        None => search::post(pml, &mut *state, request, pattern()),
        Some(listeners) => {
            // SAFETY: P4, as this function requires.
            unsafe { introduce(state.requests.get(request), wanted) };
            search::post_told(pml, &mut *state, request, pattern(), listeners)
        }
    };
    note_name(&mut state, request, posting);
    leave(pml, state);
    sys::OPAL_SUCCESS
}

pub(crate) unsafe extern "C" fn pml_mrecv(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    message: *mut *mut sys::ompi_message_t,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    fence("pml_mrecv", sys::OPAL_ERROR, || {
        let data = Description { buffer, count, datatype };
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        // SAFETY: P4: `message` is the handle of a matched probe.
        let (wanted, handle) = unsafe { of_message(data, message) };
        let request = state.requests.take();
        // SAFETY: P1: just taken by this call; P3; P4; the message holds a reference to the communicator.
        unsafe {
            fill(request, &wanted, Owner::WatchedCall);
            probe::receive(pml, &mut *state, request, handle);
            let error = wait::<true>(pml, state, request, true, status);
            // The message's reference. Nothing is entered now, so freeing the communicator may call the PML.
            libmpi::ibex_communicator_release(wanted.comm);
            error
        }
    })
}

pub(crate) unsafe extern "C" fn pml_imrecv(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    message: *mut *mut sys::ompi_message_t,
    place: *mut *mut sys::ompi_request_t,
) -> c_int {
    fence("pml_imrecv", sys::OPAL_ERROR, || {
        let data = Description { buffer, count, datatype };
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        // SAFETY: P4: `message` is the handle of a matched probe.
        let (wanted, handle) = unsafe { of_message(data, message) };
        let request = state.requests.take();
        // SAFETY: P1: just taken; P3; P4, also for `place`; the message holds a reference to the communicator.
        unsafe {
            fill(request, &wanted, Owner::Mpi);
            hold(state.requests.get(request));
            place.write(Request::as_raw(request));
            probe::receive(pml, &mut *state, request, handle);
        }
        leave(pml, state);
        // SAFETY: the message's reference, released once; the request holds its own.
        unsafe { libmpi::ibex_communicator_release(wanted.comm) };
        sys::OPAL_SUCCESS
    })
}

/// Returns the arguments of a receive for the message of a matched probe, gives the message back, and sets its handle
/// to null. The caller gets the message's reference to the communicator, to be released after the receive.
unsafe fn of_message(data: Description, message: *mut *mut sys::ompi_message_t) -> (Wanted, MessageHandle) {
    // SAFETY: P4, as this function requires.
    unsafe {
        let given = message.read();
        let (comm, bits) = ((*given).comm, (*given).req_ptr.addr() as u64);
        message.write(libmpi::ibex_message_null());
        libmpi::ibex_message_return(given);
        (Wanted { data, from: sys::MPI_ANY_SOURCE, tag: sys::MPI_ANY_TAG, comm }, MessageHandle::from_bits(bits))
    }
}

/// # Safety
/// P1: only the caller has the request; P4: `wanted` has MPI's arguments.
#[inline(always)]
pub(crate) unsafe fn fill(request: Handle, wanted: &Wanted, owner: Owner) {
    // SAFETY: P1: only the caller has it.
    let r = unsafe { &mut *request.pointer().as_ptr() };
    r.core.role = Role::Receive;
    r.shell.owner = owner;
    // SAFETY: P4: MPI's datatype lives, and MPI lends the data.
    unsafe { r.core.data.set_extent(wanted.data.extent()) };
    // Only requests that MPI or a tool sees, and convertors, use these fields.
    if owner != Owner::Call || !r.core.data.is_contiguous() {
        (r.core.peer, r.core.tag) = (wanted.from, wanted.tag);
        // SAFETY: P4: MPI lends the data.
        unsafe { r.core.data.describe(wanted.data) };
    }
    r.base().req_mpi_object.comm = wanted.comm;
    r.set_finished(false);
}

/// Posts a receive, or gives it its unexpected message. It may be finished when this returns.
pub(crate) fn post(pml: &Pml, state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    let pattern = Pattern::new(r.core.peer, r.core.tag);
    // SAFETY: P1: not finished, so its communicator lives; P3.
    let posting = match unsafe { Listeners::of(r.comm()) } {
        None => search::post(pml, state, request, pattern),
        Some(listeners) => {
            watch::id(state, request);
            search::post_told(pml, state, request, pattern, listeners)
        }
    };
    note_name(state, request, posting);
}

/// Notes the name of a receive that waits.
#[inline(always)]
pub(super) fn note_name(state: &mut State, request: Handle, posting: Posting) {
    if let Posting::Waits(name) = posting {
        state.requests.core(request).posted = name;
    }
}

/// [`Pattern::new`], which computes no masks if there are no wildcards.
#[inline(always)]
pub(super) fn pattern(from: i32, tag: i32) -> Pattern {
    // Two branches with a comparison each: one joint branch costs two more instructions.
    if from < 0 {
        std::hint::cold_path();
        return with_wildcards(from, tag);
    }
    if tag == ANY_TAG {
        std::hint::cold_path();
        return with_wildcards(from, tag);
    }
    Pattern::exact(Envelope::new(from, tag))
}

#[inline(never)]
fn with_wildcards(from: i32, tag: i32) -> Pattern {
    Pattern::new(from, tag)
}

/// Waits for a blocking receive to finish, and gives it back. Returns its error code. `TOLD`: raises events.
///
/// # Safety
/// P1: the receive belongs to this call, and its communicator lives; P4: `status` is MPI's or null.
#[inline(always)]
unsafe fn wait<'pml, const TOLD: bool>(
    pml: &'pml Pml,
    mut state: Entered<'pml, State>,
    request: Handle,
    is_matched: bool,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    let is_finished = |state: &mut State| state.requests.get(request).is_finished();
    if !(is_matched && is_finished(&mut state)) {
        state = until(pml, state, is_finished, poll_here::<TOLD>);
    }
    let r = state.requests.get(request);
    let (comm, ended) = (r.comm(), &r.base().req_status);
    let error = ended.MPI_ERROR;
    // SAFETY: P4: `status`, as this function requires.
    unsafe { say(status, ended) };
    if TOLD {
        // SAFETY: P1: its communicator lives, as this function requires; P3.
        if let Some(listeners) = unsafe { Listeners::of(comm) } {
            watch::told(&mut state, listeners, request, Event::Notify);
        }
        watch::forget(state.requests.get(request));
    }
    // SAFETY: P1: finished, and it belongs to this call.
    unsafe { state.requests.give_back(request) };
    leave_call(pml, state);
    error
}

/// Fills a status in, but not its error field, which only calls for several messages set (MPI 4.1, 3.2.5).
pub(crate) unsafe fn say(status: *mut sys::ompi_status_public_t, ended: &sys::ompi_status_public_t) {
    // SAFETY: P4: `status` is null or MPI's.
    if let Some(status) = unsafe { status.as_mut() } {
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
    // SAFETY: P1: the request's reference keeps Open MPI's communicator alive; P3.
    let Some(communicator) = (unsafe { Communicator::if_added(r.comm()) }) else { return };
    let (queues, lengths) = state.queues(communicator);
    if queues.cancel(lengths, name, request) {
        let outcome = Outcome { source: sys::MPI_ANY_SOURCE, tag: sys::MPI_ANY_TAG, length: 0, is_truncated: false };
        watch::request(state, request, Event::RemovePosted);
        watch::request(state, request, Event::Cancel);
        let r = state.requests.get(request);
        note(r, &outcome);
        r.base().req_status._cancelled = 1;
        finish(state, request);
    }
}

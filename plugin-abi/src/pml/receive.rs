// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_recv`, `pml_irecv`, `pml_mrecv`, `pml_imrecv`: a receive meets its message, or is posted.
//!
//! A blocking receive stays inside the PML while it polls, and leaves it between rounds. Grade: hot. Threads: any.
//! Tests: `pt2pt_matching.c` and others in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use engine::matching::{ANY_TAG, Envelope, Message, MessageHandle, Pattern};
use ibex_ffi::openmpi::sys;

use super::arrived::Arrived;
use super::communicator::Communicator;
use super::datatype::Data;
use super::finish::{self, finish};
use super::instance::{Pml, State, pml, unwatched};
use super::progress::{leave, leave_call, poll_here, until};
use super::request::{Owner, Request, Role};
use super::send::hold;
use super::{accept, flow, listening, passage, watch};
use crate::runtime::exclusive::Entered;
use crate::runtime::guard::fence;
use crate::runtime::listeners::{Event, Listeners};
use crate::runtime::watch::number;

/// A message that is wanted, as MPI describes it.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) data: Data,
    pub(crate) from: i32,
    pub(crate) tag: i32,
    pub(crate) comm: *mut sys::ompi_communicator_t,
}

/// `pml_recv`.
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
        let wanted = Wanted { data: Data { buffer, count, datatype }, from, tag, comm };
        let Some(pml) = unwatched() else {
            // SAFETY: P4.
            return unsafe { recv_watched(buffer, count, datatype, from, tag, comm, status) };
        };
        // SAFETY: P4.
        unsafe { receive::<false>(pml, &wanted, status) }
    })
}

/// [`pml_recv`] while a tool listens.
///
/// # Safety
/// P4.
#[cold]
#[inline(never)]
unsafe extern "C" fn recv_watched(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    from: c_int,
    tag: c_int,
    comm: *mut sys::ompi_communicator_t,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    let wanted = Wanted { data: Data { buffer, count, datatype }, from, tag, comm };
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    // SAFETY: P4.
    let code = unsafe { receive::<true>(pml, &wanted, status) };
    listening::returns(tag);
    code
}

/// A blocking receive, to whose communicator a tool may be listening if `WATCHED`.
///
/// # Safety
/// P4.
#[inline(always)]
unsafe fn receive<const WATCHED: bool>(pml: &Pml, wanted: &Wanted, status: *mut sys::ompi_status_public_t) -> c_int {
    let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    let request = state.requests.take();
    let pattern = || pattern(wanted.from, wanted.tag);
    // SAFETY: P1: just taken, this call's own; P3; P4.
    unsafe {
        fill(request, wanted, Owner::Call);
        let listeners = if WATCHED { Listeners::of(wanted.comm) } else { None };
        let posting = match listeners {
            None => post_as(pml, &mut state, request, pattern()),
            Some(listeners) => {
                (*request.as_ptr()).owner = Owner::WatchedCall;
                introduce(request, wanted);
                post_watched(pml, &mut state, request, pattern(), listeners)
            }
        };
        wait::<WATCHED>(pml, state, request, matches!(posting, Posting::Matched), status)
    }
}

/// Tools know a receive from now on.
///
/// # Safety
/// P1: a receive that is filled in with `wanted`, the caller's alone; P4.
#[inline(always)]
unsafe fn introduce(request: NonNull<Request>, wanted: &Wanted) {
    // SAFETY: P1: the caller's alone; P4: the communicator.
    unsafe {
        let r = &mut *request.as_ptr();
        let of = (watch::RECEIVE, r.extent.length);
        let spec = watch::spec(wanted.comm, &wanted.data, (wanted.from, wanted.tag), of);
        watch::introduce(r, number(), spec);
    }
}

/// `pml_irecv`.
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
        let wanted = Wanted { data: Data { buffer, count, datatype }, from, tag, comm };
        let Some(pml) = unwatched() else {
            // SAFETY: P4; `place` is the out parameter.
            return unsafe { irecv_watched(buffer, count, datatype, from, tag, comm, place) };
        };
        // SAFETY: P4; `place` is the out parameter.
        unsafe { receive_nonblocking::<false>(pml, &wanted, place) }
    })
}

/// [`pml_irecv`] while a tool listens.
///
/// # Safety
/// P4; `place` is the out parameter.
#[cold]
#[inline(never)]
unsafe extern "C" fn irecv_watched(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    from: c_int,
    tag: c_int,
    comm: *mut sys::ompi_communicator_t,
    place: *mut *mut sys::ompi_request_t,
) -> c_int {
    let wanted = Wanted { data: Data { buffer, count, datatype }, from, tag, comm };
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    // SAFETY: P4; `place` is the out parameter.
    unsafe { receive_nonblocking::<true>(pml, &wanted, place) }
}

/// A receive that MPI holds, to whose communicator a tool may be listening if `WATCHED`.
///
/// # Safety
/// P4; `place` is the out parameter.
#[inline(always)]
unsafe fn receive_nonblocking<const WATCHED: bool>(
    pml: &Pml,
    wanted: &Wanted,
    place: *mut *mut sys::ompi_request_t,
) -> c_int {
    let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    let request = state.requests.take();
    let pattern = || pattern(wanted.from, wanted.tag);
    // SAFETY: P1: just taken; P3: nobody else sees it while the PML is entered; P4; `place` is the out parameter.
    unsafe {
        fill(request, wanted, Owner::Mpi);
        hold(&mut *request.as_ptr());
        place.write(Request::as_raw(request));
        let listeners = if WATCHED { Listeners::of(wanted.comm) } else { None };
        let posting = match listeners {
            None => post_as(pml, &mut state, request, pattern()),
            Some(listeners) => {
                introduce(request, wanted);
                post_watched(pml, &mut state, request, pattern(), listeners)
            }
        };
        if let Posting::Waits(name) = posting {
            (*request.as_ptr()).posted = name;
        }
    }
    leave(pml, state);
    sys::OPAL_SUCCESS
}

/// `pml_mrecv`.
pub(crate) unsafe extern "C" fn pml_mrecv(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    message: *mut *mut sys::ompi_message_t,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    fence("pml_mrecv", sys::OPAL_ERROR, || {
        let data = Data { buffer, count, datatype };
        // SAFETY: P4: a message of a matched probe.
        let (wanted, handle) = unsafe { of_message(data, message) };
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        let request = state.requests.take();
        // SAFETY: P1: just taken, this call's own; P3; P4; the message has a reference to the communicator.
        unsafe {
            fill(request, &wanted, Owner::WatchedCall);
            take(pml, &mut state, request, handle);
            let error = wait::<true>(pml, state, request, true, status);
            // That reference; nothing is entered, and the request is given back.
            sys::ibex_communicator_release(wanted.comm);
            error
        }
    })
}

/// `pml_imrecv`.
pub(crate) unsafe extern "C" fn pml_imrecv(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    message: *mut *mut sys::ompi_message_t,
    place: *mut *mut sys::ompi_request_t,
) -> c_int {
    fence("pml_imrecv", sys::OPAL_ERROR, || {
        let data = Data { buffer, count, datatype };
        // SAFETY: P4: a message of a matched probe.
        let (wanted, handle) = unsafe { of_message(data, message) };
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        let request = state.requests.take();
        // SAFETY: P1: just taken; P3; P4, also `place`; the message has a reference to the communicator.
        unsafe {
            fill(request, &wanted, Owner::Mpi);
            hold(&mut *request.as_ptr());
            place.write(Request::as_raw(request));
            take(pml, &mut state, request, handle);
        }
        leave(pml, state);
        // SAFETY: the message's reference; the request has had one of its own since.
        unsafe { sys::ibex_communicator_release(wanted.comm) };
        sys::OPAL_SUCCESS
    })
}

/// What a message of a matched probe is received as; the message itself is given back, and its handle made null. Its
/// reference to the communicator is the caller's, to be released when the receive has ended or has one of its own.
///
/// # Safety
/// P4: `message` is a handle of a message that `probe` made.
unsafe fn of_message(data: Data, message: *mut *mut sys::ompi_message_t) -> (Wanted, MessageHandle) {
    // SAFETY: P4: a handle of a message that `probe` made.
    unsafe {
        let given = message.read();
        let (comm, bits) = ((*given).comm, (*given).req_ptr.addr() as u64);
        message.write(sys::ibex_message_null());
        sys::ibex_message_return(given);
        (Wanted { data, from: sys::MPI_ANY_SOURCE, tag: sys::MPI_ANY_TAG, comm }, MessageHandle::from_bits(bits))
    }
}

/// Fills a request in, not posted.
///
/// # Safety
/// P1: the request is the caller's alone; P4.
#[inline(always)]
pub(crate) unsafe fn fill(request: NonNull<Request>, wanted: &Wanted, owner: Owner) {
    // SAFETY: P1: the caller's alone.
    let r = unsafe { &mut *request.as_ptr() };
    r.role = Role::Receive;
    r.owner = owner;
    // SAFETY: P4: the datatype.
    r.extent = unsafe { wanted.data.extent() };
    // What only a request that MPI holds is asked for, or a convertor.
    if owner != Owner::Call || r.extent.start.is_null() {
        (r.peer, r.tag, r.data) = (wanted.from, wanted.tag, wanted.data);
    }
    r.base().req_mpi_object.comm = wanted.comm;
    r.set_finished(false);
}

/// Posts a receive: it has its message at once, or waits. It may be finished when this returns.
///
/// # Safety
/// P1: a receive that is filled in, and the caller's alone until now.
pub(crate) unsafe fn post(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: filled in, and the caller's alone; P3: nobody else sees it while the PML is entered.
    unsafe {
        let (peer, tag, comm) = ((*request.as_ptr()).peer, (*request.as_ptr()).tag, (*request.as_ptr()).comm());
        let pattern = Pattern::new(peer, tag);
        let posting = match Listeners::of(comm) {
            None => post_as(pml, state, request, pattern),
            Some(listeners) => {
                watch::id(request);
                post_watched(pml, state, request, pattern, listeners)
            }
        };
        if let Posting::Waits(name) = posting {
            (*request.as_ptr()).posted = name;
        }
    }
}

/// What became of a receive.
enum Posting {
    /// It waits, and is cancelled by this name.
    Waits(u64),
    /// It was matched, and may be finished, or gone.
    Matched,
}

/// As [`Pattern::new`]; without a wildcard that is known without working out masks.
#[inline(always)]
fn pattern(from: i32, tag: i32) -> Pattern {
    // Two branches, each of a comparison: joined they cost two instructions more.
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

/// # Safety
/// P1: a receive as for [`post`].
#[inline(always)]
unsafe fn post_as(pml: &Pml, state: &mut State, request: NonNull<Request>, pattern: Pattern) -> Posting {
    // SAFETY: P1: the caller's alone, of a communicator that lives; P3.
    unsafe {
        let communicator = Communicator::of((*request.as_ptr()).comm());
        if communicator.queues().unexpected() > 0 {
            return post_after_search(pml, state, request, communicator, pattern);
        }
        Posting::Waits(communicator.post(pattern, request))
    }
}

/// # Safety
/// P1: a receive as for [`post`], of this communicator.
#[inline(never)]
unsafe fn post_after_search(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    communicator: &Communicator,
    pattern: Pattern,
) -> Posting {
    // SAFETY: P1: a receive of this communicator; P3.
    unsafe {
        let Some(message) = communicator.take_unexpected(pattern) else {
            flow::found_nothing(pml, state, communicator.context);
            return Posting::Waits(communicator.post(pattern, request));
        };
        accept::unexpected(pml, state, request, message.envelope, message.message);
    }
    Posting::Matched
}

/// [`post_as`] of a receive to whose communicator a tool listens, and which has a number.
///
/// # Safety
/// P1: a receive as for [`post`], of the communicator of these listeners.
#[inline(always)]
unsafe fn post_watched(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    pattern: Pattern,
    listeners: &Listeners,
) -> Posting {
    // SAFETY: P1: the caller's alone, of a communicator that lives; P3.
    unsafe {
        let r = &mut *request.as_ptr();
        let communicator = Communicator::of(r.comm());
        watch::told(listeners, r, Event::Activate);
        let is_any = communicator.queues().unexpected() > 0;
        let how = |receive: &Request, found: &Message<Arrived>| {
            passage::came(pml, state, (communicator, found.envelope), &found.message, receive)
        };
        let Some(message) = watch::take_unexpected(listeners, communicator, r, pattern, how) else {
            if is_any {
                flow::found_nothing(pml, state, communicator.context);
            }
            let name = communicator.post_watched(pattern, request);
            watch::told(listeners, &mut *request.as_ptr(), Event::InsertPosted);
            return Posting::Waits(name);
        };
        accept::unexpected(pml, state, request, message.envelope, message.message);
        Posting::Matched
    }
}

/// Gives a receive the message of a matched probe.
///
/// # Safety
/// P1: a receive as for [`post`].
unsafe fn take(pml: &Pml, state: &mut State, request: NonNull<Request>, handle: MessageHandle) {
    // SAFETY: P1: the caller's alone, of a communicator that lives, with nothing under way; P3.
    unsafe {
        let comm = (*request.as_ptr()).comm();
        let queues = Communicator::of(comm).queues();
        match queues.take(handle) {
            Some(message) => {
                let r = &mut *request.as_ptr();
                (r.peer, r.tag) = (message.envelope.source(), message.envelope.tag());
                watch::request(r, Event::Activate);
                let communicator = Communicator::of(comm);
                watch::match_probed(r, &message, |receive, found| {
                    passage::came(pml, state, (communicator, found.envelope), &found.message, receive)
                });
                accept::unexpected(pml, state, request, message.envelope, message.message);
            }
            // Received before, which MPI forbids.
            None => finish(state, request),
        }
    }
}

/// Waits for a blocking receive, of which tools are told if `TOLD`, which `is_matched` or is not yet, and says how it
/// ended.
///
/// # Safety
/// P1: the receive is the call's own, and its communicator lives; P4: `status` is MPI's.
#[inline(always)]
unsafe fn wait<'pml, const TOLD: bool>(
    pml: &'pml Pml,
    mut state: Entered<'pml, State>,
    request: NonNull<Request>,
    is_matched: bool,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    // SAFETY: P1: the call's own; P3.
    let is_finished = || unsafe { request.as_ref() }.is_finished();
    if !(is_matched && is_finished()) {
        state = until(pml, state, is_finished, poll_here::<TOLD>);
    }
    // SAFETY: P1: finished, and the call's own; P3; its communicator lives; P4: `status`.
    let error = unsafe {
        let ended = &(*request.as_ptr()).base().req_status;
        let error = ended.MPI_ERROR;
        say(status, ended);
        if TOLD {
            let r = &mut *request.as_ptr();
            if let Some(listeners) = Listeners::of(r.comm()) {
                watch::told(listeners, r, Event::Notify);
            }
            watch::forget(r);
        }
        state.requests.give_back(request);
        error
    };
    leave_call(pml, state);
    error
}

/// Fills a status in, but for the error, which a call of one message leaves as it was.
///
/// # Safety
/// P4: `status` is null or MPI's.
pub(crate) unsafe fn say(status: *mut sys::ompi_status_public_t, ended: &sys::ompi_status_public_t) {
    // SAFETY: P4: null or MPI's.
    if let Some(status) = unsafe { status.as_mut() } {
        status.MPI_SOURCE = ended.MPI_SOURCE;
        status.MPI_TAG = ended.MPI_TAG;
        status._cancelled = ended._cancelled;
        status._ucount = ended._ucount;
    }
}

/// Takes a receive back that nothing has come for: it ends as cancelled.
///
/// # Safety
/// P1: a receive that MPI has, posted or not any more.
pub(crate) unsafe fn cancel(state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: MPI has it; P3.
    let r = unsafe { &mut *request.as_ptr() };
    // SAFETY: the communicator lives, as the request has a reference.
    if unsafe { (*r.comm()).c_pml_comm.is_null() } {
        return;
    }
    // SAFETY: P3; the communicator is the PML's still. One that was matched at once has a name of an earlier use of the
    // request, which is compared as well.
    if unsafe { Communicator::of(r.comm()).cancel(r.posted, request) } {
        let outcome =
            finish::Outcome { source: sys::MPI_ANY_SOURCE, tag: sys::MPI_ANY_TAG, length: 0, error: sys::OPAL_SUCCESS };
        // SAFETY: P1: in no queue any more, and not finished; P3.
        unsafe {
            watch::request(r, Event::RemovePosted);
            watch::request(r, Event::Cancel);
            finish::note(r, &outcome);
            r.base().req_status._cancelled = 1;
            finish(state, request);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_recv`, `pml_irecv`, `pml_mrecv`, `pml_imrecv`: a receive meets its message, or is posted.
//!
//! A blocking receive stays inside the PML while it polls, and leaves it between rounds. Grade: hot. Threads: any.
//! Tests: `pt2pt_matching.c` and others in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use engine::matching::{ANY_TAG, Envelope, Message, MessageHandle, Pattern};
use ibex_ffi::openmpi::sys;

use super::accept;
use super::arrived::Arrived;
use super::communicator::Communicator;
use super::datatype::Data;
use super::finish::{self, finish};
use super::flow;
use super::instance::{Pml, State, pml, unwatched};
use super::progress::{Idle, leave, leave_call, poll_here};
use super::request::{Owner, Request, Role};
use super::send::hold;
use super::{passage, returning, watch};
use crate::runtime::exclusive::Entered;
use crate::runtime::guard::fence;
use crate::runtime::listeners::{Event, Listeners};

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
            // SAFETY: MPI's arguments.
            return unsafe { recv_watched(buffer, count, datatype, from, tag, comm, status) };
        };
        // SAFETY: MPI's arguments, which libmpi has checked.
        unsafe { receive::<false>(pml, &wanted, status) }
    })
}

/// [`pml_recv`] while a tool listens.
///
/// # Safety
/// MPI's arguments.
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
    // SAFETY: this function's rule.
    let code = unsafe { receive::<true>(pml, &wanted, status) };
    returning::returns(tag);
    code
}

/// A blocking receive, to whose communicator a tool may be listening if `WATCHED`.
///
/// # Safety
/// MPI's arguments.
#[inline(always)]
unsafe fn receive<const WATCHED: bool>(pml: &Pml, wanted: &Wanted, status: *mut sys::ompi_status_public_t) -> c_int {
    let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    let request = state.requests.take();
    let pattern = || pattern(wanted.from, wanted.tag);
    // SAFETY: this function's rule; just taken; the PML is entered; a blocking call's own.
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
/// A receive that is filled in, the caller's alone.
#[inline(always)]
unsafe fn introduce(request: NonNull<Request>, wanted: &Wanted) {
    // SAFETY: this function's rule.
    let r = unsafe { &mut *request.as_ptr() };
    let of = (watch::RECEIVE, r.extent.length);
    // SAFETY: as above.
    let spec = unsafe { watch::spec(wanted.comm, &wanted.data, (wanted.from, wanted.tag), of) };
    watch::introduce(r, watch::name(), spec);
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
            // SAFETY: MPI's arguments.
            return unsafe { irecv_watched(buffer, count, datatype, from, tag, comm, place) };
        };
        // SAFETY: MPI's arguments, which libmpi has checked; the out parameter.
        unsafe { receive_nonblocking::<false>(pml, &wanted, place) }
    })
}

/// [`pml_irecv`] while a tool listens.
///
/// # Safety
/// MPI's arguments.
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
    // SAFETY: this function's rule.
    unsafe { receive_nonblocking::<true>(pml, &wanted, place) }
}

/// A receive that MPI holds, to whose communicator a tool may be listening if `WATCHED`.
///
/// # Safety
/// MPI's arguments; `place` is the out parameter.
#[inline(always)]
unsafe fn receive_nonblocking<const WATCHED: bool>(
    pml: &Pml,
    wanted: &Wanted,
    place: *mut *mut sys::ompi_request_t,
) -> c_int {
    let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    let request = state.requests.take();
    let pattern = || pattern(wanted.from, wanted.tag);
    // SAFETY: this function's rule; just taken. Nobody else sees it while the PML is entered.
    unsafe {
        fill(request, wanted, Owner::Mpi);
        hold(request);
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
        // SAFETY: MPI's arguments, which libmpi has checked.
        let (wanted, handle) = unsafe { of_message(data, message) };
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        let request = state.requests.take();
        // SAFETY: as above; just taken.
        unsafe { fill(request, &wanted, Owner::WatchedCall) };
        // SAFETY: just filled in.
        unsafe { take(pml, &mut state, request, handle) };
        // SAFETY: a blocking call's own.
        let error = unsafe { wait::<true>(pml, state, request, true, status) };
        // SAFETY: the message's reference; nothing is entered, and the request is given back.
        unsafe { sys::ibex_communicator_release(wanted.comm) };
        error
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
        // SAFETY: MPI's arguments, which libmpi has checked.
        let (wanted, handle) = unsafe { of_message(data, message) };
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        let request = state.requests.take();
        // SAFETY: as above; just taken; the out parameter.
        unsafe {
            fill(request, &wanted, Owner::Mpi);
            hold(request);
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
/// `message` is a handle of a message that `probe` made.
unsafe fn of_message(data: Data, message: *mut *mut sys::ompi_message_t) -> (Wanted, MessageHandle) {
    // SAFETY: this function's rule.
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
/// MPI's arguments; the request is the caller's alone.
#[inline(always)]
pub(crate) unsafe fn fill(request: NonNull<Request>, wanted: &Wanted, owner: Owner) {
    // SAFETY: this function's rule.
    let r = unsafe { &mut *request.as_ptr() };
    r.role = Role::Receive;
    r.owner = owner;
    // SAFETY: this function's rule.
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
/// A receive of the PML's that is filled in, and the caller's alone until now.
pub(crate) unsafe fn post(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: this function's rule.
    let (peer, tag, comm) = unsafe { ((*request.as_ptr()).peer, (*request.as_ptr()).tag, (*request.as_ptr()).comm()) };
    let pattern = Pattern::new(peer, tag);
    // SAFETY: as above; the PML is entered.
    let posting = match unsafe { Listeners::of(comm) } {
        // SAFETY: as above.
        None => unsafe { post_as(pml, state, request, pattern) },
        // SAFETY: as above.
        Some(listeners) => unsafe {
            watch::id(request);
            post_watched(pml, state, request, pattern, listeners)
        },
    };
    if let Posting::Waits(name) = posting {
        // SAFETY: as above; nobody else sees it while the PML is entered.
        unsafe { (*request.as_ptr()).posted = name };
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
/// As for [`post`].
#[inline(always)]
unsafe fn post_as(pml: &Pml, state: &mut State, request: NonNull<Request>, pattern: Pattern) -> Posting {
    // SAFETY: this function's rule; a live communicator.
    let communicator = unsafe { Communicator::of((*request.as_ptr()).comm()) };
    // SAFETY: the PML is entered.
    if unsafe { communicator.queues() }.unexpected() > 0 {
        // SAFETY: this function's rule.
        return unsafe { post_after_search(pml, state, request, communicator, pattern) };
    }
    // SAFETY: the PML is entered.
    Posting::Waits(unsafe { communicator.post(pattern, request) })
}

/// # Safety
/// As for [`post`].
#[inline(never)]
unsafe fn post_after_search(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    communicator: &Communicator,
    pattern: Pattern,
) -> Posting {
    // SAFETY: the PML is entered.
    let found = unsafe { communicator.take_unexpected(pattern) };
    let Some(message) = found else {
        flow::found_nothing(pml, state, communicator.context);
        // SAFETY: the PML is entered.
        return Posting::Waits(unsafe { communicator.post(pattern, request) });
    };
    // SAFETY: matched.
    unsafe { accept::unexpected(pml, state, request, message.envelope, message.message) };
    Posting::Matched
}

/// [`post_as`] of a receive to whose communicator a tool listens, and which has a number.
///
/// # Safety
/// As for [`post`].
#[inline(always)]
unsafe fn post_watched(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    pattern: Pattern,
    listeners: &Listeners,
) -> Posting {
    // SAFETY: this function's rule; the PML is entered.
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
/// As for [`post`].
unsafe fn take(pml: &Pml, state: &mut State, request: NonNull<Request>, handle: MessageHandle) {
    // SAFETY: this function's rule.
    let comm = unsafe { (*request.as_ptr()).comm() };
    // SAFETY: a live communicator; the PML is entered.
    let queues = unsafe { Communicator::of(comm).queues() };
    match queues.take(handle) {
        // SAFETY: matched.
        Some(message) => unsafe {
            let r = &mut *request.as_ptr();
            (r.peer, r.tag) = (message.envelope.source(), message.envelope.tag());
            watch::request(r, Event::Activate);
            let communicator = Communicator::of(comm);
            watch::match_probed(r, &message, |receive, found| {
                passage::came(pml, state, (communicator, found.envelope), &found.message, receive)
            });
            accept::unexpected(pml, state, request, message.envelope, message.message);
        },
        // Received before, which MPI forbids.
        // SAFETY: nothing of it is under way.
        None => unsafe { finish(state, request) },
    }
}

/// Waits for a blocking receive, of which tools are told if `TOLD`, which `is_matched` or is not yet, and says how it
/// ended.
///
/// # Safety
/// The receive is the caller's own; `status` is MPI's.
#[inline(always)]
unsafe fn wait<'pml, const TOLD: bool>(
    pml: &'pml Pml,
    mut state: Entered<'pml, State>,
    request: NonNull<Request>,
    is_matched: bool,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    // SAFETY: this function's rule.
    let is_finished = || unsafe { request.as_ref() }.is_finished();
    if !(is_matched && is_finished()) {
        let mut idle = Idle::new();
        loop {
            let count = poll_here::<TOLD>(pml, &mut state);
            if is_finished() {
                break;
            }
            leave_call(pml, state);
            if count == 0 {
                idle.nothing_happened();
            }
            // It was entered by this call before.
            state = pml.enter().expect("nothing calls back from inside");
            if is_finished() {
                break;
            }
        }
    }
    // SAFETY: this function's rule.
    let ended = unsafe { &(*request.as_ptr()).base().req_status };
    let error = ended.MPI_ERROR;
    // SAFETY: this function's rule.
    unsafe { say(status, ended) };
    if TOLD {
        // SAFETY: this function's rule.
        let r = unsafe { &mut *request.as_ptr() };
        // SAFETY: the PML is entered.
        if let Some(listeners) = unsafe { Listeners::of(r.comm()) } {
            // SAFETY: as above.
            unsafe { watch::told(listeners, r, Event::Notify) };
        }
        watch::forget(r);
    }
    // SAFETY: finished, and the caller's own.
    unsafe { state.requests.give_back(request) };
    leave_call(pml, state);
    error
}

/// Fills a status in, but for the error, which a call of one message leaves as it was.
///
/// # Safety
/// `status` is null or MPI's.
pub(crate) unsafe fn say(status: *mut sys::ompi_status_public_t, ended: &sys::ompi_status_public_t) {
    // SAFETY: this function's rule.
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
/// A receive of the PML's that was posted.
pub(crate) unsafe fn cancel(state: &mut State, request: NonNull<Request>) {
    // SAFETY: this function's rule.
    let r = unsafe { &mut *request.as_ptr() };
    // SAFETY: the communicator is alive, as the request has a reference.
    if unsafe { (*r.comm()).c_pml_comm.is_null() } {
        return;
    }
    // SAFETY: as above; the PML is entered.
    if unsafe { Communicator::of(r.comm()).cancel(r.posted, request) } {
        let outcome =
            finish::Outcome { source: sys::MPI_ANY_SOURCE, tag: sys::MPI_ANY_TAG, length: 0, error: sys::OPAL_SUCCESS };
        // SAFETY: it is in no queue any more.
        unsafe {
            watch::request(r, Event::RemovePosted);
            finish::note(request, &outcome);
            r.base().req_status._cancelled = 1;
            finish(state, request);
        }
    }
}

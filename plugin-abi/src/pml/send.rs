// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_send` and `pml_isend`: [`at_once`] sends a short contiguous message, [`copied_at_once`] a longer one, if they
//! can; any other message has a request, and `engine::messenger::send` sends it.
//!
//! A blocking send returns when the adapter has the message, because its caller may stay away from MPI. Grade: hot.
//! Threads: any. Tests: `pt2pt_modes.c` and others in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use engine::messenger::header::MAX_SIZE;
use engine::messenger::host::{Data, Host};
use engine::messenger::route::Route;
use engine::{events, messenger};
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::datatype::{Description, Extent, UserData};
use super::instance::{Pml, State, pml, unwatched};
use super::ports::{rails, transmit};
use super::progress::{leave, leave_call, poll, until};
use super::request::{Handle, Mode, Owner, Request, Role, Told};
use super::tools::{listening, path_taken, transfers, watch};
use super::{finish, libmpi};
use crate::runtime::device::Port;
use crate::runtime::exclusive::Entered;
use crate::runtime::guard::fence;
use crate::runtime::listeners::{Event, Listeners, Spec};
use crate::runtime::variables::now;
use crate::runtime::watch::number;

/// A message to send, as MPI describes it.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing {
    pub(crate) data: Description,
    pub(crate) to: i32,
    pub(crate) tag: i32,
    pub(crate) comm: *mut sys::ompi_communicator_t,
}

#[inline]
pub(crate) fn mode_of(mode: sys::mca_pml_base_send_mode_t) -> Mode {
    match mode {
        sys::MCA_PML_BASE_SEND_SYNCHRONOUS => Mode::Synchronous,
        sys::MCA_PML_BASE_SEND_BUFFERED => Mode::Buffered,
        _ => Mode::Standard,
    }
}

pub(crate) unsafe extern "C" fn pml_send(
    buffer: *const c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    to: c_int,
    tag: c_int,
    mode: sys::mca_pml_base_send_mode_t,
    comm: *mut sys::ompi_communicator_t,
) -> c_int {
    fence("pml_send", sys::OPAL_ERROR, || {
        let outgoing = Outgoing { data: Description { buffer: buffer.cast_mut(), count, datatype }, to, tag, comm };
        // SAFETY: P4: MPI's arguments.
        unsafe {
            if mode >= sys::MCA_PML_BASE_SEND_READY {
                let extent = outgoing.data.extent();
                if at_once::<true>(&outgoing, extent) || copied_at_once(&outgoing, extent) {
                    return sys::OPAL_SUCCESS;
                }
            }
            send_blocking(&outgoing, mode_of(mode))
        }
    })
}

pub(crate) unsafe extern "C" fn pml_isend(
    buffer: *const c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    to: c_int,
    tag: c_int,
    mode: sys::mca_pml_base_send_mode_t,
    comm: *mut sys::ompi_communicator_t,
    request: *mut *mut sys::ompi_request_t,
) -> c_int {
    fence("pml_isend", sys::OPAL_ERROR, || {
        let outgoing = Outgoing { data: Description { buffer: buffer.cast_mut(), count, datatype }, to, tag, comm };
        // SAFETY: P4: MPI's arguments, and `request` is its out parameter.
        unsafe {
            if mode >= sys::MCA_PML_BASE_SEND_READY {
                let extent = outgoing.data.extent();
                if at_once::<false>(&outgoing, extent) || copied_at_once(&outgoing, extent) {
                    request.write(libmpi::ibex_request_empty());
                    return sys::OPAL_SUCCESS;
                }
            }
            send_nonblocking(&outgoing, mode_of(mode), request)
        }
    })
}

/// Sends a short contiguous message inside the work request, without entering the PML, if that can be done now. A
/// `BLOCKING` call has a second short path while a tool listens.
#[inline(always)]
pub(super) unsafe fn at_once<const BLOCKING: bool>(outgoing: &Outgoing, extent: Extent) -> bool {
    if extent.start.is_null() {
        return false;
    }
    // SAFETY: P4: MPI's communicator.
    let communicator = unsafe { Communicator::of(outgoing.comm) };
    let route = communicator.short_cut(outgoing.to);
    let Some(mut port) = communicator.enter_first(route) else {
        // SAFETY: P4, as this function requires.
        return unsafe { at_once_otherwise::<BLOCKING>(outgoing, extent) };
    };
    let header = communicator.sender.header(outgoing.tag);
    // SAFETY: P2: the data may be read until the call returns.
    unsafe { transmit::inline(&mut port, route, &header, extent) }
}

/// [`at_once`] by shared memory or by one port of several, or while a tool listens. Looks the route up again, because
/// the fast path does not store it. Returns false for a marked route ([`Route::marked`]).
#[inline(never)]
unsafe fn at_once_otherwise<const BLOCKING: bool>(outgoing: &Outgoing, extent: Extent) -> bool {
    // SAFETY: P4: MPI's communicator.
    let communicator = unsafe { Communicator::of(outgoing.comm) };
    let route = communicator.short_cut(outgoing.to);
    // SAFETY: P4, as this function requires.
    if BLOCKING && route == Route::UNKNOWN && unsafe { told_at_once(outgoing, extent, communicator) } {
        return true;
    }
    let header = communicator.sender.header(outgoing.tag);
    let Some(to) = route.as_local() else {
        // SAFETY: P2: the data may be read until the call returns.
        return unsafe { transmit::at_once(route, &header, extent) };
    };
    // SAFETY: P2: the data may be read until the call returns.
    pml().and_then(Pml::shared_memory).is_some_and(|shared| unsafe { shared.send_at_once(to, &header, extent) })
}

/// Sends a contiguous message, no longer than the eager limit, from a send buffer, if that can be done now. Returns
/// false for a message that is longer than the buffers, because a tool may set a greater eager limit.
#[inline(never)]
pub(super) unsafe fn copied_at_once(outgoing: &Outgoing, extent: Extent) -> bool {
    if extent.start.is_null() {
        return false;
    }
    // SAFETY: P4: MPI's communicator.
    let communicator = unsafe { Communicator::of(outgoing.comm) };
    let route = communicator.short_cut(outgoing.to);
    let Some(pml) = pml() else { return false };
    let Some(rail) = pml.rails().first() else { return false };
    if !route.is_open_single_rail() || extent.length + MAX_SIZE > now::eager_limit_as_written() {
        return false;
    }
    let Some(mut state) = pml.enter() else { return false };
    let Some(mut port) = rail.enter() else { return false };
    let header = communicator.sender.header(outgoing.tag);
    // SAFETY: P2: the data may be read until the call returns.
    unsafe { transmit::copied(&mut state, &mut port, route, &header, extent) }
}

/// Sends a contiguous message of a blocking call, no longer than the eager limit, while a tool listens. The message has
/// a request only if it cannot be sent at once.
///
/// # Safety
/// P4: `outgoing` has MPI's arguments, and `extent` describes its data.
#[inline(always)]
unsafe fn told_at_once(outgoing: &Outgoing, extent: Extent, communicator: &Communicator) -> bool {
    let route = communicator.route(outgoing.to);
    let Some(pml) = pml() else { return false };
    let Some(rail) = pml.rails().first() else { return false };
    if !route.is_open_single_rail() || extent.length + MAX_SIZE > now::eager_limit_as_written() {
        return false;
    }
    let Some(mut state) = pml.enter() else { return false };
    // SAFETY: P3; P4: MPI's communicator.
    let Some(listeners) = (unsafe { Listeners::of(outgoing.comm) }) else { return false };
    let (id, of) = (number(), (watch::SEND, extent.length));
    // SAFETY: P4: MPI's communicator.
    let mut spec = unsafe { watch::spec(outgoing.comm, &outgoing.data, (outgoing.to, outgoing.tag), of) };
    let mut tell = |event| {
        // SAFETY: P3; P4: MPI's communicator, whose listeners these are.
        unsafe { tell_of_call(listeners, event, id, &mut spec) };
    };
    tell(Event::Activate);
    // A message that pends does not begin.
    if !rail.enter().is_some_and(|port| port.has_room(route.to())) {
        // SAFETY: P4, as this function requires.
        unsafe { begun(pml, state, outgoing, (id, route), Told::Nothing) };
        return true;
    }
    tell(Event::XferBegin);
    let header = communicator.sender.header(outgoing.tag);
    // Leaves the port before the next listener is called.
    let is_posted = rail.enter().is_some_and(|mut port| {
        // SAFETY: P2: the data may be read until the call returns.
        unsafe {
            transmit::inline(&mut port, route, &header, extent)
                || copied_apart(&mut state, &mut port, route, &header, extent)
        }
    });
    if is_posted {
        if listeners.wants(Event::Protocol) {
            // SAFETY: P3; P4: MPI's communicator, whose listeners these are.
            unsafe { path_taken::tell_at_once(listeners, id, &spec) };
        }
        let mut tell = |event| {
            // SAFETY: P3; P4: MPI's communicator, whose listeners these are.
            unsafe { tell_of_call(listeners, event, id, &mut spec) };
        };
        tell(Event::XferEnd);
        tell(Event::Complete);
        tell(Event::Notify);
        leave(pml, state);
        listening::returns(outgoing.tag);
    } else {
        // SAFETY: P4, as this function requires.
        unsafe { begun(pml, state, outgoing, (id, route), Told::Begun) };
    }
    true
}

#[inline(always)]
unsafe fn tell_of_call(listeners: &Listeners, event: Event, id: u64, spec: &mut Spec) {
    listeners.tell(event, id, spec);
    if let Some(step) = transfers::step(event)
        && listeners.wants(Event::Transfer)
        && events::interest().has(step)
    {
        // SAFETY: P3; the communicator lives.
        unsafe { transfers::tell_at_once(id, spec, step) };
    }
}

#[inline(never)]
unsafe fn copied_apart(state: &mut State, port: &mut Port, route: Route, header: &[u8], extent: Extent) -> bool {
    // SAFETY: P2: the data may be read during the call, as this function requires.
    unsafe { transmit::copied(state, port, route, header, extent) }
}

/// Takes a request to send the message of a blocking call that [`told_at_once`] could not send. Tools know it as `id`,
/// and have been told so much of it.
#[cold]
#[inline(never)]
unsafe fn begun(pml: &Pml, mut state: Entered<'_, State>, outgoing: &Outgoing, (id, route): (u64, Route), told: Told) {
    let request = state.requests.take();
    // SAFETY: P1: just taken by this call; P4, as this function requires.
    unsafe { fill(request, outgoing, Mode::Standard, Owner::WatchedCall) };
    watch::set_id(&mut state, request, id);
    state.requests.get(request).shell.told = told;
    messenger::send::begin(pml, &mut *state, request, route);
    // SAFETY: P1: begun, and it belongs to this call; P4, as this function requires.
    unsafe { wait(pml, state, request) };
    listening::returns(outgoing.tag);
}

/// Waits for the send of a blocking call, and gives its request back.
///
/// # Safety
/// P1: the request was begun and belongs to this call; its communicator lives.
unsafe fn wait<'pml>(pml: &'pml Pml, mut state: Entered<'pml, State>, request: Handle) {
    let is_finished = |state: &mut State| state.requests.get(request).is_finished();
    if !is_finished(&mut state) {
        state = until(pml, state, is_finished, poll);
    }
    watch::request(&mut state, request, Event::Notify);
    watch::forget(state.requests.get(request));
    // SAFETY: P1: finished, and it belongs to this call, which does not use it any more.
    unsafe { state.requests.give_back(request) };
    leave_call(pml, state);
}

#[inline(never)]
unsafe fn send_blocking(outgoing: &Outgoing, mode: Mode) -> c_int {
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    let is_watched = unwatched().is_none();
    let owner = if is_watched { Owner::WatchedCall } else { Owner::Call };
    // SAFETY: P4, as this function requires.
    let begun = unsafe { start(pml, outgoing, mode, owner) };
    match begun {
        // SAFETY: P1: begun, and it belongs to this call; P4: MPI's communicator.
        Ok((state, Some(request))) => unsafe { wait(pml, state, request) },
        Ok((state, None)) => leave(pml, state),
        Err(code) => return code,
    }
    if is_watched {
        listening::returns(outgoing.tag);
    }
    sys::OPAL_SUCCESS
}

#[inline(never)]
unsafe fn send_nonblocking(outgoing: &Outgoing, mode: Mode, place: *mut *mut sys::ompi_request_t) -> c_int {
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    // SAFETY: P4, as this function requires.
    let begun = unsafe { start(pml, outgoing, mode, Owner::Mpi) };
    match begun {
        Ok((state, request)) => {
            // SAFETY: P4: the out parameter, written before the PML is left, so before a callback sees the request.
            // Without a request it gets Open MPI's request that is always complete, which is never freed.
            unsafe { place.write(request.map_or_else(|| libmpi::ibex_request_empty(), Request::as_raw)) };
            leave(pml, state);
            sys::OPAL_SUCCESS
        }
        Err(code) => code,
    }
}

/// Result of a send that has begun: the entered PML, and the request if MPI or a tool is to see it.
pub(super) type Begun<'pml> = (Entered<'pml, State>, Option<Handle>);

/// Begins a send. Its request may be finished when this returns.
#[inline(always)]
pub(super) unsafe fn start<'pml>(
    pml: &'pml Pml,
    outgoing: &Outgoing,
    mode: Mode,
    owner: Owner,
) -> Result<Begun<'pml>, c_int> {
    if mode == Mode::Buffered {
        // SAFETY: P4, as this function requires.
        return unsafe { buffered(pml, outgoing, owner) };
    }
    // SAFETY: P4: MPI's communicator, and a rank of it.
    let route = unsafe { rails::route(pml, outgoing.comm, outgoing.to) };
    let Some(mut state) = pml.enter() else { return Err(sys::OPAL_ERR_OUT_OF_RESOURCE) };
    let request = state.requests.take();
    // SAFETY: P1: just taken; P4, as this function requires.
    unsafe { fill(request, outgoing, mode, owner) };
    begin(pml, &mut state, request, route);
    Ok((state, Some(request)))
}

/// Sends a copy of a message; the send itself is complete. While a tool listens, it has a request, for its events.
unsafe fn buffered<'pml>(pml: &'pml Pml, outgoing: &Outgoing, owner: Owner) -> Result<Begun<'pml>, c_int> {
    // SAFETY: P4, as this function requires.
    let (mut state, copy) = unsafe { copy_and_enter(pml, outgoing) }?;
    if unwatched().is_some() {
        // SAFETY: P4, as this function requires; the copy is that of `outgoing`.
        unsafe { send_copy(pml, &mut state, outgoing, copy, 0) };
        return Ok((state, None));
    }
    let request = state.requests.take();
    // SAFETY: P1: just taken; P4, as this function requires.
    unsafe { fill(request, outgoing, Mode::Buffered, owner) };
    watch::request(&mut state, request, Event::Activate);
    let id = watch::id(&mut state, request);
    // SAFETY: P4, as this function requires; the copy is that of `outgoing`.
    unsafe { send_copy(pml, &mut state, outgoing, copy, id) };
    finish::finish(&mut state, request);
    Ok((state, Some(request)))
}

/// Copy of a message in the program's attached memory (`MPI_Buffer_attach`), and the route to its receiver.
#[derive(Clone, Copy)]
pub(crate) struct BufferedCopy {
    extent: Extent,
    route: Option<Route>,
}

/// Copies a message and enters the PML, for [`send_copy`].
pub(crate) unsafe fn copy_and_enter<'pml>(
    pml: &'pml Pml,
    outgoing: &Outgoing,
) -> Result<(Entered<'pml, State>, BufferedCopy), c_int> {
    // SAFETY: P4, as this function requires.
    let (extent, route) = unsafe { (attach(outgoing.data)?, rails::route(pml, outgoing.comm, outgoing.to)) };
    let Some(state) = pml.enter() else {
        // SAFETY: `attach` has just returned this memory.
        unsafe { libmpi::mca_pml_base_bsend_request_free(extent.start.cast()) };
        return Err(sys::OPAL_ERR_OUT_OF_RESOURCE);
    };
    Ok((state, BufferedCopy { extent, route }))
}

/// Sends a copy. Tools know it by `id`.
pub(crate) unsafe fn send_copy(pml: &Pml, state: &mut State, outgoing: &Outgoing, copy: BufferedCopy, id: u64) {
    let request = state.requests.take();
    // SAFETY: P1: just taken; P4, as this function requires.
    unsafe { fill(request, outgoing, Mode::Standard, Owner::Nobody) };
    let r = state.requests.get(request);
    r.shell.attached = copy.extent.start;
    // SAFETY: P2: the copy is freed when the request is finished.
    unsafe { r.core.data.set_extent(copy.extent) };
    watch::set_id(state, request, id);
    begin(pml, state, request, copy.route);
}

/// Fills a send in without beginning it.
///
/// # Safety
/// P1: only the caller has the request; P4: `outgoing` has MPI's arguments.
pub(crate) unsafe fn fill(request: Handle, outgoing: &Outgoing, mode: Mode, owner: Owner) {
    // SAFETY: P1: only the caller has the request.
    let r = unsafe { &mut *request.pointer().as_ptr() };
    r.core.role = Role::Send(mode);
    r.shell.owner = owner;
    r.core.peer = outgoing.to;
    r.core.tag = outgoing.tag;
    // SAFETY: P2: MPI's data; P4: MPI's datatype lives.
    unsafe { r.core.data.set(outgoing.data) };
    r.shell.attached = null_mut();
    r.base().req_mpi_object.comm = outgoing.comm;
    r.set_finished(false);
    if !owner.is_call() {
        // SAFETY: P4: MPI's communicator and datatype live.
        unsafe { hold(r) };
    }
}

/// Makes a request fit for MPI to hold: active, with references to its communicator and datatype.
///
/// # Safety
/// P1: a request that is filled in; its communicator and datatype live.
pub(crate) unsafe fn hold(request: &mut Request) {
    request.shell.has_references = true;
    let (comm, datatype) = (request.comm(), request.core.data.description().datatype);
    // SAFETY: P4: communicator and datatype live.
    unsafe { libmpi::ibex_request_hold(request.base(), comm, datatype) };
}

/// Packs a message into attached memory, and returns the copy.
unsafe fn attach(description: Description) -> Result<Extent, c_int> {
    let mut data = UserData::NONE;
    // SAFETY: P2, P4, as this function requires.
    unsafe { data.set(description) };
    let length = data.length();
    // SAFETY: Open MPI's allocator, asked for at least one byte.
    let start = unsafe { libmpi::mca_pml_base_bsend_request_alloc_buf(length.max(1)) }.cast::<u8>();
    if start.is_null() {
        return Err(sys::OMPI_ERR_BUFFER);
    }
    // SAFETY: Open MPI has just returned so many bytes.
    if data.take_all(unsafe { std::slice::from_raw_parts_mut(start, length) }) {
        return Ok(Extent { start, length });
    }
    // SAFETY: Open MPI has just returned this memory.
    unsafe { libmpi::mca_pml_base_bsend_request_free(start.cast()) };
    Err(sys::OPAL_ERROR)
}

/// Begins a send by `route`: posts it, or lets it wait. It may be finished when this returns.
pub(crate) fn begin(pml: &Pml, state: &mut State, request: Handle, route: Option<Route>) {
    if state.requests.get(request).shell.attached.is_null() {
        watch::request(state, request, Event::Activate);
    }
    match route {
        Some(route) => messenger::send::begin(pml, state, request, route),
        None => state.fails(),
    }
}

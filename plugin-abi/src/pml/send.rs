// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_send` and `pml_isend`: a short message goes at once, any other by a request (`protocol`).
//!
//! A short one goes inside the work request, straight from the user's memory, without a request of the PML's and
//! without the PML being entered; a longer one of one piece is copied to a send buffer, without a request as well. Any
//! other has a request, which a blocking call keeps to itself. A blocking send returns when the message is with the
//! adapter: its caller may not come back to MPI. Grade: hot. Threads: any. Tests: `pt2pt_modes.c` and others in
//! `hw-tests/mpi`.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

use engine::protocol::header::MAX_SIZE;
use engine::transport::Port;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::datatype::{self, Data, Extent};
use super::instance::{Pml, State, pml, unwatched};
use super::link::Link;
use super::progress::{leave, leave_call, poll, until};
use super::request::{Mode, Owner, Request, Role, Told};
use super::{finish, listening, passage, peer, protocol, transfers, transmit, watch};
use crate::runtime::exclusive::Entered;
use crate::runtime::guard::fence;
use crate::runtime::listeners::{Event, Listeners, Spec};
use crate::runtime::variables::now;
use crate::runtime::watch::number;

/// A message to be sent, as MPI describes it.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing {
    pub(crate) data: Data,
    pub(crate) to: i32,
    pub(crate) tag: i32,
    pub(crate) comm: *mut sys::ompi_communicator_t,
}

impl Mode {
    /// As Open MPI names it.
    #[inline]
    pub(crate) fn of(mode: sys::mca_pml_base_send_mode_t) -> Mode {
        match mode {
            sys::MCA_PML_BASE_SEND_SYNCHRONOUS => Mode::Synchronous,
            sys::MCA_PML_BASE_SEND_BUFFERED => Mode::Buffered,
            _ => Mode::Standard,
        }
    }
}

/// `pml_send`.
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
        let outgoing = Outgoing { data: Data { buffer: buffer.cast_mut(), count, datatype }, to, tag, comm };
        // SAFETY: P4.
        unsafe {
            let extent = outgoing.data.extent();
            let is_standard = mode >= sys::MCA_PML_BASE_SEND_READY;
            if is_standard && (at_once::<true>(&outgoing, extent) || copied_at_once(&outgoing, extent)) {
                return sys::OPAL_SUCCESS;
            }
            send_blocking(&outgoing, Mode::of(mode))
        }
    })
}

/// `pml_isend`.
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
        let outgoing = Outgoing { data: Data { buffer: buffer.cast_mut(), count, datatype }, to, tag, comm };
        // SAFETY: P4.
        unsafe {
            let extent = outgoing.data.extent();
            let is_standard = mode >= sys::MCA_PML_BASE_SEND_READY;
            if is_standard && (at_once::<false>(&outgoing, extent) || copied_at_once(&outgoing, extent)) {
                request.write(sys::ibex_request_empty());
                return sys::OPAL_SUCCESS;
            }
            send_nonblocking(&outgoing, Mode::of(mode), request)
        }
    })
}

/// Sends a short message of one piece inside the work request, if that can be done now. One of a blocking call, if
/// `BLOCKING`, may go a short way as well while a tool listens to it.
///
/// # Safety
/// P4; `extent` is the data's.
#[inline(always)]
unsafe fn at_once<const BLOCKING: bool>(outgoing: &Outgoing, extent: Extent) -> bool {
    if extent.start.is_null() {
        return false;
    }
    // SAFETY: P4: the communicator.
    let communicator = unsafe { Communicator::of(outgoing.comm) };
    let link = communicator.short_cut(outgoing.to);
    let Some(mut port) = communicator.enter_first(link) else {
        // SAFETY: P4; `extent` is the data's.
        return unsafe { at_once_otherwise::<BLOCKING>(outgoing, extent) };
    };
    let header = communicator.sender.header(outgoing.tag);
    // SAFETY: P2.
    unsafe { transmit::inline(&mut port, link, &header, extent) }
}

/// [`at_once`] where the peer is reached by shared memory, or by one port of several, or a tool listens. It works all
/// out anew, so that nothing is kept for it. A link that is marked is neither ([`Link::marked`]): what goes
/// there looks for its way.
///
/// # Safety
/// P4; `extent` is the data's.
#[inline(never)]
unsafe fn at_once_otherwise<const BLOCKING: bool>(outgoing: &Outgoing, extent: Extent) -> bool {
    // SAFETY: P4: the communicator.
    let communicator = unsafe { Communicator::of(outgoing.comm) };
    let link = communicator.short_cut(outgoing.to);
    // SAFETY: P4; `extent` is the data's.
    if BLOCKING && link == Link::UNKNOWN && unsafe { told_at_once(outgoing, extent, communicator) } {
        return true;
    }
    let header = communicator.sender.header(outgoing.tag);
    let Some(to) = link.as_local() else {
        // SAFETY: P2.
        return unsafe { transmit::at_once(link, &header, extent) };
    };
    // SAFETY: P2.
    pml().and_then(Pml::shared_memory).is_some_and(|shared| unsafe { shared.send_at_once(to, &header, extent) })
}

/// Sends a message of one piece from a send buffer, if it is no longer than the eager limit and that can be done now.
/// What is with the adapter in a copy is done for MPI, and needs no request. A tool may have written a limit beyond what a
/// send buffer holds: a message that none holds has a request, and that is seen then (`protocol`).
///
/// # Safety
/// P4; `extent` is the data's.
#[inline(never)]
unsafe fn copied_at_once(outgoing: &Outgoing, extent: Extent) -> bool {
    if extent.start.is_null() {
        return false;
    }
    // SAFETY: P4: the communicator.
    let communicator = unsafe { Communicator::of(outgoing.comm) };
    let link = communicator.short_cut(outgoing.to);
    let Some(pml) = pml() else { return false };
    let Some(rail) = pml.rails().first() else { return false };
    if !link.is_of_only() || extent.length + MAX_SIZE > now::eager_limit_as_written() {
        return false;
    }
    let Some(mut state) = pml.enter() else { return false };
    let Some(mut port) = rail.enter() else { return false };
    let header = communicator.sender.header(outgoing.tag);
    // SAFETY: P2.
    unsafe { transmit::copied(&mut state, &mut port, link, &header, extent) }
}

/// Sends a message of one piece by a blocking call, if it is no longer than the eager limit and a tool listens to its
/// communicator. What tools know of it is on the stack; it has a request if it cannot go at once.
///
/// # Safety
/// P4; `extent` is the data's.
#[inline(always)]
unsafe fn told_at_once(outgoing: &Outgoing, extent: Extent, communicator: &Communicator) -> bool {
    let link = communicator.link(outgoing.to);
    let Some(pml) = pml() else { return false };
    let Some(rail) = pml.rails().first() else { return false };
    if !link.is_of_only() || extent.length + MAX_SIZE > now::eager_limit_as_written() {
        return false;
    }
    let Some(mut state) = pml.enter() else { return false };
    // SAFETY: P3; P4: the communicator.
    let Some(listeners) = (unsafe { Listeners::of(outgoing.comm) }) else { return false };
    let (id, of) = (number(), (watch::SEND, extent.length));
    // SAFETY: P4: the communicator.
    let mut spec = unsafe { watch::spec(outgoing.comm, &outgoing.data, (outgoing.to, outgoing.tag), of) };
    let mut tell = |event| {
        // SAFETY: P3; P4: the communicator.
        unsafe { tell_of_call(listeners, event, id, &mut spec) };
    };
    tell(Event::Activate);
    tell(Event::XferBegin);
    let header = communicator.sender.header(outgoing.tag);
    // No listener is called while the port is entered.
    let is_posted = rail.enter().is_some_and(|mut port| {
        // SAFETY: P2.
        unsafe {
            transmit::inline(&mut port, link, &header, extent)
                || copied_apart(&mut state, &mut port, link, &header, extent)
        }
    });
    if is_posted {
        // SAFETY: P3; P4: the communicator.
        unsafe {
            if listeners.wants(Event::Protocol) {
                passage::tell_at_once(listeners, id, &spec);
            }
        }
        let mut tell = |event| {
            // SAFETY: P3; P4: the communicator.
            unsafe { tell_of_call(listeners, event, id, &mut spec) };
        };
        tell(Event::XferEnd);
        tell(Event::Complete);
        tell(Event::Notify);
        leave(pml, state);
        listening::returns(outgoing.tag);
    } else {
        // SAFETY: P4.
        unsafe { begun(pml, state, outgoing, (id, link)) };
    }
    true
}

/// An event of a send that has no request.
///
/// # Safety
/// P3: the PML is entered; the specification's communicator lives, and the listeners are its.
#[inline(always)]
unsafe fn tell_of_call(listeners: &Listeners, event: Event, id: u64, spec: &mut Spec) {
    // SAFETY: P3; the communicator lives.
    unsafe {
        listeners.tell(event, id, spec);
        if let Some(step) = transfers::step(event)
            && listeners.wants(Event::Transfer)
        {
            transfers::tell_at_once(listeners, id, spec, step);
        }
    }
}

/// [`transmit::copied`], where it need not be a part of its caller.
///
/// # Safety
/// P2: the data may be read for the call.
#[inline(never)]
unsafe fn copied_apart(state: &mut State, port: &mut Port, link: Link, header: &[u8], extent: Extent) -> bool {
    // SAFETY: P2.
    unsafe { transmit::copied(state, port, link, header, extent) }
}

/// Sends the message of a blocking call by a request, of which a tool has been told by this number that its transfer
/// begins: the adapter does not take it now.
///
/// # Safety
/// P4.
#[cold]
#[inline(never)]
unsafe fn begun(pml: &Pml, mut state: Entered<'_, State>, outgoing: &Outgoing, (id, link): (u64, Link)) {
    let request = state.requests.take();
    // SAFETY: P1: just taken, this call's own; P3; P4.
    unsafe {
        fill(request, outgoing, Mode::Standard, Owner::WatchedCall);
        watch::set_id(request, id);
        (*request.as_ptr()).told = Told::Begun;
        protocol::begin(pml, &mut state, request, link);
        wait(pml, state, request);
    }
    listening::returns(outgoing.tag);
}

/// Waits for the send of a blocking call, and gives it back.
///
/// # Safety
/// P1: it was begun, and is the call's own; its communicator lives.
unsafe fn wait<'pml>(pml: &'pml Pml, mut state: Entered<'pml, State>, request: NonNull<Request>) {
    // SAFETY: P1: the call's own; P3.
    let is_finished = || unsafe { request.as_ref() }.is_finished();
    if !is_finished() {
        state = until(pml, state, is_finished, poll);
    }
    // SAFETY: P1: finished, and the call's own; P3; its communicator lives.
    unsafe {
        let r = &mut *request.as_ptr();
        watch::request(r, Event::Notify);
        watch::forget(r);
        r.convertor = None;
        state.requests.give_back(request);
    }
    leave_call(pml, state);
}

/// # Safety
/// P4.
#[inline(never)]
unsafe fn send_blocking(outgoing: &Outgoing, mode: Mode) -> c_int {
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    let is_watched = unwatched().is_none();
    let owner = if is_watched { Owner::WatchedCall } else { Owner::Call };
    // SAFETY: P4.
    let begun = unsafe { start(pml, outgoing, mode, owner) };
    match begun {
        // SAFETY: P1: begun, and this call's own; P4: its communicator.
        Ok((state, Some(request))) => unsafe { wait(pml, state, request) },
        Ok((state, None)) => leave(pml, state),
        Err(code) => return code,
    }
    if is_watched {
        listening::returns(outgoing.tag);
    }
    sys::OPAL_SUCCESS
}

/// # Safety
/// P4; `place` is the out parameter.
#[inline(never)]
unsafe fn send_nonblocking(outgoing: &Outgoing, mode: Mode, place: *mut *mut sys::ompi_request_t) -> c_int {
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    // SAFETY: P4.
    let begun = unsafe { start(pml, outgoing, mode, Owner::Mpi) };
    match begun {
        Ok((state, request)) => {
            // SAFETY: P4; `place` is the out parameter; nobody is told of the request while the PML is entered. Without
            // one it is the address of what Open MPI has for ever: a request that is done.
            unsafe { place.write(request.map_or_else(|| sys::ibex_request_empty(), Request::as_raw)) };
            leave(pml, state);
            sys::OPAL_SUCCESS
        }
        Err(code) => code,
    }
}

/// What a send returns that has begun: the right to the PML, and a request if MPI or a tool is to know it.
type Begun<'pml> = (Entered<'pml, State>, Option<NonNull<Request>>);

/// Begins a send in any mode. Its request may be finished when this returns.
///
/// # Safety
/// P4.
#[inline(always)]
unsafe fn start<'pml>(pml: &'pml Pml, outgoing: &Outgoing, mode: Mode, owner: Owner) -> Result<Begun<'pml>, c_int> {
    if mode == Mode::Buffered {
        // SAFETY: P4.
        return unsafe { buffered(pml, outgoing, owner) };
    }
    // SAFETY: P4: the communicator, and a rank of it.
    let link = unsafe { peer::link(pml, outgoing.comm, outgoing.to) };
    let Some(mut state) = pml.enter() else { return Err(sys::OPAL_ERR_OUT_OF_RESOURCE) };
    let request = state.requests.take();
    // SAFETY: P1: just taken; P4.
    unsafe {
        fill(request, outgoing, mode, owner);
        begin(pml, &mut state, request, link);
    }
    Ok((state, Some(request)))
}

/// Sends a copy of a message, which is done for MPI then. Returns a request that is done while a tool listens, which
/// knows the message by it.
///
/// # Safety
/// P4.
unsafe fn buffered<'pml>(pml: &'pml Pml, outgoing: &Outgoing, owner: Owner) -> Result<Begun<'pml>, c_int> {
    // SAFETY: P4.
    let (mut state, copy) = unsafe { copy_and_enter(pml, outgoing) }?;
    if unwatched().is_some() {
        // SAFETY: P4, of which it is the copy.
        unsafe { send_copy(pml, &mut state, outgoing, copy, 0) };
        return Ok((state, None));
    }
    let request = state.requests.take();
    // SAFETY: P1: just taken, and nothing of it is under way; P3; P4.
    unsafe {
        fill(request, outgoing, Mode::Buffered, owner);
        watch::request(&mut *request.as_ptr(), Event::Activate);
        send_copy(pml, &mut state, outgoing, copy, watch::id(request));
        finish::finish(&mut state, request);
    }
    Ok((state, Some(request)))
}

/// A copy of a message in memory that the program has attached, and the way to its receiver.
#[derive(Clone, Copy)]
pub(crate) struct BufferedCopy {
    extent: Extent,
    attached: *mut u8,
    link: Option<Link>,
}

/// Copies a message, and enters the PML to send the copy.
///
/// # Safety
/// P4.
pub(crate) unsafe fn copy_and_enter<'pml>(
    pml: &'pml Pml,
    outgoing: &Outgoing,
) -> Result<(Entered<'pml, State>, BufferedCopy), c_int> {
    // SAFETY: P4.
    let ((extent, attached), link) =
        unsafe { (attach(&outgoing.data, outgoing.data.extent())?, peer::link(pml, outgoing.comm, outgoing.to)) };
    let Some(state) = pml.enter() else {
        // SAFETY: memory that `attach` has just given.
        unsafe { sys::mca_pml_base_bsend_request_free(attached.cast()) };
        return Err(sys::OPAL_ERR_OUT_OF_RESOURCE);
    };
    Ok((state, BufferedCopy { extent, attached, link }))
}

/// Sends a copy. Tools know it by `id`.
///
/// # Safety
/// P4, of which it is the copy.
pub(crate) unsafe fn send_copy(pml: &Pml, state: &mut State, outgoing: &Outgoing, copy: BufferedCopy, id: u64) {
    let request = state.requests.take();
    // SAFETY: P1: just taken; P3; P4.
    unsafe {
        fill(request, outgoing, Mode::Standard, Owner::Nobody);
        let r = &mut *request.as_ptr();
        (r.extent, r.attached) = (copy.extent, copy.attached);
        watch::set_id(request, id);
        begin(pml, state, request, copy.link);
    }
}

/// Fills a request in, not begun. What MPI can hold on to has references to what it uses.
///
/// # Safety
/// P1: the request is the caller's alone; P4.
pub(crate) unsafe fn fill(request: NonNull<Request>, outgoing: &Outgoing, mode: Mode, owner: Owner) {
    // SAFETY: P1: the caller's alone.
    let r = unsafe { &mut *request.as_ptr() };
    r.role = Role::Send(mode);
    r.owner = owner;
    r.peer = outgoing.to;
    r.tag = outgoing.tag;
    r.data = outgoing.data;
    r.attached = null_mut();
    r.base().req_mpi_object.comm = outgoing.comm;
    r.set_finished(false);
    if !owner.is_call() {
        // SAFETY: P4: communicator and datatype live.
        unsafe { hold(r) };
    }
    // SAFETY: P4: the datatype.
    r.extent = unsafe { outgoing.data.extent() };
}

/// Makes a request one that MPI may hold: active, with references to its communicator and datatype.
///
/// # Safety
/// A request that is filled in; its communicator and datatype live.
pub(crate) unsafe fn hold(request: &mut Request) {
    request.has_references = true;
    let (comm, datatype) = (request.comm(), request.data.datatype);
    // SAFETY: communicator and datatype live.
    unsafe { sys::ibex_request_hold(request.base(), comm, datatype) };
}

/// Packs a message into memory that the program has attached. Returns where it is, and what is to be given back.
///
/// # Safety
/// P4; `extent` is the data's.
pub(crate) unsafe fn attach(data: &Data, extent: Extent) -> Result<(Extent, *mut u8), c_int> {
    // SAFETY: asks for memory of that length, or at least a byte.
    let place = unsafe { sys::mca_pml_base_bsend_request_alloc_buf(extent.length.max(1)) }.cast::<u8>();
    if place.is_null() {
        return Err(sys::OMPI_ERR_BUFFER);
    }
    // SAFETY: P2; `place` is as long as the message, and apart from it.
    if unsafe { datatype::take(data, extent, place) } {
        return Ok((Extent { start: place, length: extent.length }, place));
    }
    // SAFETY: memory that was just given.
    unsafe { sys::mca_pml_base_bsend_request_free(place.cast()) };
    Err(sys::OPAL_ERROR)
}

/// Begins a send to the peer that `link` leads to: posts it, or lets it wait. It may be finished when this returns.
///
/// # Safety
/// P1: a send that is filled in, and the caller's alone until now.
pub(crate) unsafe fn begin(pml: &Pml, state: &mut State, request: NonNull<Request>, link: Option<Link>) {
    // SAFETY: P1: filled in, and the caller's alone; P3.
    unsafe {
        let r = &mut *request.as_ptr();
        if r.attached.is_null() {
            watch::request(r, Event::Activate);
        }
        match link {
            Some(link) => protocol::begin(pml, state, request, link),
            None => _ = transmit::failed(state),
        }
    }
}

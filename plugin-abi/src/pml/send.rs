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
use super::finish;
use super::instance::{Pml, State, pml, unwatched};
use super::link::Link;
use super::progress::{leave, until};
use super::request::{Mode, Owner, Request, Role, Told};
use super::{passage, peer, protocol, returning, transmit, watch};
use crate::runtime::exclusive::Entered;
use crate::runtime::guard::fence;
use crate::runtime::listeners::{Event, Listeners};

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
        // SAFETY: MPI's arguments, which libmpi has checked.
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
        // SAFETY: MPI's arguments, which libmpi has checked.
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
/// MPI's arguments; `extent` is the data's.
#[inline(always)]
unsafe fn at_once<const BLOCKING: bool>(outgoing: &Outgoing, extent: Extent) -> bool {
    if extent.start.is_null() {
        return false;
    }
    // SAFETY: this function's rule.
    let communicator = unsafe { Communicator::of(outgoing.comm) };
    let link = communicator.short_cut(outgoing.to);
    let Some(mut port) = communicator.enter_first(link) else {
        // SAFETY: this function's rule.
        return unsafe { at_once_otherwise::<BLOCKING>(outgoing, extent) };
    };
    let header = communicator.sender.header(outgoing.tag);
    // SAFETY: this function's rule.
    unsafe { transmit::inline(&mut port, link, &header, extent) }
}

/// [`at_once`] where the peer is reached by shared memory, or by one port of several, or a tool listens. It works all
/// out anew, so that nothing is kept for it. A link that is marked is neither ([`Link::marked`]): what goes
/// there looks for its way.
///
/// # Safety
/// As for [`at_once`].
#[inline(never)]
unsafe fn at_once_otherwise<const BLOCKING: bool>(outgoing: &Outgoing, extent: Extent) -> bool {
    // SAFETY: this function's rule.
    let communicator = unsafe { Communicator::of(outgoing.comm) };
    let link = communicator.short_cut(outgoing.to);
    // SAFETY: as above.
    if BLOCKING && link == Link::UNKNOWN && unsafe { told_at_once(outgoing, extent, communicator) } {
        return true;
    }
    let header = communicator.sender.header(outgoing.tag);
    let Some(to) = link.as_local() else {
        // SAFETY: this function's rule.
        return unsafe { transmit::at_once(link, &header, extent) };
    };
    // SAFETY: this function's rule.
    pml().and_then(Pml::shared_memory).is_some_and(|shared| unsafe { shared.send_at_once(to, &header, extent) })
}

/// Sends a message of one piece from a send buffer, if it is no longer than the eager limit and that can be done now.
/// What is with the adapter in a copy is done for MPI, and needs no request.
///
/// # Safety
/// As for [`at_once`].
#[inline(never)]
unsafe fn copied_at_once(outgoing: &Outgoing, extent: Extent) -> bool {
    if extent.start.is_null() {
        return false;
    }
    // SAFETY: this function's rule.
    let communicator = unsafe { Communicator::of(outgoing.comm) };
    let link = communicator.short_cut(outgoing.to);
    let Some(pml) = pml() else { return false };
    let Some(rail) = pml.rails().first() else { return false };
    if !link.is_of_only() || extent.length > rail.eager_limit - MAX_SIZE {
        return false;
    }
    let Some(mut state) = pml.enter() else { return false };
    let Some(mut port) = rail.enter() else { return false };
    let header = communicator.sender.header(outgoing.tag);
    // SAFETY: this function's rule.
    unsafe { transmit::copied(&mut state, &mut port, link, &header, extent) }
}

/// Sends a message of one piece by a blocking call, if it is no longer than the eager limit and a tool listens to its
/// communicator. What tools know of it is on the stack; it has a request if it cannot go at once.
///
/// # Safety
/// As for [`at_once`].
#[inline(always)]
unsafe fn told_at_once(outgoing: &Outgoing, extent: Extent, communicator: &Communicator) -> bool {
    let link = communicator.link(outgoing.to);
    let Some(pml) = pml() else { return false };
    let Some(rail) = pml.rails().first() else { return false };
    if !link.is_of_only() || extent.length > rail.eager_limit - MAX_SIZE {
        return false;
    }
    let Some(mut state) = pml.enter() else { return false };
    // SAFETY: this function's rule; the PML is entered.
    let Some(listeners) = (unsafe { Listeners::of(outgoing.comm) }) else { return false };
    let (id, of) = (watch::name(), (watch::SEND, extent.length));
    // SAFETY: as above.
    let mut spec = unsafe { watch::spec(outgoing.comm, &outgoing.data, (outgoing.to, outgoing.tag), of) };
    let mut tell = |event| {
        // SAFETY: as above.
        unsafe { listeners.tell(event, id, &mut spec) };
    };
    tell(Event::Activate);
    tell(Event::XferBegin);
    let header = communicator.sender.header(outgoing.tag);
    // No listener is called while the port is entered.
    let is_posted = rail.enter().is_some_and(|mut port| {
        // SAFETY: this function's rule.
        unsafe {
            transmit::inline(&mut port, link, &header, extent)
                || copied_apart(&mut state, &mut port, link, &header, extent)
        }
    });
    if is_posted {
        // SAFETY: as above.
        if unsafe { listeners.wants(Event::Protocol) } {
            // SAFETY: as above.
            unsafe { passage::tell_at_once(listeners, id, &spec) };
        }
        let mut tell = |event| {
            // SAFETY: as above.
            unsafe { listeners.tell(event, id, &mut spec) };
        };
        tell(Event::XferEnd);
        tell(Event::Complete);
        tell(Event::Notify);
        leave(pml, state);
        returning::returns(outgoing.tag);
    } else {
        // SAFETY: this function's rule.
        unsafe { begun(pml, state, outgoing, (id, link)) };
    }
    true
}

/// [`transmit::copied`], where it need not be a part of its caller.
///
/// # Safety
/// The data may be read for the call.
#[inline(never)]
unsafe fn copied_apart(state: &mut State, port: &mut Port, link: Link, header: &[u8], extent: Extent) -> bool {
    // SAFETY: this function's rule.
    unsafe { transmit::copied(state, port, link, header, extent) }
}

/// Sends the message of a blocking call by a request, of which a tool has been told by this number that its transfer
/// begins: the adapter does not take it now.
///
/// # Safety
/// MPI's arguments.
#[cold]
#[inline(never)]
unsafe fn begun(pml: &Pml, mut state: Entered<'_, State>, outgoing: &Outgoing, (id, link): (u64, Link)) {
    let request = state.requests.take();
    // SAFETY: this function's rule; just taken.
    unsafe {
        fill(request, outgoing, Mode::Standard, Owner::WatchedCall);
        watch::set_id(request, id);
        (*request.as_ptr()).told = Told::Begun;
        protocol::begin(pml, &mut state, request, link);
    }
    leave(pml, state);
    // SAFETY: this call's own.
    unsafe { end_watched(pml, request, outgoing.tag) };
}

/// Waits for the send of a blocking call, of which tools are told.
///
/// # Safety
/// It is the call's own.
unsafe fn end_watched(pml: &Pml, request: NonNull<Request>, tag: i32) {
    // SAFETY: this function's rule, until it is given back.
    until(pml, || unsafe { request.as_ref() }.is_finished());
    // SAFETY: as above.
    unsafe { watch::from_outside(pml, request, Event::Notify) };
    // SAFETY: finished, and the call's own.
    unsafe { finish::release(pml, request) };
    returning::returns(tag);
}

/// # Safety
/// MPI's arguments.
#[inline(never)]
unsafe fn send_blocking(outgoing: &Outgoing, mode: Mode) -> c_int {
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    let is_watched = unwatched().is_none();
    if mode == Mode::Buffered && !is_watched {
        // SAFETY: this function's rule.
        return unsafe { send_copy(pml, outgoing, 0) };
    }
    let owner = if is_watched { Owner::WatchedCall } else { Owner::Call };
    if mode == Mode::Buffered {
        // SAFETY: this function's rule.
        return match unsafe { send_copy_watched(pml, outgoing, owner) } {
            Ok(request) => {
                // SAFETY: this call's own.
                unsafe { end_watched(pml, request, outgoing.tag) };
                sys::OPAL_SUCCESS
            }
            Err(code) => code,
        };
    }
    // SAFETY: this function's rule.
    let request = match unsafe { make(pml, outgoing, mode, owner) } {
        Ok(request) => request,
        Err(code) => return code,
    };
    // SAFETY: just made.
    unsafe { begin(pml, request) };
    if is_watched {
        // SAFETY: this call's own.
        unsafe { end_watched(pml, request, outgoing.tag) };
        return sys::OPAL_SUCCESS;
    }
    // SAFETY: as above, until it is given back.
    until(pml, || unsafe { request.as_ref() }.is_finished());
    // SAFETY: finished, and this call's own.
    unsafe { finish::release(pml, request) };
    sys::OPAL_SUCCESS
}

/// # Safety
/// MPI's arguments; `place` is the out parameter.
#[inline(never)]
unsafe fn send_nonblocking(outgoing: &Outgoing, mode: Mode, place: *mut *mut sys::ompi_request_t) -> c_int {
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    if mode == Mode::Buffered {
        if unwatched().is_none() {
            // SAFETY: this function's rule; the out parameter.
            return unsafe { send_copy_watched(pml, outgoing, Owner::Mpi) }.map_or_else(
                |code| code,
                |request| {
                    // SAFETY: the out parameter.
                    unsafe { place.write(Request::as_raw(request)) };
                    sys::OPAL_SUCCESS
                },
            );
        }
        // SAFETY: the out parameter; Open MPI's own request, as the message is done for MPI.
        unsafe { place.write(sys::ibex_request_empty()) };
        // SAFETY: this function's rule.
        return unsafe { send_copy(pml, outgoing, 0) };
    }
    // SAFETY: this function's rule.
    let request = match unsafe { make(pml, outgoing, mode, Owner::Mpi) } {
        Ok(request) => request,
        Err(code) => return code,
    };
    // SAFETY: the out parameter.
    unsafe { place.write(Request::as_raw(request)) };
    // SAFETY: just made.
    unsafe { begin(pml, request) };
    sys::OPAL_SUCCESS
}

/// Sends a copy of a message, in the memory that the program has attached. Tools know it by `id`.
///
/// # Safety
/// MPI's arguments.
pub(crate) unsafe fn send_copy(pml: &Pml, outgoing: &Outgoing, id: u64) -> c_int {
    // SAFETY: this function's rule.
    match unsafe { make(pml, outgoing, Mode::Buffered, Owner::Nobody) } {
        Ok(request) => {
            // SAFETY: just made.
            unsafe {
                watch::set_id(request, id);
                begin(pml, request);
            }
            sys::OPAL_SUCCESS
        }
        Err(code) => code,
    }
}

/// [`send_copy`] while a tool listens: returns a request that is done, by which the tool knows the copy.
///
/// # Safety
/// MPI's arguments.
#[cold]
#[inline(never)]
unsafe fn send_copy_watched(pml: &Pml, outgoing: &Outgoing, owner: Owner) -> Result<NonNull<Request>, c_int> {
    let Some(mut state) = pml.enter() else { return Err(sys::OPAL_ERR_OUT_OF_RESOURCE) };
    let request = state.requests.take();
    drop(state);
    // SAFETY: this function's rule; just taken.
    unsafe { fill(request, outgoing, Mode::Buffered, owner) };
    // SAFETY: filled in, this call's own.
    let code = unsafe {
        watch::from_outside(pml, request, Event::Activate);
        send_copy(pml, outgoing, watch::id(request))
    };
    if code != sys::OPAL_SUCCESS {
        // SAFETY: filled in, and never begun.
        unsafe { finish::release(pml, request) };
        return Err(code);
    }
    let Some(mut state) = pml.enter() else { return Err(sys::OPAL_ERR_OUT_OF_RESOURCE) };
    // SAFETY: nothing of it is under way.
    unsafe { finish::finish(&mut state, request) };
    leave(pml, state);
    Ok(request)
}

/// A request for a message that is about to be sent. A buffered one is of the copy, in standard mode.
///
/// # Safety
/// MPI's arguments.
unsafe fn make(pml: &Pml, outgoing: &Outgoing, mode: Mode, owner: Owner) -> Result<NonNull<Request>, c_int> {
    // First: what comes after it finds nothing to be given back.
    let Some(mut state) = pml.enter() else { return Err(sys::OPAL_ERR_OUT_OF_RESOURCE) };
    let request = state.requests.take();
    drop(state);
    let (mode, is_copied) = if mode == Mode::Buffered { (Mode::Standard, true) } else { (mode, false) };
    // SAFETY: just taken, ours alone.
    unsafe { fill(request, outgoing, mode, owner) };
    if is_copied {
        // SAFETY: as above.
        let r = unsafe { &mut *request.as_ptr() };
        // SAFETY: this function's rule.
        match unsafe { attach(&outgoing.data, r.extent) } {
            Ok((extent, attached)) => (r.extent, r.attached) = (extent, attached),
            Err(code) => {
                // SAFETY: never begun.
                unsafe { finish::release(pml, request) };
                return Err(code);
            }
        }
    }
    Ok(request)
}

/// Fills a request in, not begun. What MPI can hold on to has references to what it uses.
///
/// # Safety
/// MPI's arguments; the request is the caller's alone.
pub(crate) unsafe fn fill(request: NonNull<Request>, outgoing: &Outgoing, mode: Mode, owner: Owner) {
    // SAFETY: this function's rule.
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
        // SAFETY: a live request, communicator and datatype.
        unsafe { hold(request) };
    }
    // SAFETY: this function's rule.
    r.extent = unsafe { outgoing.data.extent() };
}

/// Makes a request one that MPI may hold: active, with references to its communicator and datatype.
///
/// # Safety
/// A request that is filled in, the caller's alone.
pub(crate) unsafe fn hold(request: NonNull<Request>) {
    // SAFETY: this function's rule.
    let r = unsafe { &mut *request.as_ptr() };
    r.has_references = true;
    let (comm, datatype) = (r.comm(), r.data.datatype);
    // SAFETY: live ones of MPI's.
    unsafe { sys::ibex_request_hold(r.base(), comm, datatype) };
}

/// Packs a message into memory that the program has attached. Returns where it is, and what is to be given back.
///
/// # Safety
/// MPI's arguments.
pub(crate) unsafe fn attach(data: &Data, extent: Extent) -> Result<(Extent, *mut u8), c_int> {
    // SAFETY: asks for memory of that length, or at least a byte.
    let place = unsafe { sys::mca_pml_base_bsend_request_alloc_buf(extent.length.max(1)) }.cast::<u8>();
    if place.is_null() {
        return Err(sys::OMPI_ERR_BUFFER);
    }
    // SAFETY: as long as the message; this function's rule.
    if unsafe { datatype::take(data, extent, place) } {
        return Ok((Extent { start: place, length: extent.length }, place));
    }
    // SAFETY: just given.
    unsafe { sys::mca_pml_base_bsend_request_free(place.cast()) };
    Err(sys::OPAL_ERROR)
}

/// Begins a send: posts it, or lets it wait. It may be finished, and gone, when this returns, unless a blocking call
/// has it.
///
/// # Safety
/// A send of the PML's that is filled in, and the caller's alone until now.
pub(crate) unsafe fn begin(pml: &Pml, request: NonNull<Request>) {
    // SAFETY: this function's rule.
    let (comm, to) = unsafe { ((*request.as_ptr()).comm(), (*request.as_ptr()).peer) };
    // SAFETY: this function's rule.
    if unwatched().is_none() && unsafe { request.as_ref() }.attached.is_null() {
        // SAFETY: as above.
        unsafe { watch::from_outside(pml, request, Event::Activate) };
    }
    // SAFETY: MPI's arguments.
    let link = unsafe { peer::link(pml, comm, to) };
    let mut state = pml.enter().expect("whoever has a request to begin has entered the PML before, and left it");
    match link {
        // SAFETY: this function's rule.
        Some(link) => unsafe { protocol::begin(pml, &mut state, request, link) },
        None => _ = transmit::failed(&mut state),
    }
    leave(pml, state);
}

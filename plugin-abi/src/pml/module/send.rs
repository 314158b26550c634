// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_send` and `pml_isend`: [`at_once`] sends a short contiguous message, [`copied_at_once`] a longer one, if they
//! can; any other message has a request, and `engine::messenger::send` sends it.
//!
//! A blocking send returns when the adapter has the message, because its caller may stay away from MPI. Grade: hot.
//! Threads: any. Tests: `pt2pt_modes.c` and others in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};

use engine::messenger;
use engine::messenger::events::at_once::raise_at_once;
use engine::messenger::events::{self, Raised};
use engine::messenger::header::MAX_SIZE;
use engine::messenger::rails;
use engine::messenger::route::Route;
use engine::transport::Sent;
use ibex_ffi::openmpi::sys;

use super::{Answer, Code, answer, enter, there};
use crate::pml::communicator::{Comm, Communicator};
use crate::pml::datatype::{Attached, Buffer, Datatype, Description, Extent, UserData};
use crate::pml::host::finish;
use crate::pml::instance::{Pml, Rail, State, pml, unwatched};
use crate::pml::peers::route;
use crate::pml::progress::{leave, leave_call, poll, until};
use crate::pml::request::{Call, Handle, Mode, Owner, Place, Request, Role};
use crate::pml::tools::{self, listening};
use crate::runtime::device::Port;
use crate::runtime::exclusive::Entered;
use crate::runtime::libmpi;
use crate::runtime::listeners::Event;
use crate::runtime::token::Tag;
use crate::runtime::variables::now;

#[inline]
pub(crate) fn mode_of(mode: sys::mca_pml_base_send_mode_t) -> Mode {
    match mode {
        sys::MCA_PML_BASE_SEND_SYNCHRONOUS => Mode::Synchronous,
        sys::MCA_PML_BASE_SEND_BUFFERED => Mode::Buffered,
        _ => Mode::Standard,
    }
}

pub(crate) extern "C" fn pml_send(
    buffer: Buffer<*const c_void>,
    count: usize,
    datatype: Datatype,
    peer: c_int,
    tag: c_int,
    mode: sys::mca_pml_base_send_mode_t,
    comm: Comm,
) -> c_int {
    answer("pml_send", || {
        let call = Call { data: Description::new(buffer.to_send(), count, datatype), peer, tag, comm };
        if is_sent_at_once::<true>(&call, mode) {
            return Ok(());
        }
        send_blocking(&call, mode_of(mode))
    })
}

pub(crate) extern "C" fn pml_isend(
    buffer: Buffer<*const c_void>,
    count: usize,
    datatype: Datatype,
    peer: c_int,
    tag: c_int,
    mode: sys::mca_pml_base_send_mode_t,
    comm: Comm,
    place: Place<'_>,
) -> c_int {
    answer("pml_isend", || {
        let call = Call { data: Description::new(buffer.to_send(), count, datatype), peer, tag, comm };
        if is_sent_at_once::<false>(&call, mode) {
            place.write(libmpi::request_empty());
            return Ok(());
        }
        send_nonblocking(&call, mode_of(mode), place)
    })
}

/// Sends a contiguous message without a request, if its mode permits it and it can be done now. A `BLOCKING` call has
/// one more way while a tool listens.
#[inline(always)]
pub(crate) fn is_sent_at_once<const BLOCKING: bool>(call: &Call, mode: sys::mca_pml_base_send_mode_t) -> bool {
    if mode < sys::MCA_PML_BASE_SEND_READY {
        return false;
    }
    let extent = call.data.extent();
    !extent.start.is_null() && (at_once::<BLOCKING>(call, extent) || copied_at_once(call, extent))
}

/// Sends a short message inside the work request, without entering the PML, if that can be done now.
#[inline(always)]
fn at_once<const BLOCKING: bool>(call: &Call, extent: Extent) -> bool {
    let communicator = call.comm.part();
    let route = communicator.routes.short_cut(call.peer);
    let Some(mut port) = communicator.enter_first(route) else {
        return at_once_otherwise::<BLOCKING>(call, extent);
    };
    let header = communicator.sender.header(call.tag);
    inline(&mut port, route, &header, extent)
}

/// [`at_once`] by shared memory or by one port of several, or while a tool listens. Looks the route up again, because
/// the fast path does not store it. Returns false for a marked route ([`Route::marked`]).
#[inline(never)]
fn at_once_otherwise<const BLOCKING: bool>(call: &Call, extent: Extent) -> bool {
    let communicator = call.comm.part();
    let route = communicator.routes.short_cut(call.peer);
    if BLOCKING && route == Route::UNKNOWN && at_once_with_events(call, extent, communicator) {
        return true;
    }
    let header = communicator.sender.header(call.tag);
    let Some(to) = route.as_local() else {
        return inline_by_home(route, &header, extent);
    };
    pml().and_then(Pml::shared_memory).is_some_and(|shared| shared.send_at_once(to, &header, extent.span()))
}

/// Returns the PML and its only port, if that carries messages by this route, and one of this length is no longer than
/// the eager limit. A tool may set the limit to more than a send buffer has.
#[inline(always)]
fn only_rail(route: Route, length: usize) -> Option<(&'static Pml, &'static Rail)> {
    let pml = pml()?;
    let rail = pml.rails().first()?;
    (route.is_open_single_rail() && length + MAX_SIZE <= now::eager_limit_as_written()).then_some((pml, rail))
}

/// Sends a message, no longer than the eager limit, from a send buffer, if that can be done now.
#[inline(never)]
fn copied_at_once(call: &Call, extent: Extent) -> bool {
    let communicator = call.comm.part();
    let route = communicator.routes.short_cut(call.peer);
    let Some((pml, rail)) = only_rail(route, extent.length) else { return false };
    let Some(mut state) = pml.enter() else { return false };
    let Some(mut port) = rail.enter() else { return false };
    let header = communicator.sender.header(call.tag);
    copied(&mut state, &mut port, route, &header, extent)
}

/// Sends a message of a blocking call, no longer than the eager limit, while a tool listens. The message has a request
/// only if it cannot be sent at once.
#[inline(always)]
fn at_once_with_events(call: &Call, extent: Extent, communicator: &'static Communicator) -> bool {
    let route = communicator.routes.route(call.peer);
    let Some((pml, rail)) = only_rail(route, extent.length) else { return false };
    let Some(mut state) = pml.enter() else { return false };
    let Some(listeners) = call.comm.listeners(&state) else { return false };
    let spec = tools::spec(call, tools::SEND, extent.length);
    let has_room = rail.enter().is_some_and(|port| port.has_room(route.to()));
    let header = communicator.sender.header(call.tag);
    // Leaves the port before the next listener is called.
    let post = |state: &mut State| {
        rail.enter().is_some_and(|mut port| {
            inline(&mut port, route, &header, extent) || copied_apart(state, &mut port, route, &header, extent)
        })
    };
    match raise_at_once(pml, &mut *state, listeners, (communicator, route), spec, has_room, post) {
        Ok(()) => {
            leave(pml, state);
            listening::returns(call.tag);
        }
        Err((id, raised)) => begun(pml, state, call, (id, route), raised),
    }
    true
}

#[inline(never)]
fn copied_apart(state: &mut State, port: &mut Port, route: Route, header: &[u8], extent: Extent) -> bool {
    copied(state, port, route, header, extent)
}

/// Sends the message of a blocking call that [`at_once_with_events`] could not post, by a request, and waits for it.
/// The events so far have the number `id`; `raised` are those of the transfer.
#[cold]
#[inline(never)]
fn begun(pml: &Pml, mut state: Entered<'_, State>, call: &Call, (id, route): (u64, Route), raised: Raised) {
    let request = take(&mut state, Mode::Standard, Owner::WatchedCall, call);
    events::set_number(&mut *state, request, id);
    state.requests.get(request).core.watched.raised = raised;
    messenger::send::begin(pml, &mut *state, request, route);
    wait(pml, state, request);
    listening::returns(call.tag);
}

/// Waits for the send of a blocking call, which has begun, and gives its request back.
fn wait<'pml>(pml: &'pml Pml, mut state: Entered<'pml, State>, request: Handle) {
    let is_finished = |state: &mut State| state.requests.get(request).is_finished();
    if !is_finished(&mut state) {
        state = until(pml, state, is_finished, poll);
    }
    events::raise(&mut *state, request, Event::Notify);
    state.requests.core(request).watched.renew(0);
    state.requests.give_back(request);
    leave_call(pml, state);
}

#[inline(never)]
fn send_blocking(call: &Call, mode: Mode) -> Answer {
    let pml = there()?;
    let is_watched = unwatched().is_none();
    let owner = if is_watched { Owner::WatchedCall } else { Owner::Call };
    let (state, request) = start(pml, call, mode, owner)?;
    match request {
        Some(request) => wait(pml, state, request),
        None => leave(pml, state),
    }
    if is_watched {
        listening::returns(call.tag);
    }
    Ok(())
}

#[inline(never)]
fn send_nonblocking(call: &Call, mode: Mode, place: Place<'_>) -> Answer {
    let pml = there()?;
    let (state, request) = start(pml, call, mode, Owner::Mpi)?;
    // Written before the PML is left, so before a callback sees the request. Without a request MPI gets the one that is
    // always complete, which is never freed.
    place.write(request.map_or_else(libmpi::request_empty, Request::as_raw));
    leave(pml, state);
    Ok(())
}

/// Takes a request and fills it in.
pub(super) fn take(state: &mut State, mode: Mode, owner: Owner, call: &Call) -> Handle {
    let request = state.requests.take();
    state.requests.get(request).fill(Role::Send(mode), owner, call);
    request
}

/// How a message goes: its route, and for a buffered send the copy that is sent instead.
pub(crate) struct Way {
    route: Option<Route>,
    copy: Option<(Attached, UserData)>,
}

/// Looks up the route of a message, copies a buffered one to attached memory, and enters the PML.
///
/// # Errors
/// There is no memory for the copy, it cannot be made, or this thread has entered the PML.
pub(crate) fn prepare<'pml>(pml: &'pml Pml, call: &Call, mode: Mode) -> Result<(Entered<'pml, State>, Way), Code> {
    let copy = if mode == Mode::Buffered { Some(Attached::copy(&call.data)?) } else { None };
    let route = route(pml, call.comm, call.peer);
    Ok((enter(pml)?, Way { route, copy }))
}

/// Begins a send, and returns its request, if MPI or a tool is to see it; the request may be finished then.
pub(crate) fn start<'pml>(
    pml: &'pml Pml,
    call: &Call,
    mode: Mode,
    owner: Owner,
) -> Result<(Entered<'pml, State>, Option<Handle>), Code> {
    let (mut state, way) = prepare(pml, call, mode)?;
    match way {
        Way { route, copy: Some(copy) } if unwatched().is_some() => {
            send_copy(pml, &mut state, call, (copy, route), 0);
            Ok((state, None))
        }
        way => {
            let request = take(&mut state, mode, owner, call);
            begin(pml, &mut state, request, way);
            Ok((state, Some(request)))
        }
    }
}

/// Begins a send that is filled in. A buffered one is finished at once, and another request sends its copy.
pub(super) fn begin(pml: &Pml, state: &mut State, request: Handle, Way { route, copy }: Way) {
    events::raise(state, request, Event::Activate);
    let Some(copy) = copy else { return begin_by(pml, state, request, route) };
    let id = if unwatched().is_some() { 0 } else { events::number_of(state, request) };
    let call = state.requests.get(request).call();
    send_copy(pml, state, &call, (copy, route), id);
    finish(state, request);
}

/// Sends the copy of a message. Tools know it by `id`.
fn send_copy(
    pml: &Pml,
    state: &mut State,
    call: &Call,
    ((attached, data), route): ((Attached, UserData), Option<Route>),
    id: u64,
) {
    let request = take(state, Mode::Standard, Owner::Nobody, call);
    let r = state.requests.get(request);
    (r.shell.attached, r.core.data) = (Some(attached), data);
    if id != 0 {
        events::set_number(state, request, id);
    }
    begin_by(pml, state, request, route);
}

/// Posts a message, or lets it wait. Without a route the job ends.
fn begin_by(pml: &Pml, state: &mut State, request: Handle, route: Option<Route>) {
    match route {
        Some(route) => messenger::send::begin(pml, state, request, route),
        None => state.fails(),
    }
}

/// Sends header and contiguous data inside the work request. Returns false if that cannot be done now.
#[inline(always)]
fn inline(port: &mut Port, route: Route, header: &[u8], extent: Extent) -> bool {
    port.send_inline(route.to(), Tag::PML.0, header.into(), extent.span()) == Ok(Sent::Posted)
}

/// [`inline`] by one port of several, if it is the peer's home.
#[inline(never)]
fn inline_by_home(route: Route, header: &[u8], extent: Extent) -> bool {
    if !route.is_open_multi_rail() {
        return false;
    }
    let Some(rail) = pml().and_then(|pml| pml.rails().get(route.rail())) else { return false };
    let Some(mut port) = rail.enter() else { return false };
    if !port.sent(route.to()).is_home {
        return false;
    }
    if !inline(&mut port, route, header, extent) {
        return false;
    }
    rails::routes::note(&mut port, route, true);
    true
}

/// Sends header and contiguous data from a send buffer. Returns false if that cannot be done now.
#[inline(always)]
fn copied(state: &mut State, port: &mut Port, route: Route, header: &[u8], extent: Extent) -> bool {
    let buffers = &mut state.messenger.rails.buffers[route.rail()];
    let Some((buffer, span)) = buffers.take(port, header.len() + extent.length) else { return false };
    // SAFETY: R1, R2: just taken, so only this call uses the buffer, which is as long as both; P2: the data may be
    // read.
    unsafe {
        let start = span.bytes_mut().as_mut_ptr();
        start.copy_from_nonoverlapping(header.as_ptr(), header.len());
        start.add(header.len()).copy_from_nonoverlapping(extent.start, extent.length);
    }
    rails::transmit::post::<State>(buffers, port, route, (buffer, span))
}

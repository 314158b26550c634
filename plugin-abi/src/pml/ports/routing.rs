// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends messages to a peer: by shared memory (`local`), or by the port that is the peer's home now. If that port
//! fails, sends by another one.
//!
//! Called by `ports` and `failover`. Grade: hot for [`message`], else pending. Threads: the one that has entered the
//! PML. Tests: `rail_down.c` in `hw-tests/mpi`.

use engine::messenger::header::Header;
use engine::messenger::host::Data;
use engine::messenger::route::Route;

use super::local::{Payload, Then, send_now};
use super::transmit::{self, Transmitted};
use super::{failover, rails};
use crate::pml::datatype::Extent;
use crate::pml::instance::{Pml, State};
use crate::pml::request::Handle;

/// Sends a message without data. Its completion is not reported.
pub(crate) fn control(pml: &Pml, state: &mut State, route: Route, header: &Header) {
    match (route.as_local(), pml.shared_memory()) {
        (Some(to), Some(shared)) => {
            state.backlog.send(shared, to, header, Payload::InPlace(Extent::EMPTY), Then::Nothing);
        }
        _ => bytes(pml, state, route, header.encode().as_slice()),
    }
}

/// [`control`] by a port.
pub(crate) fn bytes(pml: &Pml, state: &mut State, route: Route, message: &[u8]) {
    by_home(pml, state, route, |route| transmit::control_by(pml, route, message));
}

/// Queues the turn of messages to a peer that pend for room ([`super::flow::has_turn`]).
pub(crate) fn queue_turn(pml: &Pml, state: &mut State, route: Route) {
    match (route.as_local(), pml.shared_memory()) {
        (Some(to), Some(shared)) => state.backlog.queue_turn(shared, to),
        _ => by_home(pml, state, route, |route| transmit::queue_turn_by(pml, route)),
    }
}

/// Calls `give` with the peer's home, and again with another one while it returns false. If none is left, the job ends.
fn by_home(pml: &Pml, state: &mut State, route: Route, give: impl Fn(Route) -> bool) {
    loop {
        let route = rails::home(pml, state, route);
        if give(route) {
            return;
        }
        if !failover::fails_over(pml, state, route) {
            transmit::failed(state);
            return;
        }
    }
}

/// Sends header and data of a send, together no longer than the rail's eager limit. If the message has to wait, the
/// port takes a copy, and once that is sent, the request is finished if `finishes`.
pub(crate) fn message(
    pml: &Pml,
    state: &mut State,
    route: Route,
    header: &Header,
    request: Handle,
    finishes: bool,
) -> Transmitted {
    if let Some(to) = route.as_local() {
        return locally(pml, state, to, header, request);
    }
    let route = rails::home(pml, state, route);
    transmit::message_by(pml, state, route, header.encode().as_slice(), request, finishes)
}

/// [`message`] by shared memory.
#[inline(never)]
fn locally(pml: &Pml, state: &mut State, to: u32, header: &Header, request: Handle) -> Transmitted {
    let Some(shared) = pml.shared_memory() else { return transmit::failed(state) };
    if state.backlog.waits_for(to) {
        return Transmitted::NoRoom;
    }
    let core = state.requests.core(request);
    let (mut extent, mut packed) = (core.data.extent(), Vec::new());
    if extent.start.is_null() {
        packed.resize(extent.length, 0);
        if !core.data.take_all(&mut packed) {
            return transmit::cannot_pack(state, extent.length);
        }
        extent.start = packed.as_mut_ptr();
    }
    // SAFETY: P2: the data of a send that is not finished, or `packed`.
    if unsafe { send_now(shared, to, header, extent) } { Transmitted::Posted } else { Transmitted::NoRoom }
}

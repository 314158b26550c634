// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends messages to a peer: by shared memory (`local`), or by the port that is the peer's home now. If that port
//! fails, sends by another one.
//!
//! Called by `protocol` and `flow`, and by all modules that answer a peer. Grade: hot for [`message`], else pending.
//! Threads: the one that has entered the PML. Tests: `rail_down.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::header::Header;
use engine::messenger::link::Link;

use super::datatype::{self, Data, Extent};
use super::instance::{Pml, State};
use super::local::{Payload, Then, send_now};
use super::request::Request;
use super::transmit::{self, Transmitted};
use super::{moving, rails};

/// Sends a message without data. Its completion is not reported.
pub(crate) fn control(pml: &Pml, state: &mut State, link: Link, header: &Header) -> Transmitted {
    if let Some(to) = link.as_local() {
        let Some(shared) = pml.shared_memory() else { return transmit::failed(state) };
        let nothing = Payload::InPlace(Extent::EMPTY);
        let has_gone = state.backlog.send(shared, to, header, nothing, Then::Nothing);
        return if has_gone { Transmitted::Posted } else { Transmitted::Waits };
    }
    bytes(pml, state, link, header.encode().as_slice())
}

/// [`control`] by a port.
pub(crate) fn bytes(pml: &Pml, state: &mut State, link: Link, message: &[u8]) -> Transmitted {
    by_home(pml, state, link, |link| transmit::control_by(pml, link, message))
}

/// Queues the turn of messages to a peer that pend for room ([`super::flow::has_turn`]).
pub(crate) fn queue_turn(pml: &Pml, state: &mut State, link: Link) {
    match (link.as_local(), pml.shared_memory()) {
        (Some(to), Some(shared)) => state.backlog.queue_turn(shared, to),
        _ => _ = by_home(pml, state, link, |link| transmit::queue_turn_by(pml, link)),
    }
}

/// Calls `give` with the peer's home, and again with another one while that fails. If none is left, the job ends.
fn by_home(pml: &Pml, state: &mut State, link: Link, give: impl Fn(Link) -> Transmitted) -> Transmitted {
    loop {
        let link = rails::route(pml, state, link);
        let transmitted = give(link);
        if transmitted != Transmitted::Failed {
            return transmitted;
        }
        if !moving::goes_on(pml, state, link) {
            return transmit::failed(state);
        }
    }
}

/// Sends header and data, together no longer than the rail's eager limit. `request` is finished when the port has taken
/// a copy of the message that had to wait, and has sent it.
///
/// # Safety
/// `extent` describes `data`, which may be read during the call.
pub(crate) unsafe fn message(
    pml: &Pml,
    state: &mut State,
    link: Link,
    header: &Header,
    (data, extent): (&Data, Extent),
    request: Option<NonNull<Request>>,
) -> Transmitted {
    if let Some(to) = link.as_local() {
        // SAFETY: P2: the data may be read during the call.
        return unsafe { locally(pml, state, to, header, (data, extent)) };
    }
    let link = rails::route(pml, state, link);
    // SAFETY: P2: the data may be read during the call.
    unsafe { transmit::message_by(pml, state, link, header.encode().as_slice(), (data, extent), request) }
}

/// [`message`] by shared memory.
#[inline(never)]
unsafe fn locally(
    pml: &Pml,
    state: &mut State,
    to: u32,
    header: &Header,
    (data, mut extent): (&Data, Extent),
) -> Transmitted {
    let Some(shared) = pml.shared_memory() else { return transmit::failed(state) };
    if state.backlog.waits_for(to) {
        return Transmitted::NoRoom;
    }
    let mut packed = Vec::new();
    if extent.start.is_null() {
        packed.resize(extent.length, 0);
        // SAFETY: P2: the data may be read during the call; `packed` is as long as the message.
        if !unsafe { datatype::take(data, extent, packed.as_mut_ptr()) } {
            return transmit::cannot_pack(state, extent.length);
        }
        extent.start = packed.as_mut_ptr();
    }
    // SAFETY: P2: the data may be read during the call, or it is `packed`.
    if unsafe { send_now(shared, to, header, extent) } { Transmitted::Posted } else { Transmitted::NoRoom }
}

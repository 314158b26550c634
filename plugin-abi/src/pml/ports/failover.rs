// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failover: when a port goes down, comes back, or cannot be connected to a peer, messages move to another port
//! (ARCHITECTURE.md, "Several ports"). `engine::messenger::rails` chooses the port, and the order of the messages; this
//! file moves them, and hands them on.
//!
//! Called by `progress`, `routing`, `fragment` and `ports`. Grade: setup. Threads: the one that has entered the PML,
//! and no port. Tests: `pml/tests.rs`, and `rail_down.c` in `hw-tests/mpi`.

use std::ptr::NonNull;
use std::sync::Arc;

use engine::messenger::header::{Header, MAX_SIZE};
use engine::messenger::rails::Turn;
use engine::messenger::route::Route;
use engine::transport::{Cause, Failure, Immediate, Token, Unposted};

use super::buffer::{Content, SendBuffer};
use super::token::{self, Record};
use super::transmit::{self, Transmitted};
use super::{rails, routing};
use crate::pml::incoming::{self, ByRail, Sender};
use crate::pml::instance::{Pml, Rail, State};
use crate::pml::request::Handle;
use crate::pml::tools::transfers;
use crate::runtime::watch::Completed;
use crate::runtime::{failures, messages, poller};

/// Copy of a message that arrived too early, in the reorder buffer.
pub(crate) struct Held {
    bytes: Box<[u8]>,
    by: ByRail,
    /// Completion that reported the message, while a tool listens.
    completed: Option<Completed>,
}

/// Moves peers when the port of a rail has lost its link, or has it back.
#[cold]
pub(crate) fn link_changed(pml: &Pml, state: &mut State, rail: usize, is_up: bool) {
    if !pml.is_multi_rail() {
        return;
    }
    divert(&pml.rails()[rail], is_up);
    for peer in 0..state.multi_rail.peers.len() {
        let to = state.multi_rail.peers[peer].moves(rail, is_up, |route| rails::is_usable(pml, route));
        if let Some(to) = to
            && !move_to(pml, state, peer, to)
        {
            transmit::failed(state);
        }
    }
}

/// Diverts all peers from a port that went down, so that it probes none, or lets them return; informs the user. The BTL
/// does this if it has ever had a port.
fn divert(rail: &Rail, is_up: bool) {
    if poller::has_btl() {
        return;
    }
    let Some(mut port) = rail.enter() else { return };
    if is_up {
        port.undivert(|_| true);
        messages::rail_back(rail.port().place());
    } else {
        port.divert_all(|_| false);
        messages::rail_down(rail.port().place());
    }
}

/// Gives up a connection that has failed; if it is the peer's home, another port carries its messages. Returns false if
/// a message is lost, or no port is left.
#[cold]
pub(crate) fn fails_over(pml: &Pml, state: &mut State, failed: Route) -> bool {
    if !pml.is_multi_rail() {
        return false;
    }
    let Some(peer) = rails::of(pml, state, failed) else { return false };
    let Some(rail) = pml.rails().get(failed.rail()) else { return false };
    let Some((failure, was_noticed)) = give_up(rail, failed) else { return false };
    let known = &state.multi_rail.peers[peer];
    let is_home = known.home.rail() == failed.rail();
    let other = known.other_than(failed.rail(), |route| rails::is_usable(pml, route));
    let Some(other) = other else { return false };
    if is_home && !move_to(pml, state, peer, other) {
        return false;
    }
    if !was_noticed {
        tell(rail, &failure, pml.rails()[other.rail()].port().place());
    }
    true
}

/// Returns why a connection failed, and whether this was called for it before. `None` if it has not failed, or if it
/// has lost messages.
fn give_up(rail: &Rail, failed: Route) -> Option<(Failure, bool)> {
    let mut port = rail.enter()?;
    let failure = port.failure(failed.to())?.clone();
    if port.has_lost(failed.to()) {
        return None;
    }
    let sent = rail.sent(&mut port, failed.to());
    Some((failure, std::mem::replace(&mut sent.is_given_up, true)))
}

/// Tells the user that a port is not used any more, unless the BTL does.
fn tell(rail: &Rail, failure: &Failure, other: &str) {
    if poller::has_btl() && matches!(failure.cause, Cause::Connect(_)) {
        return;
    }
    if let Some(mut port) = rail.enter() {
        failures::tell_but(&mut port, &failure.to_string());
    }
    messages::rail_unusable(failure, other);
}

/// Moves a peer's messages to another route. Returns false if a message that must move with them cannot be queued
/// there.
fn move_to(pml: &Pml, state: &mut State, peer: usize, to: Route) -> bool {
    let (from, segment) = state.multi_rail.peers[peer].move_to(to);
    let Some((count, unposted)) = leave(pml, from) else { return false };
    let Unsent { moves, messages } = unposted;
    // First, the `Moved` of earlier moves, which the other port has not sent.
    if !moves.into_iter().all(|message| send_moved(pml, to, &message)) {
        return false;
    }
    let header = Header::Moved { segment, count }.encode();
    if !send_moved(pml, to, header.as_slice()) {
        return false;
    }
    if let Some(rail) = pml.rails().get(to.rail())
        && let Some(mut port) = rail.enter()
    {
        let sent = rail.sent(&mut port, to.to());
        (sent.count, sent.is_home) = (0, true);
    }
    let has_sent = messages.into_iter().all(|message| send_again(pml, state, (from, to), message));
    if state.messenger.flow.outgoing.is_full(state.multi_rail.peers[peer].account()) {
        routing::queue_turn(pml, state, to);
    }
    has_sent
}

/// Tells the peer of a move, by a message that is not counted.
fn send_moved(pml: &Pml, to: Route, header: &[u8]) -> bool {
    let Some(mut port) = pml.rails().get(to.rail()).and_then(Rail::enter) else { return false };
    transmit::queue(&mut port, to, (Arc::from(header), header.len() as u32), Token(0)) != Transmitted::Failed
}

/// Messages that waited at a port, to be sent by another one.
struct Unsent {
    moves: Vec<Box<[u8]>>,
    messages: Vec<Unposted>,
}

/// Stops sending by a route. Returns how many messages went by it, and those that never reached the adapter, in order.
fn leave(pml: &Pml, from: Route) -> Option<(u32, Unsent)> {
    let rail = pml.rails().get(from.rail())?;
    let mut port = rail.enter()?;
    let (mut moves, mut messages) = (Vec::new(), Vec::new());
    port.end_turn(from.to(), token::turn());
    for message in port.take_unposted(from.to()) {
        match &message {
            Unposted::Bytes { bytes, length, .. } if is_move(&bytes[..*length as usize]) => {
                moves.push((**bytes).into());
            }
            _ => messages.push(message),
        }
    }
    let sent = rail.sent(&mut port, from.to());
    sent.is_home = false;
    Some((sent.count.wrapping_sub(messages.len() as u32), Unsent { moves, messages }))
}

fn is_move(message: &[u8]) -> bool {
    matches!(Header::decode(message), Some((Header::Moved { .. }, _)))
}

/// Sends by another port a message that never reached the adapter.
fn send_again(pml: &Pml, state: &mut State, (from, to): (Route, Route), message: Unposted) -> bool {
    match message {
        Unposted::Bytes { bytes, length, token } => queue(pml, to, (bytes, length), token),
        // SAFETY: P1: the engine returns the message with its token.
        Unposted::Spans { spans, token } => match unsafe { token::record(token) } {
            // SAFETY: R2: the engine returns each message once, and this buffer is the PML's: filled, and ours alone.
            Some(Record::Buffer(buffer)) => unsafe {
                send_buffer_again(pml, state, (from, to), buffer, spans[0].len())
            },
            _ => false,
        },
    }
}

/// Sends the contents of a buffer of `from`'s port by the route `to`, and gives the buffer back.
pub(crate) unsafe fn send_buffer_again(
    pml: &Pml,
    state: &mut State,
    (from, to): (Route, Route),
    buffer: NonNull<SendBuffer>,
    length: u32,
) -> bool {
    // SAFETY: P3, R1, R2: the buffer has `length` bytes and is ours alone.
    let (content, bytes) = unsafe {
        let buffer = &*buffer.as_ptr();
        (buffer.content, std::slice::from_raw_parts(buffer.start(), length as usize))
    };
    let is_sent = match content {
        Content::Fragment(request) => send_fragment_again(pml, to, bytes, request),
        // The port queues no message that is in a buffer.
        Content::Silent => false,
    };
    // SAFETY: P3, R2: the buffer belongs to the port of `from`, and is ours alone.
    unsafe { state.buffers[from.rail()].give_back(buffer) };
    is_sent
}

/// Sends a fragment from ordinary memory, in parts, because a message that waits in ordinary memory may not be as long.
/// The last part has the token of the fragment.
fn send_fragment_again(pml: &Pml, to: Route, fragment: &[u8], request: Handle) -> bool {
    let Some(rail) = pml.rails().get(to.rail()) else { return false };
    let Some((Header::Fragment { receive, offset }, data)) = Header::decode(fragment) else { return false };
    let room = rail.copy_size - MAX_SIZE;
    let last = data.len().saturating_sub(1) / room;
    data.chunks(room).enumerate().all(|(index, data)| {
        let header = Header::Fragment { receive, offset: offset + (index * room) as u64 }.encode();
        let bytes: Arc<[u8]> = [header.as_slice(), data].concat().into();
        let length = bytes.len() as u32;
        queue(pml, to, (bytes, length), if index == last { token::sent(request) } else { Token(0) })
    })
}

pub(crate) fn queue(pml: &Pml, to: Route, bytes: (Arc<[u8]>, u32), token: Token) -> bool {
    let Some(rail) = pml.rails().get(to.rail()) else { return false };
    let Some(mut port) = rail.enter() else { return false };
    let transmitted = transmit::queue(&mut port, to, bytes, token);
    transmit::note(pml, rail, &mut port, to, transmitted);
    transmitted != Transmitted::Failed
}

/// Whether the port has the endpoint that a message names.
#[cold]
fn is_there(pml: &Pml, rail: usize, from: Immediate) -> bool {
    let port = pml.rails().get(rail).and_then(Rail::enter);
    port.is_some_and(|port| port.peer_name(from.endpoint()).is_some())
}

/// Handles a message, and those in the reorder buffer that waited for it.
#[inline(never)]
pub(crate) fn message(pml: &Pml, state: &mut State, bytes: &[u8], by: ByRail) {
    let ByRail { rail, immediate, .. } = by;
    if let Some((Header::Moved { segment, count }, _)) = Header::decode(bytes) {
        return moved(pml, state, by, (segment, count));
    }
    let copied = || Held { bytes: bytes.into(), by, completed: transfers::completion() };
    match state.multi_rail.arrives(rail, immediate.endpoint(), || is_there(pml, rail, immediate), copied) {
        Turn::Later => {}
        Turn::Now => incoming::message(pml, state, bytes, Sender::ByRail(by)),
        Turn::NowAndHeld(peer) => {
            incoming::message(pml, state, bytes, Sender::ByRail(by));
            release(pml, state, peer);
        }
    }
}

/// Notes that the sender has moved to this port.
#[cold]
fn moved(pml: &Pml, state: &mut State, by: ByRail, segment: (u32, u32)) {
    let Some(peer) = by.route(pml).and_then(|from| rails::of(pml, state, from)) else { return };
    state.multi_rail.moved(peer, by.rail, segment);
    release(pml, state, peer);
}

/// Handles messages in the reorder buffer whose turn has come.
fn release(pml: &Pml, state: &mut State, peer: usize) {
    while let Some(Held { bytes, by, completed }) = state.multi_rail.release(peer) {
        transfers::completed(completed);
        incoming::message(pml, state, &bytes, Sender::ByRail(by));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failover: when a port goes down, comes back, or cannot be connected to a peer, messages move to another port
//! (ARCHITECTURE.md, "Several ports"). `peer` chooses the port, `reorder_buffer` keeps the order at the receiver.
//!
//! Called by `completions`, `transmit`, `fragment` and the protocols. Grade: setup. Threads: the one that has entered
//! the messenger, and no port. Tests: those of the hosts.

use std::sync::Arc;

use super::routes;
use super::send_buffers::{BufferId, Content};
use super::transmit::{self, queue_by};
use crate::messenger::header::{Header, MAX_SIZE};
use crate::messenger::host::{PortHost, Ports, Process, Record, Transmitted};
use crate::messenger::route::Route;
use crate::transport::{Failure, Token, Unposted};
use ibex_ffi::verbs::LocalSpan;

/// Moves peers when the port of a rail has lost its link, or has it back.
#[cold]
pub fn link_changed<H: PortHost>(process: &H::Process, host: &mut H, rail: usize, is_up: bool) {
    if !process.is_multi_rail() {
        return;
    }
    host.link_changed(process, rail, is_up);
    for peer in 0..host.messenger().rails.multi_rail.peers.len() {
        let known = &host.messenger().rails.multi_rail.peers[peer];
        let to = known.moves(rail, is_up, |route| routes::is_usable(process, route));
        if let Some(to) = to
            && !move_to(process, host, peer, to)
        {
            host.fails();
        }
    }
}

/// Gives up a connection that has failed; if it is the peer's home, another port carries its messages. Returns false if
/// a message is lost, or no port is left.
#[cold]
pub fn fails_over<H: PortHost>(process: &H::Process, host: &mut H, failed: Route) -> bool {
    if !process.is_multi_rail() {
        return false;
    }
    let Some(peer) = routes::peer_of(process, host, failed) else { return false };
    let Some((failure, was_noticed)) = give_up(process, failed) else { return false };
    let known = &host.messenger().rails.multi_rail.peers[peer];
    let is_home = known.home.rail() == failed.rail();
    let other = known.other_than(failed.rail(), |route| routes::is_usable(process, route));
    let Some(other) = other else { return false };
    if is_home && !move_to(process, host, peer, other) {
        return false;
    }
    if !was_noticed {
        host.gives_up(process, failed.rail(), &failure, other.rail());
    }
    true
}

/// Drops the messages that a port has kept for a lost peer, and gives their send buffers back: sends to other peers may
/// wait for them.
#[cold]
pub fn drop_unposted<H: PortHost>(process: &H::Process, host: &mut H, lost: Route) {
    let Some(messages) = process.enter_port(lost.rail()).map(|mut port| port.take_unposted(lost.to())) else { return };
    for message in messages {
        if let Unposted::Spans { token, .. } = message
            && let Some(Record::Buffer(buffer)) = H::record_of(token)
        {
            host.messenger().rails.buffers[lost.rail()].give_back(buffer);
        }
    }
}

/// Returns why a connection failed, and whether this was called for it before. `None` if it has not failed, or if it
/// has lost messages.
fn give_up<P: Process>(process: &P, failed: Route) -> Option<(Failure, bool)> {
    let mut port = process.enter_port(failed.rail())?;
    let failure = port.failure(failed.to())?.clone();
    if port.has_lost(failed.to()) {
        return None;
    }
    Some((failure, std::mem::replace(&mut port.sent(failed.to()).is_given_up, true)))
}

/// Moves a peer's messages to another route. Returns false if a message that must move with them cannot be queued
/// there.
fn move_to<H: PortHost>(process: &H::Process, host: &mut H, peer: usize, to: Route) -> bool {
    let (from, segment) = host.messenger().rails.multi_rail.peers[peer].move_to(to);
    let Some((count, Unsent { moves, messages })) = leave::<H>(process, from) else { return false };
    // First, the `Moved` of earlier moves, which the other port has not sent.
    if !moves.into_iter().all(|message| send_moved::<H>(process, to, &message)) {
        return false;
    }
    let header = Header::Moved { segment, count }.encode();
    if !send_moved::<H>(process, to, header.as_slice()) {
        return false;
    }
    if let Some(mut port) = process.enter_port(to.rail()) {
        let sent = port.sent(to.to());
        (sent.count, sent.is_home) = (0, true);
    }
    let has_sent = messages.into_iter().all(|message| send_again(process, host, (from, to), message));
    let messenger = host.messenger();
    if messenger.flow.outgoing.is_full(messenger.rails.multi_rail.peers[peer].account()) {
        Ports::queue_turn(host, process, to);
    }
    has_sent
}

/// Tells the peer of a move, by a message that is not counted.
fn send_moved<H: PortHost>(process: &H::Process, to: Route, message: &[u8]) -> bool {
    let Some(mut port) = process.enter_port(to.rail()) else { return false };
    let bytes = (Arc::from(message), message.len() as u32);
    transmit::queue::<H>(&mut port, to, bytes, Token(0)) != Transmitted::Failed
}

/// Messages that waited at a port, to be sent by another one.
struct Unsent {
    moves: Vec<Box<[u8]>>,
    messages: Vec<Unposted>,
}

/// Stops sending by a route. Returns how many messages went by it, and those that never reached the adapter, in order.
fn leave<H: PortHost>(process: &H::Process, from: Route) -> Option<(u32, Unsent)> {
    let mut port = process.enter_port(from.rail())?;
    let (mut moves, mut messages) = (Vec::new(), Vec::new());
    port.end_turn(from.to(), H::token(Record::Turn));
    for message in port.take_unposted(from.to()) {
        match &message {
            Unposted::Bytes { bytes, length, .. } if is_move(&bytes[..*length as usize]) => {
                moves.push(bytes[..*length as usize].into());
            }
            _ => messages.push(message),
        }
    }
    let sent = port.sent(from.to());
    sent.is_home = false;
    Some((sent.count.wrapping_sub(messages.len() as u32), Unsent { moves, messages }))
}

fn is_move(message: &[u8]) -> bool {
    matches!(Header::decode(message), Some((Header::Moved { .. }, _)))
}

/// Sends by another port a message that never reached the adapter.
fn send_again<H: PortHost>(process: &H::Process, host: &mut H, (from, to): (Route, Route), message: Unposted) -> bool {
    match message {
        Unposted::Bytes { bytes, length, token } => queue_by::<H>(process, to, (bytes, length), token),
        Unposted::Spans { spans, token } => match H::record_of(token) {
            Some(Record::Buffer(buffer)) => send_buffer_again(process, host, (from, to), (buffer, spans[0])),
            _ => false,
        },
    }
}

/// Sends the fragment in these bytes of a buffer of `from`'s port by the route `to`, and gives the buffer back. Sends it
/// from ordinary memory, in parts, because a message that waits there may not be as long. The last part has the token of
/// the fragment.
pub(super) fn send_buffer_again<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    (from, to): (Route, Route),
    (buffer, bytes): (BufferId, LocalSpan),
) -> bool {
    let fragment = host.copy_of(bytes);
    // The port queues no other message that is in a buffer.
    let content = host.messenger().rails.buffers[from.rail()].give_back(buffer);
    let Content::Fragment(send) = content else { return false };
    let Some(rail) = process.rail(to.rail()) else { return false };
    let Some((Header::Fragment { receive, offset }, data)) = Header::decode(&fragment) else { return false };
    let room = rail.copy_size - MAX_SIZE;
    let last = data.len().saturating_sub(1) / room;
    data.chunks(room).enumerate().all(|(index, data)| {
        let header = Header::Fragment { receive, offset: offset + (index * room) as u64 }.encode();
        let bytes: Arc<[u8]> = [header.as_slice(), data].concat().into();
        let length = bytes.len() as u32;
        let token = if index == last { H::token(Record::Sent(send)) } else { Token(0) };
        queue_by::<H>(process, to, (bytes, length), token)
    })
}

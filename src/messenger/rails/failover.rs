// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failover: when a port goes down, comes back, or cannot be connected to a peer, messages move to another port
//! (ARCHITECTURE.md, "Several ports"). `multi_rail/peer.rs` chooses the port,
//! `multi_rail/reorder_buffer.rs` keeps the order at the receiver.
//!
//! Called by `completions`, `transmit`, `fragment` and the protocols. Grade: setup. Threads: the one that has entered
//! the messenger, and no port. Tests: those of the hosts.

use std::sync::Arc;

use super::send_buffers::{BufferId, Content};
use super::transmit::{self, queue_by};
use super::{lost, routes};
use crate::messenger::header::{Header, MAX_SIZE};
use crate::messenger::host::{PortHost, Ports, Process, Record, Transmitted, Types};
use crate::messenger::route::Route;
use crate::peer::PeerName;
use crate::transport::{Failure, Token, Unposted};
use ibex_ffi::verbs::LocalSpan;

/// Moves peers when the port of a rail has lost its link, or has it back.
#[cold]
pub(crate) fn link_changed<H: PortHost>(process: &H::Process, host: &mut H, rail: usize, is_up: bool) {
    if !process.is_multi_rail() {
        return;
    }
    host.link_changed(process, rail, is_up);
    for peer in 0..host.messenger().rails.multi_rail.peers.len() {
        let known = &host.messenger().rails.multi_rail.peers[peer];
        // Messages to a peer that has not left a failed home are lost: no later ones may arrive.
        if has_failed(process, known.home) {
            continue;
        }
        let to = known.moves(rail, is_up, |route| routes::is_usable(process, route));
        if let Some(to) = to
            && !move_to(process, host, peer, to, Vec::new())
        {
            lost::note(process, host, to);
        }
    }
}

/// Moves a peer that this process meets again if its home has lost its link since they parted.
pub(in crate::messenger) fn met_again<H: PortHost>(process: &H::Process, host: &mut H, name: PeerName) {
    let Some(&peer) = host.messenger().rails.multi_rail.by_name.get(&name) else { return };
    let home = host.messenger().rails.multi_rail.peers[peer].home;
    if !has_failed(process, home)
        && !routes::is_usable(process, home)
        && let Some(to) = other_than(process, host, peer, home)
        && !move_to(process, host, peer, to, Vec::new())
    {
        lost::note(process, host, to);
    }
}

/// Gives up a connection that has failed; if it is the peer's home, another port carries its messages. Returns false if
/// a message is lost, or no port is left: then the peer is lost for good.
#[cold]
pub(crate) fn fails_over<H: PortHost>(process: &H::Process, host: &mut H, failed: Route) -> bool {
    fails_over_with(process, host, failed, Vec::new())
}

/// [`fails_over`] of a peer's home, which has refused these messages: they go by the other port as well.
fn fails_over_with<H: PortHost>(process: &H::Process, host: &mut H, failed: Route, refused: Vec<Message>) -> bool {
    if !process.is_multi_rail() {
        return false;
    }
    let goes_on = goes_on(process, host, failed, refused);
    if !goes_on {
        lose(process, host, failed);
    }
    goes_on
}

fn goes_on<H: PortHost>(process: &H::Process, host: &mut H, failed: Route, refused: Vec<Message>) -> bool {
    let Some(peer) = routes::peer_of(process, host, failed) else { return false };
    let Some((failure, was_noticed)) = give_up(process, failed) else { return false };
    if host.messenger().rails.multi_rail.peers[peer].home.rail() == failed.rail() {
        let Some(other) = other_than(process, host, peer, failed) else { return false };
        if !move_to(process, host, peer, other, refused) {
            return false;
        }
    }
    if !was_noticed {
        let home = host.messenger().rails.multi_rail.peers[peer].home.rail();
        host.gives_up(process, failed.rail(), &failure, home);
    }
    true
}

/// Drops the messages that a port has kept for a peer, and gives their send buffers back: sends to other peers may wait
/// for them. So no later message may go by another port.
#[cold]
fn lose<H: PortHost>(process: &H::Process, host: &mut H, lost: Route) {
    let Some(mut port) = process.enter_port(lost.rail()) else { return };
    let messages = port.take_unposted(lost.to());
    port.note_lost(lost.to());
    drop(port);
    for message in messages {
        if let Unposted::Spans { token, .. } = message
            && let Some(Record::Buffer(buffer)) = H::record_of(token)
        {
            host.messenger().rails.buffers[lost.rail()].give_back(buffer);
        }
    }
}

/// Whether the connection of a route has failed. A port without a link is not usable either, but loses no message; and
/// no failure is kept of a peer from which this process has parted.
fn has_failed<P: Process>(process: &P, route: Route) -> bool {
    process.enter_port(route.rail()).is_some_and(|port| port.failure(route.to()).is_some())
}

fn has_lost<P: Process>(process: &P, route: Route) -> bool {
    process.enter_port(route.rail()).is_some_and(|port| port.has_lost(route.to()))
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

/// Returns a route to which a peer can move that can no longer use this one.
fn other_than<H: PortHost>(process: &H::Process, host: &mut H, peer: usize, failed: Route) -> Option<Route> {
    let known = &host.messenger().rails.multi_rail.peers[peer];
    known.other_than(failed.rail(), |route| routes::is_usable(process, route))
}

/// Moves a peer's messages to another route: those that wait, and behind them those that its home has refused; and to
/// the next one if that fails meanwhile. Returns false if none is left, or a message is lost.
fn move_to<H: PortHost>(process: &H::Process, host: &mut H, peer: usize, mut to: Route, refused: Vec<Message>) -> bool {
    let mut unsent = Unsent { moves: Vec::new(), messages: refused };
    loop {
        let (from, segment) = host.messenger().rails.multi_rail.peers[peer].move_to(to);
        let Some(count) = leave(process, host, from, &mut unsent) else { return false };
        unsent.moves.push(Header::<H::Envelope>::Moved { segment, count }.encode().as_slice().into());
        if send_unsent::<H>(process, to, &mut unsent) {
            break;
        }
        let may_leave = has_failed(process, to) && !has_lost(process, to);
        let Some(next) = other_than(process, host, peer, to).filter(|_| may_leave) else {
            lose(process, host, to);
            return false;
        };
        to = next;
    }
    // Behind all of these, because messages that have their turn go before those that wait.
    let messenger = host.messenger();
    if messenger.flow.outgoing.is_full(messenger.rails.multi_rail.peers[peer].account()) {
        Ports::queue_turn(host, process, to);
    }
    true
}

/// A message in ordinary memory, its length, and its token.
type Message = (Arc<[u8]>, u32, Token);

/// Messages that waited at a port, in order, to be sent by another one: first the `Moved` messages.
#[derive(Default)]
struct Unsent {
    moves: Vec<Arc<[u8]>>,
    messages: Vec<Message>,
}

/// Stops sending by a route. Returns how many messages went by it, and puts those that never reached the adapter in
/// front of the unsent ones.
fn leave<H: PortHost>(process: &H::Process, host: &mut H, from: Route, unsent: &mut Unsent) -> Option<u32> {
    let mut port = process.enter_port(from.rail())?;
    port.end_turn(from.to(), H::token(Record::Turn));
    let waiting = port.take_unposted(from.to());
    let sent = port.sent(from.to());
    sent.is_home = false;
    let mut count = sent.count;
    drop(port);
    let before = std::mem::take(unsent);
    for message in waiting {
        match message {
            Unposted::Bytes { bytes, length, .. } if is_move::<H>(&bytes[..length as usize]) => {
                unsent.moves.push(bytes);
            }
            Unposted::Bytes { bytes, length, token } => {
                count = count.wrapping_sub(1);
                unsent.messages.push((bytes, length, token));
            }
            Unposted::Spans { spans, token } => {
                count = count.wrapping_sub(1);
                if let Some(Record::Buffer(buffer)) = H::record_of(token) {
                    unsent.messages.extend(out_of_buffer(process, host, from, (buffer, spans[0])));
                }
            }
        }
    }
    unsent.moves.extend(before.moves);
    unsent.messages.extend(before.messages);
    Some(count)
}

fn is_move<H: Types>(message: &[u8]) -> bool {
    matches!(Header::<H::Envelope>::decode(message), Some((Header::Moved { .. }, _)))
}

/// Begins to send by a route, with these messages. Returns false if that fails; then those are left that its port has
/// not taken.
fn send_unsent<H: PortHost>(process: &H::Process, to: Route, unsent: &mut Unsent) -> bool {
    let Some(mut port) = process.enter_port(to.rail()) else { return false };
    let sent = port.sent(to.to());
    (sent.count, sent.is_home) = (0, true);
    // `Moved` messages are not counted.
    let taken = unsent.moves.iter().take_while(|bytes| {
        let bytes = (Arc::clone(bytes), bytes.len() as u32);
        transmit::queue::<H>(&mut port, to, bytes, Token(0)) != Transmitted::Failed
    });
    let taken = taken.count();
    drop(port);
    unsent.moves.drain(..taken);
    unsent.moves.is_empty() && send_all::<H>(process, to, &mut unsent.messages)
}

/// Queues messages at the port of a route. Returns false if that fails; then those are left that it has not taken.
fn send_all<H: PortHost>(process: &H::Process, to: Route, messages: &mut Vec<Message>) -> bool {
    let taken = messages
        .iter()
        .take_while(|(bytes, length, token)| queue_by::<H>(process, to, (Arc::clone(bytes), *length), *token));
    let taken = taken.count();
    messages.drain(..taken);
    messages.is_empty()
}

/// Sends messages by the home of the peer of a route, and by another one if that has failed. Returns false if none is
/// left, or a message is lost.
pub(super) fn send_by_home<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    route: Route,
    mut messages: Vec<Message>,
) -> bool {
    let home = routes::home(process, host, route);
    send_all::<H>(process, home, &mut messages) || fails_over_with(process, host, home, messages)
}

/// Copies a fragment from a send buffer of a route's port to ordinary memory, and gives the buffer back. Returns it as
/// several fragments, because a message in ordinary memory may be no longer than `copy_size`. The last one has the
/// token of the original.
pub(super) fn out_of_buffer<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    from: Route,
    (buffer, bytes): (BufferId, LocalSpan),
) -> Vec<Message> {
    let fragment = host.copy_of(bytes);
    // The port queues no other message that is in a buffer.
    let content = host.messenger().rails.buffers[from.rail()].give_back(buffer);
    let (Content::Fragment(send), Some(rail)) = (content, process.rail(from.rail())) else { return Vec::new() };
    let Some((Header::Fragment { receive, offset }, data)) = Header::<H::Envelope>::decode(&fragment) else {
        return Vec::new();
    };
    // All rails have the same sizes.
    let room = rail.copy_size - MAX_SIZE;
    let last = data.len().saturating_sub(1) / room;
    let part = |(index, data): (usize, &[u8])| {
        let header = Header::<H::Envelope>::Fragment { receive, offset: offset + (index * room) as u64 }.encode();
        let bytes: Arc<[u8]> = [header.as_slice(), data].concat().into();
        let (length, is_last) = (bytes.len() as u32, index == last);
        (bytes, length, if is_last { H::token(Record::Sent(send)) } else { Token(0) })
    };
    data.chunks(room).enumerate().map(part).collect()
}

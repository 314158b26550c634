// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failover of a host with several ports: moves a peer's messages to another port, and keeps the order of those that
//! arrive (`messenger::rails::failover` has the rules). Grade: test. Threads: one.

use std::sync::Arc;

use ibex::messenger::header::{Header, MAX_SIZE};
use ibex::messenger::host::Host as _;
use ibex::messenger::rails::Peer;
use ibex::messenger::rails::failover::ReorderBuffer;
use ibex::messenger::route::Route;
use ibex::transport::{Immediate, Token, Unposted, WhenDiverted};

use super::ports::{Content, Record};
use super::progress::ByRail;
use super::{Process, TAG};

/// A message that arrived too early.
pub(super) struct Held {
    bytes: Box<[u8]>,
    by: ByRail,
}

impl Process {
    // ---- the sender's side ------------------------------------------------------------------------------------------

    /// Moves peers when the port of a rail has lost its link, or has it back.
    pub(super) fn link_changed(&mut self, rail: usize, is_up: bool) {
        if !self.is_multi_rail() {
            return;
        }
        let port = self.port(rail);
        if is_up {
            port.undivert(|_| true);
        } else {
            port.divert_all(|_| false);
        }
        for peer in 0..self.multi_rail.peers.len() {
            let to = if is_up { self.returns_to(peer, rail) } else { self.leaves_for(peer, rail) };
            if let Some(to) = to
                && !self.move_to(peer, to)
            {
                self.fails();
            }
        }
    }

    fn leaves_for(&mut self, peer: usize, rail: usize) -> Option<Route> {
        let is_home = self.multi_rail.peers[peer].home.rail() == rail;
        if is_home { self.other_than(peer, rail) } else { None }
    }

    /// Returns the rail's route if it is better than the home: the peer's first, or the home cannot be used.
    fn returns_to(&mut self, peer: usize, rail: usize) -> Option<Route> {
        let Peer { routes, home, .. } = &self.multi_rail.peers[peer];
        let (first, home) = (routes[0], *home);
        let route = *routes.iter().find(|route| route.rail() == rail)?;
        let is_better = route == first || !self.is_usable(home);
        (route != home && is_better && self.is_usable(route)).then_some(route)
    }

    fn other_than(&mut self, peer: usize, rail: usize) -> Option<Route> {
        let routes = self.multi_rail.peers[peer].routes.to_vec();
        routes.into_iter().find(|route| route.rail() != rail && self.is_usable(*route))
    }

    /// Gives up the failed connection of a route. Returns false if a message is lost, or no port is left.
    pub(super) fn moves_from(&mut self, failed: Route) -> bool {
        if !self.is_multi_rail() {
            return false;
        }
        let Some(peer) = self.peer_of(failed) else { return false };
        let port = self.port(failed.rail());
        if port.failure(failed.to()).is_none() || port.has_lost(failed.to()) {
            return false;
        }
        self.sent(failed).is_given_up = true;
        let Some(other) = self.other_than(peer, failed.rail()) else { return false };
        self.multi_rail.peers[peer].home.rail() != failed.rail() || self.move_to(peer, other)
    }

    /// Moves a peer's messages to another route. Returns false if a message cannot move with them.
    fn move_to(&mut self, peer: usize, to: Route) -> bool {
        let known = &mut self.multi_rail.peers[peer];
        let from = std::mem::replace(&mut known.home, to);
        known.segment = known.segment.wrapping_add(1);
        let (segment, first) = (known.segment, known.routes[0]);
        let port = self.port(from.rail());
        port.end_turn(from.to(), Record::Turn.token());
        let (moves, messages): (Vec<_>, Vec<_>) = port.take_unposted(from.to()).into_iter().partition(is_move);
        let sent = self.sent(from);
        sent.is_home = false;
        let count = sent.count.wrapping_sub(messages.len() as u32);
        // First, the `Moved` of earlier moves, which the other port has not sent.
        for message in moves {
            let Unposted::Bytes { bytes, length, .. } = message else { return false };
            if !self.send_moved(to, &bytes[..length as usize]) {
                return false;
            }
        }
        if !self.send_moved(to, Header::Moved { segment, count }.encode().as_slice()) {
            return false;
        }
        let sent = self.sent(to);
        (sent.count, sent.is_home) = (0, true);
        let has_sent = messages.into_iter().all(|message| self.send_again((from, to), message));
        let account = self.account_of(first);
        if self.messenger.flow.outgoing.is_full(account) {
            let settings = self.settings;
            ibex::messenger::host::Ports::queue_turn(self, &settings, to);
        }
        has_sent
    }

    /// Sends a `Moved`, which is not counted.
    fn send_moved(&mut self, to: Route, message: &[u8]) -> bool {
        let bytes = (Arc::from(message), message.len() as u32);
        self.port(to.rail()).queue_bytes(to.to(), TAG, bytes, Token(0), WhenDiverted::Wait).is_ok()
    }

    fn send_again(&mut self, (from, to): (Route, Route), message: Unposted) -> bool {
        match message {
            Unposted::Bytes { bytes, length, token } => self.queue_bytes(to, (bytes, length), token),
            Unposted::Spans { spans, token } => match Record::of(token) {
                Record::Buffer(buffer) => self.send_buffer_again((from, to), buffer, spans[0].len() as usize),
                _ => false,
            },
        }
    }

    /// Sends the fragment in a buffer of `from`'s port by the route `to`, in parts, and gives the buffer back. The last
    /// part has the token of the fragment.
    pub(super) fn send_buffer_again(&mut self, (from, to): (Route, Route), buffer: u32, length: usize) -> bool {
        let buffers = &mut self.rails[from.rail()].buffers;
        let bytes = self.memory.with(buffers.start(buffer), length, |bytes| bytes.to_vec());
        let Content::Fragment(send) = buffers.give_back(buffer) else { return false };
        let Some((Header::Fragment { receive, offset }, data)) = Header::decode(&bytes) else { return false };
        let room = self.settings.eager - MAX_SIZE;
        let last = data.len().saturating_sub(1) / room;
        data.chunks(room).enumerate().all(|(index, data)| {
            let header = Header::Fragment { receive, offset: offset + (index * room) as u64 }.encode();
            let bytes: Arc<[u8]> = [header.as_slice(), data].concat().into();
            let length = bytes.len() as u32;
            let token = if index == last { Record::Sent(send).token() } else { Token(0) };
            self.queue_bytes(to, (bytes, length), token)
        })
    }

    // ---- the receiver's side ----------------------------------------------------------------------------------------

    /// Whether messages of this sender may be delivered within the poll: it is known, and has never moved.
    pub(super) fn may_be_taken(&self, rail: usize, from: Immediate) -> bool {
        self.multi_rail.end(rail, from.endpoint()).is_some_and(|end| !end.is_reordered)
    }

    /// Counts a message of a sender that has never moved.
    pub(super) fn count_arrived(&mut self, rail: usize, from: Immediate) {
        let end = self.multi_rail.end_mut(Route::new(rail, from.endpoint()));
        end.received = end.received.wrapping_add(1);
    }

    /// Handles a message, and those that waited for it.
    pub(super) fn arrived(&mut self, bytes: &[u8], by: ByRail) {
        if let Some((Header::Moved { segment, count }, _)) = Header::decode(bytes) {
            return self.moved(by, (segment, count));
        }
        let end = self.multi_rail.end_mut(Route::new(by.rail, by.immediate.endpoint()));
        if !end.is_reordered {
            end.received = end.received.wrapping_add(1);
            return self.message(bytes, by);
        }
        let peer = end.peer().expect("a sender that has moved is known");
        let buffer = self.multi_rail.peers[peer].reorder_buffer.as_mut().expect("a sender that has moved has one");
        if !buffer.arrived(by.rail) {
            return buffer.hold(by.rail, Held { bytes: bytes.into(), by });
        }
        self.message(bytes, by);
        self.release(peer);
    }

    fn moved(&mut self, by: ByRail, (segment, count): (u32, u32)) {
        let from = self.sender(by).expect("a sender that moves is known");
        let peer = self.peer_of(from).expect("a sender that moves is known");
        if self.multi_rail.peers[peer].reorder_buffer.is_none() {
            let mut received: u32 = 0;
            for route in self.multi_rail.peers[peer].routes.clone() {
                let end = self.multi_rail.end_mut(route);
                received = received.wrapping_add(end.received);
                end.is_reordered = true;
            }
            let buffer = ReorderBuffer::new(self.rails.len(), received);
            self.multi_rail.peers[peer].reorder_buffer = Some(buffer);
        }
        if let Some(buffer) = &mut self.multi_rail.peers[peer].reorder_buffer {
            buffer.moved(by.rail, segment, count);
        }
        self.release(peer);
    }

    fn release(&mut self, peer: usize) {
        while let Some(Held { bytes, by }) =
            self.multi_rail.peers[peer].reorder_buffer.as_mut().and_then(ReorderBuffer::release)
        {
            self.message(&bytes, by);
        }
    }
}

fn is_move(message: &Unposted) -> bool {
    let Unposted::Bytes { bytes, length, .. } = message else { return false };
    matches!(Header::decode(&bytes[..*length as usize]), Some((Header::Moved { .. }, _)))
}

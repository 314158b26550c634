// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failover of a host with several ports: moves a peer's messages to another port, and hands on those that arrive.
//! `messenger::rails` chooses the port, and the order of the messages. Grade: test. Threads: one.

use std::sync::Arc;

use ibex::messenger::header::{Header, MAX_SIZE};
use ibex::messenger::host::Host as _;
use ibex::messenger::rails::Turn;
use ibex::messenger::route::Route;
use ibex::transport::{Token, Unposted, WhenDiverted};

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
            let to = self.multi_rail.peers[peer].moves(rail, is_up, |route| self.is_usable(route));
            if let Some(to) = to
                && !self.move_to(peer, to)
            {
                self.fails();
            }
        }
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
        let known = &self.multi_rail.peers[peer];
        let is_home = known.home.rail() == failed.rail();
        let other = known.other_than(failed.rail(), |route| self.is_usable(route));
        other.is_some_and(|other| !is_home || self.move_to(peer, other))
    }

    /// Moves a peer's messages to another route. Returns false if a message cannot move with them.
    fn move_to(&mut self, peer: usize, to: Route) -> bool {
        let (from, segment) = self.multi_rail.peers[peer].move_to(to);
        let port = self.port(from.rail());
        port.end_turn(from.to(), Record::Turn.token());
        let (moves, messages): (Vec<_>, Vec<_>) = port.take_unposted(from.to()).into_iter().partition(is_move);
        let count = self.sent(from).wrapping_sub(messages.len() as u32);
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
        *self.sent(to) = 0;
        let has_sent = messages.into_iter().all(|message| self.send_again((from, to), message));
        if self.messenger.flow.outgoing.is_full(self.multi_rail.peers[peer].account()) {
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

    /// Handles a message, and those that waited for it.
    pub(super) fn arrived(&mut self, bytes: &[u8], by: ByRail) {
        if let Some((Header::Moved { segment, count }, _)) = Header::decode(bytes) {
            let from = self.sender(by).expect("a sender that moves is known");
            let peer = self.peer_of(from).expect("a sender that moves is known");
            self.multi_rail.moved(peer, by.rail, (segment, count));
            return self.release(peer);
        }
        let copied = || Held { bytes: bytes.into(), by };
        match self.multi_rail.arrives(by.rail, by.immediate.endpoint(), || true, copied) {
            Turn::Now => self.message(bytes, by),
            Turn::NowAndHeld(peer) => {
                self.message(bytes, by);
                self.release(peer);
            }
            Turn::Later => {}
        }
    }

    fn release(&mut self, peer: usize) {
        while let Some(Held { bytes, by }) = self.multi_rail.release(peer) {
            self.message(&bytes, by);
        }
    }
}

fn is_move(message: &Unposted) -> bool {
    let Unposted::Bytes { bytes, length, .. } = message else { return false };
    matches!(Header::decode(&bytes[..*length as usize]), Some((Header::Moved { .. }, _)))
}

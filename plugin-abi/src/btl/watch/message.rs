// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message under way, by what it is known, and its pieces that are read or written.
//!
//! Kept by `transfer`. Plain data.

use engine::peer::PeerName;

use super::ob1::Envelope;
use super::step::Step;

/// A message under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// Sent: this process's request.
    Sent(u64),
    /// Announced by a peer: the peer's request.
    Announced(PeerName, u64),
    /// Received: this process's request.
    Received(u64),
}

impl Key {
    pub(super) fn is_received(self) -> bool {
        !matches!(self, Key::Sent(_))
    }
}

/// A piece that is read or written: its name, and the process that has given it, where that is another.
pub(super) type PieceKey = (Option<PeerName>, u64);

#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) envelope: Envelope,
    pub(super) number: u64,
    pub(super) total: u64,
    pub(super) done: u64,
    pub(super) request: u64,
    pub(super) peer: PeerName,
    /// Whether its first step was told: an announcement without bytes is none where it arrives.
    pub(super) begun: bool,
    /// The piece it was announced with, and where it is to be read from; to be forgotten with it.
    pub(super) piece: Option<PieceKey>,
    pub(super) address: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) of: Key,
    /// Of a read: where the message is by what was read already.
    pub(super) offset: Option<u64>,
}

impl Message {
    pub(super) fn new(envelope: Envelope, total: u64, request: u64, peer: PeerName) -> Message {
        Message { envelope, number: 0, total, done: 0, request, peer, begun: true, piece: None, address: None }
    }

    pub(super) fn step(&self, offset: u64, bytes: u64, received: bool) -> Step {
        Step {
            envelope: self.envelope,
            request: self.request,
            message: self.number,
            offset,
            bytes,
            total: self.total,
            peer: self.peer,
            first: false,
            last: false,
            arrives: false,
            received,
        }
    }
}

/// The only step of a message.
pub(super) fn whole(message: Message, received: bool) -> Step {
    Step { first: true, last: true, arrives: received, ..message.step(0, message.total, received) }
}

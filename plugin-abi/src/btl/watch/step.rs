// SPDX-License-Identifier: MIT OR Apache-2.0
//! A step of a message: a piece of it that moves, or the word that it has arrived; and what ob1 has noted of one that
//! is read.
//!
//! Made by `transfer`, shown by `show`. Plain data.

use engine::peer::PeerName;

use super::ob1::{Envelope, Header};
use super::stamp::Stamp;

/// A piece of a message, and what the message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "a piece may be first and last, and each says one thing of it")]
pub(crate) struct Step {
    pub(crate) envelope: Envelope,
    /// The request in this process; 0: not known.
    pub(crate) request: u64,
    /// The same number for all steps of a message.
    pub(crate) message: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) total: u64,
    pub(crate) peer: PeerName,
    /// Whether it is the first.
    pub(crate) first: bool,
    /// Whether it is the last.
    pub(crate) last: bool,
    /// Whether with it the message arrives here. Where it carries no bytes, and there are some, it is no piece.
    pub(crate) arrives: bool,
    pub(crate) received: bool,
}

impl Step {
    /// The adapter's stamp is for the end of a message, and for its arrival. The pieces before it may come by several
    /// ports, whose sources are in no order with each other: they are told by the host's clock, at once, so that
    /// nothing overtakes them.
    pub(super) fn stamp(&self, stamp: Stamp) -> Stamp {
        stamp.filter(|_| self.last)
    }
}

/// A read of a message that is announced so: which of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) announcement: Header,
    pub(crate) offset: u64,
}

/// A message that its receiver reads, at its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) request: u64,
    pub(crate) total: u64,
    /// How many bytes have been read.
    pub(crate) done: u64,
}

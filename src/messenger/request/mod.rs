// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols' part of a request; the host's record of the request (`pml/request.rs`) contains it.
//!
//! Grade: hot. Threads: the one that has entered the messenger. Plain data. Tests: those of the host.

use super::events::Watched;
use super::header::WireEnvelope;
use super::host::{Host, PeerOf, TagOf};
use super::matching::Envelope;
use super::rendezvous::copies::{Reassembly, Sending};
use super::rendezvous::read::Reads;
use super::route::Route;
use transfer_id::TransferId;

pub mod transfer_id;

/// Direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A receive.
    Receive,
    /// A send.
    Send(Mode),
}

impl Role {
    /// Whether the request ends with its own message, unless that is announced: a send that waits for no answer.
    #[inline]
    pub const fn ends_when_sent(self) -> bool {
        matches!(self, Role::Send(Mode::Standard | Mode::Buffered))
    }
}

/// Condition for a send to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The buffer may be reused. Also for ready sends.
    Standard,
    /// No condition: the host sends a copy in the memory that the program has attached.
    Buffered,
    /// The buffer may be reused, and the receive has matched.
    Synchronous,
    /// The buffer may be reused, and the receiver has the message: in its receive, or stored until one matches. A long
    /// message is read, and so completes, when its receive has matched.
    Delivered,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<E: WireEnvelope = Envelope> {
    /// The message's sender: with MPI its rank.
    pub source: E::Peer,
    /// Tag of the message.
    pub tag: E::Tag,
    /// Length of the whole message, bytes.
    pub length: usize,
    /// Whether the message is longer than its receive.
    pub is_truncated: bool,
}

impl<E: WireEnvelope> Outcome<E> {
    /// Makes the outcome of a receive of `room` bytes that gets a message of `length` bytes.
    #[inline(always)]
    pub fn new(envelope: E, length: usize, room: usize) -> Self {
        Outcome { source: envelope.source(), tag: envelope.tag(), length, is_truncated: length > room }
    }
}

/// Transfer in progress for a request, beyond a single message.
pub enum Transfer<H: Host> {
    /// No transfer.
    None,
    /// The send waits for the receiver's answer: that it has the message, or asks for copies.
    Unanswered {
        /// Number of the send.
        sender: TransferId,
        /// Registration with the port of the announcement.
        registered: Option<H::Registration>,
        /// Registrations with other rails, by their indices.
        others: Vec<(usize, H::Registration)>,
        /// Whether it is part of flow control's window.
        counted: bool,
    },
    /// Fragments are being sent.
    Sending(Sending),
    /// The message is being read.
    Reading(Reads<H>),
    /// The kernel copies from this send: the number of bytes.
    SingleCopy(TransferId, u64),
    /// Fragments arrive.
    Reassembly(Reassembly),
}

/// The protocols' record of a request. `role` is first, beside the host's fields, so that one store can write both.
#[repr(C)]
pub struct Core<H: Host> {
    /// Direction, and mode of a send.
    pub role: Role,
    /// The peer (with MPI its rank), or any.
    pub peer: PeerOf<H>,
    /// The tag, or any.
    pub tag: TagOf<H>,
    /// The user's data.
    pub data: H::Data,
    /// Handle of a posted receive, to cancel it.
    pub posted: u64,
    /// Route to the peer, of sends and transfers.
    pub route: Route,
    /// The transfer in progress.
    pub transfer: Transfer<H>,
    /// What tools know of it.
    pub watched: Watched,
}

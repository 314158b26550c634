// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process's half of a message. Made by `matching.rs`, joined by `join.rs`. Path: pending. Threads: plain data.

use crate::model::{Protocol, Reason, ReceiveSide, SendSide};

/// The fields of a message that both processes know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) context: u32,
    /// The rank of the other process in the communicator.
    pub(crate) peer: i32,
    pub(crate) tag: i32,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) protocol: Option<Protocol>,
    pub(crate) reason: Option<Reason>,
    /// Index among the process's ports.
    pub(crate) port: Option<u32>,
    pub(crate) queue_pair: u32,
    pub(crate) rails: u32,
}

impl Route {
    /// Whether it can be a rendezvous: any message by shared memory can; an empty rendezvous shows by its reason.
    pub(crate) fn is_rendezvous(&self) -> bool {
        match self.protocol {
            Some(Protocol::Read | Protocol::Fragments | Protocol::SharedMemory) => true,
            Some(Protocol::Inline) => matches!(self.reason, Some(Reason::HeldBack | Reason::Synchronous)),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) envelope: Envelope,
    pub(crate) side: SendSide,
    pub(crate) route: Route,
}

/// A fragment after the first of the numbered request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Continued {
    pub(crate) request: u64,
    pub(crate) is_received: bool,
    pub(crate) thread: u32,
    pub(crate) time: crate::Time,
    pub(crate) is_by_adapter: bool,
    pub(crate) part: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) envelope: Envelope,
    pub(crate) side: ReceiveSide,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) reason: Option<Reason>,
}

/// Any source or any tag (`MPI_ANY_SOURCE`, `MPI_ANY_TAG` of Open MPI).
pub(crate) const ANY: i32 = -1;

impl Default for Envelope {
    fn default() -> Envelope {
        Envelope::UNKNOWN
    }
}

impl Envelope {
    pub(crate) const UNKNOWN: Envelope = Envelope { context: u32::MAX, peer: ANY, tag: ANY, bytes: 0 };

    pub(crate) fn is_known(&self) -> bool {
        self.context != u32::MAX
    }

    pub(crate) fn takes(&self, message: &Envelope) -> bool {
        let is_tag = self.tag == message.tag || (self.tag == ANY && message.tag >= 0);
        self.context == message.context && (self.peer == ANY || self.peer == message.peer) && is_tag
    }
}

impl Sent {
    /// Returns a time that orders sends: before the bytes leave, if that is known.
    pub(crate) fn first(&self) -> Option<crate::Time> {
        let side = &self.side;
        side.activated.or(side.left()).or(side.ended).or(side.completed).or(side.notified)
    }
}

impl Received {
    /// Returns the first known time of the message itself.
    pub(crate) fn first(&self) -> Option<crate::Time> {
        let side = &self.side;
        side.arrived.or(side.unexpected).or(side.matched).or(side.begun).or(side.ended).or(side.completed)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process's half of a message. Made by `matching.rs`, joined by `join.rs`. Path: pending. Threads: plain data.
//! Tests: below; tests/.

use ibex_trace::{TAGGED, UNTAGGED};

use crate::model::{Protocol, Reason, ReceiveSide, SendSide};

/// The fields of a message that both processes know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) context: u32,
    /// The rank of the other process in the communicator.
    pub(crate) peer: i32,
    pub(crate) tag: i64,
    /// Bits of the tag that a receive of libfabric does not compare.
    pub(crate) ignore: u64,
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

pub(crate) const ANY_TAG: i64 = -1;

impl Default for Envelope {
    fn default() -> Envelope {
        Envelope::UNKNOWN
    }
}

impl Envelope {
    pub(crate) const UNKNOWN: Envelope = Envelope { context: u32::MAX, peer: ANY, tag: ANY_TAG, ignore: 0, bytes: 0 };

    pub(crate) fn is_known(&self) -> bool {
        self.context != u32::MAX
    }

    pub(crate) fn takes(&self, message: &Envelope) -> bool {
        let differs = (self.tag ^ message.tag).cast_unsigned() & !self.ignore != 0;
        let is_tag = !differs || (!self.is_of_libfabric() && self.tag == ANY_TAG && message.tag >= 0);
        self.context == message.context && (self.peer == ANY || self.peer == message.peer) && is_tag
    }
}

impl Envelope {
    /// Whether its tag has 64 bits, and its peer is a rank in the job.
    pub(crate) fn is_of_libfabric(&self) -> bool {
        matches!(self.context, TAGGED | UNTAGGED)
    }

    /// Whether a receive takes messages of one sender, with one tag.
    pub(crate) fn is_certain(&self) -> bool {
        let has_tag = if self.is_of_libfabric() { self.ignore == 0 } else { self.tag != ANY_TAG };
        self.peer != ANY && has_tag
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_takes_tags_that_are_equal_but_for_ignored_bits_and_any_tag_of_mpi_means_the_programs() {
        let of = |context, tag, ignore| Envelope { context, peer: ANY, tag, ignore, bytes: 8 };
        let (receive, message) = (of(TAGGED, 0x15, 0xf0), |tag| of(TAGGED, tag, 0));
        assert!(receive.takes(&message(0x75)) && !receive.takes(&message(0x74)));
        assert!(!receive.is_certain() && !of(TAGGED, ANY_TAG, 0).takes(&message(3)));
        let any = of(0, ANY_TAG, 0);
        assert!(any.takes(&of(0, 3, 0)) && !any.takes(&of(0, -17, 0)) && !any.takes(&message(3)));
    }
}

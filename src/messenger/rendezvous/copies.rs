// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counts of a message that its sender sends in copied fragments and its receiver assembles. Fragments use one
//! route, and failover keeps their order, so they arrive in the order of sending. The length of a fragment is known
//! only when it is packed, so the last one may be longer than `wanted`; the receiver ignores the rest. Called by
//! `fragments.rs`. Grade: pending. Threads: the owner's. Tests: below.

use crate::messenger::request::transfer_id::TransferId;

/// The sender's side.
#[derive(Debug, Clone, Copy)]
pub struct Sending {
    /// Number of the receive.
    pub receiver: TransferId,
    /// Whether the send waits for a send buffer.
    pub is_starved: bool,
    wanted: u64,
    sent: u64,
    under_way: u32,
    most: u32,
}

/// The receiver's side.
#[derive(Debug, Clone, Copy)]
pub struct Reassembly {
    /// Number of the receive.
    pub id: TransferId,
    wanted: u64,
    received: u64,
}

impl Sending {
    /// Starts a send of `wanted` bytes to this receive, with at most `most` fragments in flight.
    pub fn new(receiver: TransferId, wanted: u64, most: u32) -> Self {
        Sending { receiver, is_starved: false, wanted, sent: 0, under_way: 0, most }
    }

    /// Returns the offset of the next fragment; `None` if no fragment may be sent now.
    pub fn next_offset(&self) -> Option<u64> {
        (self.sent < self.wanted && self.under_way < self.most).then_some(self.sent)
    }

    /// Counts a fragment of `bytes` that was sent. Returns true if it was the last.
    pub fn sent(&mut self, bytes: u64) -> bool {
        self.sent += bytes;
        self.under_way += 1;
        self.sent >= self.wanted
    }

    /// Whether a fragment is in flight.
    pub fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Counts a fragment that the adapter has completed. Returns true if it was the last.
    pub fn done(&mut self) -> bool {
        self.under_way -= 1;
        self.under_way == 0 && self.sent >= self.wanted
    }
}

impl Reassembly {
    /// Expects `wanted` bytes.
    pub fn new(id: TransferId, wanted: u64) -> Self {
        Reassembly { id, wanted, received: 0 }
    }

    /// Counts a fragment of `bytes` that arrived. Returns how many of its bytes are wanted; `None` unless it begins
    /// where the last one ended.
    pub fn take(&mut self, offset: u64, bytes: u64) -> Option<u64> {
        let length = bytes.min(self.wanted - self.received);
        (offset == self.received).then(|| {
            self.received += length;
            length
        })
    }

    /// Whether all wanted bytes have arrived.
    pub fn is_complete(&self) -> bool {
        self.received == self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TransferId = TransferId(7);

    #[test]
    fn the_receiver_joins_fragments_although_the_last_one_is_longer_than_the_receive() {
        for (wanted, length_of_one) in [(1, 8), (8, 8), (20, 8), (1 << 33, 1 << 31)] {
            let (mut sending, mut reassembly) = (Sending::new(ID, wanted, 2), Reassembly::new(ID, wanted));
            let (mut count, mut ended) = (0, false);
            while let Some(offset) = sending.next_offset() {
                assert_eq!([offset + 1, u64::MAX].map(|at| reassembly.take(at, length_of_one)), [None; 2]);
                let length = reassembly.take(offset, length_of_one).expect("it is the next");
                assert!(length <= length_of_one);
                sending.sent(length_of_one);
                count += 1;
                assert!(!ended);
                ended = sending.done();
            }
            assert!(ended && reassembly.is_complete());
            assert_eq!(count, wanted.div_ceil(length_of_one));
        }
    }

    #[test]
    fn at_most_the_permitted_number_of_fragments_is_in_flight() {
        let mut sending = Sending::new(ID, 100, 2);
        sending.sent(10);
        assert_eq!(sending.next_offset(), Some(10));
        sending.sent(10);
        assert_eq!(sending.next_offset(), None);
        assert!(!sending.done());
        assert_eq!(sending.next_offset(), Some(20));
    }
}

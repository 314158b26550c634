// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the queues of a communicator are, and were at most: for performance variables (`variables.rs`).
//!
//! Counted where something is put into a queue or taken out of one, never for a message that meets the receive which is
//! in no queue (`place.rs`). Written by who has entered the PML, without a locked instruction; read by any thread.
//! Grade: pending. Tests: below, and `hw-tests/tools/mpi_t_queues.c`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A number, and the greatest that it has been.
#[derive(Debug, Default)]
pub(crate) struct Level<T> {
    now: T,
    most: T,
}

impl Level<AtomicU32> {
    fn set(&self, value: u32) {
        self.now.store(value, Ordering::Relaxed);
        if value > self.most.load(Ordering::Relaxed) {
            self.most.store(value, Ordering::Relaxed);
        }
    }
}

impl Level<AtomicU64> {
    fn set(&self, value: u64) {
        self.now.store(value, Ordering::Relaxed);
        if value > self.most.load(Ordering::Relaxed) {
            self.most.store(value, Ordering::Relaxed);
        }
    }
}

/// The lengths of a communicator's queues.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    posted: Level<AtomicU32>,
    unexpected: Level<AtomicU32>,
    bytes: Level<AtomicU64>,
    messages: AtomicU64,
    attempts: AtomicU64,
}

/// What they were at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Receives that wait, and the most that have.
    pub(crate) posted: [u32; 2],
    /// Messages that are unexpected, and the most that were.
    pub(crate) unexpected: [u32; 2],
    /// Bytes of those, and the most.
    pub(crate) bytes: [u64; 2],
    /// Messages that have been unexpected.
    pub(crate) messages: u64,
    /// Entries that were compared.
    pub(crate) attempts: u64,
}

impl Lengths {
    /// So many receives are in the queue; and one is in none, if `has_first`.
    pub(crate) fn posted(&self, now: u32, has_first: bool) {
        self.posted.now.store(now, Ordering::Relaxed);
        let all = now + u32::from(has_first);
        if all > self.posted.most.load(Ordering::Relaxed) {
            self.posted.most.store(all, Ordering::Relaxed);
        }
    }

    /// A message is unexpected, of so many.
    pub(crate) fn inserted(&self, now: u32, bytes: usize) {
        self.unexpected.set(now);
        self.bytes.set(self.bytes.now.load(Ordering::Relaxed) + bytes as u64);
        self.messages.store(self.messages.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A message is unexpected no longer; so many are.
    pub(crate) fn removed(&self, now: u32, bytes: usize) {
        self.unexpected.set(now);
        self.bytes.set(self.bytes.now.load(Ordering::Relaxed).saturating_sub(bytes as u64));
    }

    /// A search has compared so many entries.
    pub(crate) fn searched(&self, attempts: u32) {
        self.attempts.store(self.attempts.load(Ordering::Relaxed) + u64::from(attempts), Ordering::Relaxed);
    }

    /// What they are now, with a receive more or not that is in no queue. Any thread.
    pub(crate) fn show(&self, has_first: bool) -> Shown {
        let (short, long) = (|of: &AtomicU32| of.load(Ordering::Relaxed), |of: &AtomicU64| of.load(Ordering::Relaxed));
        let posted = short(&self.posted.now) + u32::from(has_first);
        Shown {
            posted: [posted, posted.max(short(&self.posted.most))],
            unexpected: [short(&self.unexpected.now), short(&self.unexpected.most)],
            bytes: [long(&self.bytes.now), long(&self.bytes.most)],
            messages: long(&self.messages),
            attempts: long(&self.attempts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_stays_and_a_receive_in_no_queue_counts_while_it_is_there() {
        let lengths = Lengths::default();
        assert_eq!(lengths.show(true).posted, [1, 1]);
        for now in [1, 2, 1] {
            lengths.posted(now, true);
        }
        lengths.posted(2, false);
        lengths.inserted(1, 8);
        lengths.inserted(2, 100);
        lengths.removed(1, 8);
        lengths.searched(5);
        lengths.searched(2);
        let wanted = Shown { posted: [2, 3], unexpected: [1, 2], bytes: [100, 108], messages: 2, attempts: 7 };
        assert_eq!(lengths.show(false), wanted);
        assert_eq!(lengths.show(true).posted, [3, 3]);
    }
}

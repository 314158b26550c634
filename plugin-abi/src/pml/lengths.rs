// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the queues of a communicator are, and were at most: for performance variables (`variables.rs`).
//!
//! Counted where something is put into a queue or taken out of one, never for a message that meets the receive which is
//! in no queue (`first_receive.rs`). Written by who has entered the PML, without a locked instruction; read by any thread.
//! Grade: pending. Tests: below, and `hw-tests/tools/mpi_t_queues.c`.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number, and the greatest that it has been.
#[derive(Debug, Default)]
struct Level {
    now: AtomicU64,
    most: AtomicU64,
}

impl Level {
    fn set(&self, value: u64) {
        self.now.store(value, Ordering::Relaxed);
        self.has_been(value);
    }

    fn has_been(&self, value: u64) {
        if value > self.most.load(Ordering::Relaxed) {
            self.most.store(value, Ordering::Relaxed);
        }
    }

    fn show(&self) -> [u64; 2] {
        [&self.now, &self.most].map(|of| of.load(Ordering::Relaxed))
    }
}

/// The lengths of a communicator's queues.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    posted: Level,
    unexpected: Level,
    bytes: Level,
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
        self.posted.now.store(u64::from(now), Ordering::Relaxed);
        self.posted.has_been(u64::from(now) + u64::from(has_first));
    }

    /// A message is unexpected, of so many.
    pub(crate) fn inserted(&self, now: u32, bytes: usize) {
        self.unexpected.set(u64::from(now));
        self.bytes.set(self.bytes.now.load(Ordering::Relaxed) + bytes as u64);
        self.messages.store(self.messages.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A message is unexpected no longer; so many are.
    pub(crate) fn removed(&self, now: u32, bytes: usize) {
        self.unexpected.set(u64::from(now));
        self.bytes.set(self.bytes.now.load(Ordering::Relaxed).saturating_sub(bytes as u64));
    }

    /// A search has compared so many entries.
    pub(crate) fn searched(&self, attempts: u32) {
        self.attempts.store(self.attempts.load(Ordering::Relaxed) + u64::from(attempts), Ordering::Relaxed);
    }

    /// What they are now, with a receive more or not that is in no queue. Any thread.
    pub(crate) fn show(&self, has_first: bool) -> Shown {
        let [in_queue, most] = self.posted.show();
        let posted = in_queue + u64::from(has_first);
        Shown {
            posted: [posted, posted.max(most)].map(|of| of as u32),
            unexpected: self.unexpected.show().map(|of| of as u32),
            bytes: self.bytes.show(),
            messages: self.messages.load(Ordering::Relaxed),
            attempts: self.attempts.load(Ordering::Relaxed),
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

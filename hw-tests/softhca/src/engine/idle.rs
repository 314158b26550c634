// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polling in vain: a process that finds nothing for long offers its processor to others.
//!
//! The peer whose message is awaited has no adapter of its own, only a processor, and that may be this one. So patience learns:
//! it halves when somebody took the processor that was offered, and doubles when nobody did.
//! Owns one count for the whole process, not one per queue: programs poll several queues in turn, and one that moves keeps
//! all busy. Called by: cq. Grade: hot: two loads and a store. Thread rule: lost counts between threads do no harm.

use super::clock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Polls in a row that find nothing before the processor is offered: the most (some hundred microseconds) and the least.
const MOST: u32 = 4096;
const LEAST: u32 = 64;
/// Polls between two offers; less than `LEAST`.
const BETWEEN: u32 = 32;
/// An offer that nobody takes is a short system call; there and back again between processes takes longer than this.
const TAKEN_NS: u64 = 2_000;

/// On a cache line of its own.
#[repr(align(64))]
pub(crate) struct Idle {
    in_vain: AtomicU32,
    patience: AtomicU32,
}

impl Default for Idle {
    fn default() -> Self {
        Idle { in_vain: AtomicU32::new(0), patience: AtomicU32::new(MOST) }
    }
}

impl Idle {
    /// A poll found something.
    #[inline]
    pub(crate) fn polled(&self) {
        self.in_vain.store(0, Ordering::Relaxed);
    }

    /// A poll found nothing.
    #[inline]
    pub(crate) fn polled_in_vain(&self) {
        let count = self.in_vain.load(Ordering::Relaxed) + 1;
        self.in_vain.store(count, Ordering::Relaxed);
        if count >= self.patience.load(Ordering::Relaxed) {
            self.offer(count);
        }
    }

    #[cold]
    fn offer(&self, count: u32) {
        self.in_vain.store(count.saturating_sub(BETWEEN), Ordering::Relaxed);
        let before = clock::now();
        std::thread::yield_now();
        self.learn(clock::now() - before);
    }

    /// The processor came back after so many nanoseconds.
    fn learn(&self, away_ns: u64) {
        let patience = self.patience.load(Ordering::Relaxed);
        let next = if away_ns > TAKEN_NS { patience / 2 } else { patience * 2 };
        self.patience.store(next.clamp(LEAST, MOST), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_shrinks_where_others_want_the_processor_and_comes_back() {
        let idle = Idle::default();
        for _ in 0..10 {
            idle.learn(TAKEN_NS + 1);
        }
        assert_eq!(idle.patience.load(Ordering::Relaxed), LEAST);
        for _ in 0..10 {
            idle.learn(TAKEN_NS);
        }
        assert_eq!(idle.patience.load(Ordering::Relaxed), MOST);
    }

    #[test]
    fn a_poll_that_finds_something_starts_the_count_again() {
        let idle = Idle::default();
        (0..MOST - 1).for_each(|_| idle.polled_in_vain());
        idle.polled();
        assert_eq!(idle.in_vain.load(Ordering::Relaxed), 0);
    }
}

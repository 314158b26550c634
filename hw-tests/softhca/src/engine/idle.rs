// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polling in vain: a process that finds nothing for long offers its processor to others.
//!
//! The peer whose message is awaited has no adapter of its own, only a processor, and that may be this one. So patience
//! learns: it halves when what was awaited came after the processor was offered, and doubles when it came without.
//! Owns one count for the whole process, not one per queue: programs poll several queues in turn, and one that moves keeps
//! all busy. Called by: cq. Grade: hot: two loads and a store. Thread rule: lost counts between threads do no harm.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Polls in a row that find nothing before the processor is offered: the most (some ten microseconds) and the least.
const MOST: u32 = 4096;
const LEAST: u32 = 64;
/// Polls between two offers; less than `LEAST`.
const BETWEEN: u32 = 32;

/// On a cache line of its own.
#[repr(align(64))]
pub(crate) struct Idle {
    in_vain: AtomicU32,
    patience: AtomicU32,
    /// The processor was offered since a poll last found something.
    offered: AtomicBool,
}

impl Default for Idle {
    fn default() -> Self {
        Idle { in_vain: AtomicU32::new(0), patience: AtomicU32::new(MOST), offered: AtomicBool::new(false) }
    }
}

impl Idle {
    /// A poll found something.
    #[inline]
    pub(crate) fn polled(&self) {
        if self.in_vain.load(Ordering::Relaxed) == 0 {
            return; // not waited for: it teaches nothing
        }
        self.in_vain.store(0, Ordering::Relaxed);
        if self.offered.load(Ordering::Relaxed) || self.patience.load(Ordering::Relaxed) != MOST {
            self.learn();
        }
    }

    #[cold]
    fn learn(&self) {
        let patience = self.patience.load(Ordering::Relaxed);
        let next = if self.offered.load(Ordering::Relaxed) { patience / 2 } else { patience * 2 };
        self.patience.store(next.clamp(LEAST, MOST), Ordering::Relaxed);
        self.offered.store(false, Ordering::Relaxed);
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
        self.offered.store(true, Ordering::Relaxed);
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_shrinks_where_offering_helps_and_comes_back() {
        let idle = Idle::default();
        for _ in 0..10 {
            while !idle.offered.load(Ordering::Relaxed) {
                idle.polled_in_vain();
            }
            idle.polled();
        }
        assert_eq!(idle.patience.load(Ordering::Relaxed), LEAST);
        idle.polled();
        assert_eq!(idle.patience.load(Ordering::Relaxed), LEAST, "what was not waited for teaches nothing");
        for _ in 0..10 {
            idle.polled_in_vain();
            idle.polled();
        }
        assert_eq!(idle.patience.load(Ordering::Relaxed), MOST);
    }
}

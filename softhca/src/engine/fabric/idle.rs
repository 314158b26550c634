// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polls that find nothing: after many of them a process offers its processor to others, because the peer whose message
//! it awaits may need it. The number of polls before an offer halves when another thread took the processor, and
//! doubles when none did. A yield that returns after a whole time slice means that another thread computes there. Each
//! further yield would then cost a slice (a few hundred round trips a second instead of thousands), but a thread that
//! sleeps runs as soon as it wakes: so for some time offers are naps. Owns one count for the whole process, because
//! programs poll several queues in turn, and a single busy queue means that the process is busy. Called by: cq. Grade:
//! hot: two loads and a store. Thread rule: lost counts between threads do no harm.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::engine::clock;

/// Most (some hundred microseconds) and fewest empty polls in a row before a process offers its processor.
const MOST: u32 = 4096;
const LEAST: u32 = 64;
/// Polls between two offers; less than `LEAST`.
const BETWEEN: u32 = 32;
/// Another thread ran during an offer that takes longer than this; otherwise an offer is a short system call.
const TAKEN_NS: u64 = 2_000;
/// During an offer that takes this long another thread has computed: threads that poll give the processor back sooner.
const SLICE_NS: u64 = 500_000;
/// Number of offers after such a yield that are naps: the fewest, and the most if yields keep taking so long.
const FEWEST_NAPS: u32 = 4;
const MOST_NAPS: u32 = 128;
/// Intended length of a nap; the timer's slack adds to it.
const NAP: Duration = Duration::from_micros(10);

#[repr(align(64))]
pub(crate) struct Idle {
    in_vain: AtomicU32,
    patience: AtomicU32,
    /// Number of offers that are still naps.
    naps: AtomicU32,
    /// Number of naps after the next long yield.
    next_naps: AtomicU32,
}

impl Default for Idle {
    fn default() -> Self {
        Idle {
            in_vain: AtomicU32::new(0),
            patience: AtomicU32::new(MOST),
            naps: AtomicU32::new(0),
            next_naps: AtomicU32::new(FEWEST_NAPS),
        }
    }
}

impl Idle {
    pub(crate) fn polled(&self) {
        self.in_vain.store(0, Ordering::Relaxed);
    }

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
        let naps = self.naps.load(Ordering::Relaxed);
        if naps != 0 {
            self.naps.store(naps - 1, Ordering::Relaxed);
            std::thread::sleep(NAP);
            return;
        }
        let before = clock::now();
        std::thread::yield_now();
        self.learn(clock::now() - before);
    }

    fn learn(&self, away_ns: u64) {
        let patience = self.patience.load(Ordering::Relaxed);
        let next = if away_ns > TAKEN_NS { patience / 2 } else { patience * 2 };
        self.patience.store(next.clamp(LEAST, MOST), Ordering::Relaxed);
        if away_ns < SLICE_NS {
            self.next_naps.store(FEWEST_NAPS, Ordering::Relaxed);
            return;
        }
        let naps = self.next_naps.load(Ordering::Relaxed);
        self.naps.store(naps, Ordering::Relaxed);
        self.next_naps.store((naps * 2).min(MOST_NAPS), Ordering::Relaxed);
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
    fn after_a_yield_of_a_whole_slice_offers_are_naps_and_more_of_them_each_time() {
        let idle = Idle::default();
        let naps = || idle.naps.load(Ordering::Relaxed);
        idle.learn(SLICE_NS - 1);
        assert_eq!(naps(), 0);
        idle.learn(SLICE_NS);
        let patience = idle.patience.load(Ordering::Relaxed);
        (0..FEWEST_NAPS).for_each(|_| idle.offer(LEAST));
        assert_eq!(naps(), 0);
        assert_eq!(idle.patience.load(Ordering::Relaxed), patience, "nothing is learnt of naps");
        for expected in [FEWEST_NAPS * 2, FEWEST_NAPS * 4] {
            idle.learn(SLICE_NS);
            assert_eq!(naps(), expected);
        }
        (0..10).for_each(|_| idle.learn(SLICE_NS));
        assert_eq!(naps(), MOST_NAPS);
        idle.learn(0);
        idle.learn(SLICE_NS);
        assert_eq!(naps(), FEWEST_NAPS, "a short yield begins anew");
    }

    #[test]
    fn a_poll_that_finds_something_starts_the_count_again() {
        let idle = Idle::default();
        (0..MOST - 1).for_each(|_| idle.polled_in_vain());
        idle.polled();
        assert_eq!(idle.in_vain.load(Ordering::Relaxed), 0);
    }
}

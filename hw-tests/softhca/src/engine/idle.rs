// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polling in vain: a process that finds nothing for long offers its processor to others.
//!
//! The peer whose message is awaited has no adapter of its own, only a processor, and that may be this one. Owns one counter
//! for the whole process, not one per queue: programs poll several queues in turn, and one that moves keeps all busy.
//! Called by: cq. Grade: hot: a load and a store. Thread rule: lost counts between threads do no harm.

use std::sync::atomic::{AtomicU32, Ordering};

/// After so many polls in a row that found nothing (some ten microseconds) the processor is offered for the first time,
const PATIENCE: u32 = 4096;
/// and then after so many more each time.
const BETWEEN_RESTS: u32 = 256;

/// On a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Idle(AtomicU32);

impl Idle {
    /// A poll found something.
    #[inline]
    pub(crate) fn polled(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// A poll found nothing.
    #[inline]
    pub(crate) fn polled_in_vain(&self) {
        let count = self.0.load(Ordering::Relaxed) + 1;
        self.0.store(count, Ordering::Relaxed);
        if count >= PATIENCE {
            self.rest();
        }
    }

    #[cold]
    fn rest(&self) {
        self.0.store(PATIENCE - BETWEEN_RESTS, Ordering::Relaxed);
        std::thread::yield_now();
    }
}

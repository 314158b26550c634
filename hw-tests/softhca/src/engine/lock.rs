// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock in shared memory that outlives its holder: it names the process that holds it, and is taken over from a dead one.
//!
//! Called by: every shared object. Grade: hot: one exchange to take, one store to give back, no system call. A waiter
//! spins shortly, then yields; after a while it asks whether the holder lives (a system call). What a dead holder was
//! writing is half done: each structure orders its stores so that half is harmless (an index is published last).

use super::{fabric::Fabric, words::W32};

/// Rounds of spinning before the first yield.
const SPINS: u32 = 200;
/// Rounds (spins and yields) before the holder's life is asked for, and between two such questions.
const PATIENCE: u32 = 4096;

/// The lock: 0, or the token of the process that holds it (`process::token`).
#[repr(transparent)]
#[derive(Default)]
pub(crate) struct SharedLock(W32);

/// Held; given back on drop.
#[must_use]
pub(crate) struct Held<'a>(&'a SharedLock);

impl SharedLock {
    /// Takes it, waiting for it if need be.
    #[inline]
    pub(crate) fn lock(&self, fabric: &Fabric) -> Held<'_> {
        if !self.0.replace(0, fabric.token()) {
            self.wait(fabric);
        }
        Held(self)
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, fabric: &Fabric) {
        let mut round = 0_u32;
        loop {
            if self.0.get() == 0 && self.0.replace(0, fabric.token()) {
                return;
            }
            round = round.wrapping_add(1);
            if round < SPINS {
                std::hint::spin_loop();
                continue;
            }
            std::thread::yield_now();
            let holder = self.0.get();
            let is_asked = round.is_multiple_of(PATIENCE) && holder != 0;
            if is_asked && fabric.is_dead(holder) && self.0.replace(holder, fabric.token()) {
                return;
            }
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.publish(0);
    }
}

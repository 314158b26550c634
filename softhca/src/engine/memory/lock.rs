// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock in shared memory that outlives its holder: it names the process that holds it, and a waiter takes it over
//! from a dead one. Called by: every shared object. Grade: hot: one exchange to take, one store to give back, no system
//! call. A waiter spins for a short time, then yields, and asks ever more rarely whether the holder lives (system
//! calls). A burial need not ask: it has found its process dead, and takes its locks over at once. A dead holder may
//! leave a change half done. Unless the order of its stores makes that harmless (an index is published last), the next
//! holder repairs the guarded data; at the latest, the burial of the dead process does. Thread rule: any thread of any
//! process. Tests: `process.rs` beside this file, `tests/engine_killed.rs`.

use crate::engine::memory::{Process, W32};

/// Rounds of spinning before the first yield.
const SPINS: u32 = 200;
/// Most rounds (spins and yields) between two questions whether the holder lives. On a busy machine a yield takes
/// milliseconds, so a waiter asks the first time after few of them.
const PATIENCE: u32 = 4096;

/// The lock: 0, or the token of the process that holds it (`process::token`).
#[repr(transparent)]
#[derive(Default)]
pub(crate) struct SharedLock(W32);

#[must_use]
pub(crate) struct Held<'a> {
    lock: &'a SharedLock,
    /// Its last holder has died while it held the lock.
    pub(crate) is_inherited: bool,
}

impl SharedLock {
    pub(crate) fn lock(&self, process: &Process) -> Held<'_> {
        let is_inherited = !self.0.replace(0, process.token()) && self.wait(process);
        Held { lock: self, is_inherited }
    }

    /// Whether process `token` holds it.
    pub(crate) fn is_of(&self, token: u32) -> bool {
        self.0.get() == token
    }

    #[cfg(test)]
    pub(crate) fn held_by(token: u32) -> Self {
        let lock = SharedLock::default();
        lock.0.set(token);
        lock
    }

    /// Takes it when it is free, or from a dead holder (`true`).
    #[cold]
    #[inline(never)]
    fn wait(&self, process: &Process) -> bool {
        let mut round = 0_u32;
        loop {
            let holder = self.0.get();
            if (holder == 0 || process.is_burying(holder)) && self.0.replace(holder, process.token()) {
                return holder != 0;
            }
            round = round.wrapping_add(1);
            if round < SPINS {
                std::hint::spin_loop();
                continue;
            }
            std::thread::yield_now();
            let holder = self.0.get();
            let is_asked = (round.is_power_of_two() || round.is_multiple_of(PATIENCE)) && holder != 0;
            if is_asked && process.is_dead(holder) && self.0.replace(holder, process.token()) {
                return true;
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.0.publish(0);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a call that waits lets Open MPI's own progress engine go on.
//!
//! Used by the waits of the PML and by `btl/flush.rs`. Grade: hot. Threads: a wait's own.

use ibex_ffi::openmpi::sys;

/// The rounds of a wait in which nothing happened.
pub(crate) struct Idle {
    rounds: u32,
}

/// Rounds in which nothing happened, between two calls of Open MPI's.
const ROUNDS: u32 = 100;

impl Idle {
    pub(crate) const fn new() -> Self {
        Idle { rounds: 0 }
    }

    /// Nothing has happened in a round, and nothing is entered. True after each pause of the wait: so many rounds.
    #[inline]
    pub(crate) fn nothing_happened(&mut self) -> bool {
        self.rounds += 1;
        // SAFETY: a flag that Open MPI sets while it is initialised.
        let yields = unsafe { (&raw const sys::opal_progress_yield_when_idle).read() };
        if yields || self.rounds >= ROUNDS {
            self.rounds = 0;
            // SAFETY: nothing is entered.
            unsafe { sys::opal_progress() };
            return true;
        }
        false
    }
}

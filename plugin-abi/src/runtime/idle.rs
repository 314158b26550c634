// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a blocking call lets Open MPI's own progress engine go on: [`Idle`] where it waits, [`Busy`] where there is always
//! something for it to do.
//!
//! Used by the waits of the PML and by `btl_flush`. Grade: hot. Threads: a wait's own; who has entered the PML.
//! Tests: below.

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

    /// Nothing has happened in a round, and nothing is entered.
    #[inline]
    pub(crate) fn nothing_happened(&mut self) {
        self.rounds += 1;
        // SAFETY: a flag that Open MPI sets while it is initialised.
        let yields = unsafe { (&raw const sys::opal_progress_yield_when_idle).read() };
        if yields || self.rounds >= ROUNDS {
            self.rounds = 0;
            // SAFETY: nothing is entered.
            unsafe { sys::opal_progress() };
        }
    }
}

/// What a process has polled that found something. Blocking calls that never wait do not let nonblocking collectives and
/// other transports go on, so one does after so many polls.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    polls: u32,
    is_due: bool,
}

/// Polls between two calls of Open MPI's progress engine, which costs a tenth of a poll then.
const BUSY_POLLS: u32 = 4096;

impl Busy {
    /// So many polls have found something. True: Open MPI's progress engine is due.
    pub(crate) fn polled(&mut self, polls: u32) -> bool {
        self.polls += polls;
        if self.polls >= BUSY_POLLS {
            (self.polls, self.is_due) = (0, true);
        }
        self.is_due
    }

    /// Whether Open MPI's progress engine is to be called now.
    pub(crate) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_engine_is_called_once_in_so_many_busy_polls() {
        let mut busy = Busy::default();
        let due = (0..3 * BUSY_POLLS).filter(|_| busy.polled(1) && busy.take_due()).count();
        assert_eq!((due, busy.take_due()), (3, false));
    }
}

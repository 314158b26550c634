// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides when a blocking call runs Open MPI's progress engine: [`Idle`] counts the rounds of a call that waits,
//! [`Busy`] the polls of calls that never wait. Called by the waits of the PML and by `btl_flush`. Grade: hot. Threads:
//! [`Idle`] belongs to one wait, [`Busy`] to the thread that has entered the PML. Tests: below.

use ibex_ffi::openmpi::sys;

pub(crate) struct Idle {
    rounds: u32,
}

const ROUNDS: u32 = 100;

impl Idle {
    pub(crate) const fn new() -> Self {
        Idle { rounds: 0 }
    }

    /// Counts a round without an event. No port is entered.
    #[inline]
    pub(crate) fn nothing_happened(&mut self) {
        self.rounds += 1;
        // SAFETY: a variable of libopen-pal, which Open MPI sets while it is initialised.
        let yields = unsafe { (&raw const sys::opal_progress_yield_when_idle).read() };
        if yields || self.rounds >= ROUNDS {
            self.rounds = 0;
            // SAFETY: nothing is entered, so callbacks of the progress engine may enter any component.
            unsafe { sys::opal_progress() };
        }
    }
}

/// Counter of successful polls. Blocking calls that never wait would starve nonblocking collectives and other
/// transports, so after [`BUSY_POLLS`] of them one runs Open MPI's progress engine.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    polls: u32,
    is_due: bool,
}

/// Successful polls between two calls of Open MPI's progress engine, which then costs a tenth of a poll.
const BUSY_POLLS: u32 = 4096;

impl Busy {
    /// Counts successful polls. Returns whether a call of Open MPI's progress engine is due.
    pub(crate) fn polled(&mut self, polls: u32) -> bool {
        self.polls += polls;
        if self.polls >= BUSY_POLLS {
            (self.polls, self.is_due) = (0, true);
        }
        self.is_due
    }

    pub(crate) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_the_progress_engine_is_due_once_per_so_many_busy_polls() {
        let mut busy = Busy::default();
        let due = (0..3 * BUSY_POLLS).filter(|_| busy.polled(1) && busy.take_due()).count();
        assert_eq!((due, busy.take_due()), (3, false));
    }
}

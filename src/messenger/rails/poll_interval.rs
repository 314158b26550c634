// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often to poll the rails beside shared memory: a poll of either costs the same, so silent rails are polled less
//! often. Used by the host's poll. Grade: hot. Threads: the one that has entered the messenger. Tests: below.

/// Number of rounds in which the rails have reported nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct PollInterval {
    rounds: u32,
}

/// Number of rounds without a report after which rails are polled less often.
const PATIENCE: u32 = 1000;

/// Number of rounds between two polls of the rails from then on.
const ONE_IN: u32 = 16;

impl PollInterval {
    /// Begins a round. Returns whether rails are polled in it.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.rounds = if self.rounds < PATIENCE + ONE_IN { self.rounds + 1 } else { PATIENCE + 1 };
        self.rounds <= PATIENCE || self.rounds == PATIENCE + ONE_IN
    }

    /// Notes the number of events of a poll of the rails.
    #[inline]
    pub fn note_events(&mut self, count: usize) {
        if count > 0 {
            self.rounds = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_polls_busy_rails_in_each_round_and_silent_ones_in_one_of_sixteen() {
        let mut rails = PollInterval::default();
        assert!((0..PATIENCE).all(|_| rails.is_due()));
        let due = (0..16 * 10).filter(|_| rails.is_due()).count();
        assert_eq!(due, 10);
        rails.note_events(0);
        assert!(!rails.is_due());
        rails.note_events(1);
        assert!((0..PATIENCE).all(|_| rails.is_due()));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether rails are polled in this round, beside shared memory: seldom while nothing comes by them.
//!
//! A poll of a rail costs as much as one of shared memory, and who waits for a process of the same host would pay for
//! both. Grade: hot. Plain data. Tests: below.

/// Rounds in which the rails have reported nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quiet {
    rounds: u32,
}

/// Rounds without anything after which they are polled less often.
const PATIENCE: u32 = 1000;

/// How often they are polled then.
const ONE_IN: u32 = 16;

impl Quiet {
    /// Begins a round: whether rails are polled in it.
    #[inline]
    pub(crate) fn are_due(&mut self) -> bool {
        self.rounds = if self.rounds < PATIENCE + ONE_IN { self.rounds + 1 } else { PATIENCE + 1 };
        self.rounds <= PATIENCE || self.rounds == PATIENCE + ONE_IN
    }

    /// They were polled, and have reported so much.
    #[inline]
    pub(crate) fn have_reported(&mut self, count: usize) {
        if count > 0 {
            self.rounds = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_are_polled_in_each_round_while_they_are_busy_and_then_in_one_of_sixteen() {
        let mut rails = Quiet::default();
        assert!((0..PATIENCE).all(|_| rails.are_due()));
        let due = (0..16 * 10).filter(|_| rails.are_due()).count();
        assert_eq!(due, 10);
        rails.have_reported(0);
        assert!(!rails.are_due());
        rails.have_reported(1);
        assert!((0..PATIENCE).all(|_| rails.are_due()));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many rounds a first table has time for, which is to be there within four minutes.
//!
//! Grade: setup. Asked by [`super`]. Pure; tests: at the end of this file.

use std::time::Duration;

/// The time of a first table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Rounds that are measured however long they take: of fewer nobody could say how far they lie apart.
    least_rounds: usize,
    /// When the last round is to have ended.
    rounds: Duration,
    /// When nothing is begun any more.
    all: Duration,
}

impl Budget {
    /// Three rounds however long they take, further ones within three minutes; the rest is for unsteady values.
    pub(crate) const FOUR_MINUTES: Self =
        Self { least_rounds: 3, rounds: Duration::from_mins(3), all: Duration::from_secs(225) };

    /// Whether there is time for one more round after so many, which took so long.
    pub(crate) fn has_another_round(self, done: usize, passed: Duration) -> bool {
        done < self.least_rounds || passed + passed / done as u32 <= self.rounds
    }

    /// Whether there is time to measure a value again.
    pub(crate) fn has_time_again(self, passed: Duration) -> bool {
        passed < self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_begun_if_one_as_long_as_the_others_ends_in_time_and_three_always_are() {
        let another = |done, seconds| Budget::FOUR_MINUTES.has_another_round(done, Duration::from_secs(seconds));
        assert!(another(3, 135) && !another(3, 136));
        assert!(another(2, 900) && !another(4, 900));
    }

    #[test]
    fn what_is_unsteady_is_measured_again_until_the_time_is_over() {
        let again = |seconds| Budget::FOUR_MINUTES.has_time_again(Duration::from_secs(seconds));
        assert!(again(224) && !again(225));
    }
}

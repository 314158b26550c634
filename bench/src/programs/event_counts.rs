// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of events, from the lines that the tool `every_event` prints at the end of each rank. Called by
//! [`crate::run`]. Grade: setup. Tests: below.

use serde::{Deserialize, Serialize};

/// Counts of events by the transport, and by the tool's handler for lost events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of events that the transport raised.
    pub raised: u64,
    /// Number of these that a tool got.
    pub delivered: u64,
    /// Number of these for which there was no room.
    pub dropped: u64,
    /// Number of these that came after their tool had gone.
    pub late: u64,
    /// Number of lost events that were reported to the tool.
    pub told: u64,
}

impl Counts {
    /// Parses the line of a rank's tool; `None` for any other line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("every_event: rank ")?.split(' ').skip(1);
        let mut count = |name: &str| (words.next()? == name).then(|| words.next()?.parse().ok())?;
        Some(Self {
            raised: count("raised")?,
            delivered: count("delivered")?,
            dropped: count("dropped")?,
            late: count("late")?,
            told: count("told")?,
        })
    }

    /// Adds up the lines of the tools of all ranks.
    pub(crate) fn of_all(output: &str) -> Self {
        let mut all = Self::default();
        output.lines().filter_map(Self::parse).for_each(|counts| all.add(counts));
        all
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.raised += other.raised;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.late += other.late;
        self.told += other.told;
    }

    /// Whether each event was delivered or lost, and each loss was reported to the tool.
    pub fn add_up(self) -> bool {
        self.raised == self.delivered + self.dropped + self.late && self.told == self.dropped + self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_all_counts_is_read_and_every_other_is_something_else() {
        let line = "every_event: rank 1 raised 10 delivered 7 dropped 2 late 1 told 3";
        let counts = Counts { raised: 10, delivered: 7, dropped: 2, late: 1, told: 3 };
        assert_eq!(Counts::parse(line), Some(counts));
        assert_eq!(Counts::parse("every_event: rank 1 raised 10"), None);
        assert_eq!(Counts::parse("raised 10"), None);
    }
}

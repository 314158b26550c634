// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a bench: tests, rounds, sizes. A machine's speed drifts, so everything is measured in several rounds,
//! and within a round all transports take turns at each size of each group of tests. With `--full`, latencies, which
//! are short and judged closely, may have more rounds than the rest; without, as many rounds as fit in four minutes.
//!
//! [`round`] has the steps of a round; [`wanted`] makes the plan from the user's options, [`available`] leaves out what
//! is missing. Carried out by [`crate::run`]. Grade: setup. Tests: in each file.

pub(crate) mod available;
pub(crate) mod round;
pub(crate) mod wanted;

use crate::catalogue::{Kind, Test, Transport, transport};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The measurements that the arguments ask for.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
    /// In the order of the report.
    pub(crate) tests: Vec<&'static Test>,
    pub(crate) transports: Vec<Transport>,
    /// Message sizes, ascending; if none, each test has those of a first table.
    pub(crate) sizes: Vec<u64>,
    /// Number of rounds of latencies: at least as many as of the rest.
    pub(crate) rounds: usize,
    rounds_of_the_rest: usize,
    rounds_of_instructions: usize,
    /// Whether it has to end within the time of a first table.
    is_short: bool,
    /// Describes what a first table lacks beside `--full`.
    pub(crate) brief: Option<String>,
    /// Missing tests and transports.
    pub(crate) left_out: Vec<LeftOut>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) what: String,
    /// Missing program or library, and how to get it.
    pub(crate) reason: String,
}

/// Most rounds of a first table, if there is time.
const MOST_ROUNDS: usize = 5;

/// Fewest rounds of a first table, however long they take: fewer would not show how far they differ.
const LEAST_ROUNDS: usize = 3;

/// Time by which the last round of a first table has to end.
const TIME_OF_ROUNDS: Duration = Duration::from_mins(3);

/// Time after which nothing is begun. After the rounds, the time until then is for unsteady values.
const TIME_OF_ALL: Duration = Duration::from_secs(225);

/// Enough to see that the counts repeat.
const ROUNDS_OF_INSTRUCTIONS: usize = 2;

impl Plan {
    /// Number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    pub(crate) fn new(kind: Kind, full: bool, tests: Vec<&'static Test>, transports: Vec<Transport>) -> Self {
        const SOME: &[u64] = &[8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20];
        const ALL: &[u64] = &[0, 1, 8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20];
        let (sizes, rounds, rest): (&[u64], _, _) = match (kind, full) {
            (_, false) => (&[], MOST_ROUNDS, MOST_ROUNDS),
            (Kind::SoftHca, true) => (SOME, 5, 3),
            (_, true) => (ALL, 3, 3),
        };
        Self {
            kind,
            tests,
            transports,
            sizes: sizes.to_vec(),
            rounds,
            rounds_of_the_rest: rest,
            rounds_of_instructions: ROUNDS_OF_INSTRUCTIONS,
            is_short: !full,
            brief: None,
            left_out: Vec::new(),
        }
    }

    /// Makes the plan for the cost of events: small differences, so many rounds.
    pub(crate) fn of_events(kind: Kind, full: bool, tests: Vec<&'static Test>) -> Self {
        let (rounds, rounds_of_instructions) = if full { (8, ROUNDS_OF_INSTRUCTIONS) } else { (5, 1) };
        let plan = Self::new(kind, full, tests, transport::EVENTS.to_vec());
        Self { rounds, rounds_of_the_rest: rounds, rounds_of_instructions, is_short: false, ..plan }
    }

    /// Whether another round follows `done` rounds, which took `passed`; in a first table, only if it will end in time.
    pub(crate) fn has_another_round(&self, done: usize, passed: Duration) -> bool {
        let has_time = || done < LEAST_ROUNDS || passed + passed / done as u32 <= TIME_OF_ROUNDS;
        done < self.rounds && (!self.is_short || has_time())
    }

    /// Whether there is time to measure unsteady values again. The cost of events needs whole rounds.
    pub(crate) fn has_time_again(&self, passed: Duration) -> bool {
        !self.is_of_events() && (!self.is_short || passed < TIME_OF_ALL)
    }

    /// Whether it measures by libfabric's calls, for which the caller builds the provider.
    pub fn has_libfabric(&self) -> bool {
        self.tests.iter().any(|test| test.by.is_of_libfabric())
    }

    pub(crate) fn is_of_events(&self) -> bool {
        self.transports.contains(&Transport::WithoutEvents)
    }

    pub(crate) fn sizes_of(&self, test: &Test) -> impl Iterator<Item = u64> {
        let sizes = if self.sizes.is_empty() { test.few } else { &self.sizes };
        sizes.iter().copied().filter(move |size| (test.sizes.0..=test.sizes.1).contains(size))
    }

    fn has(&self, test: &Test, bytes: u64) -> bool {
        self.sizes_of(test).any(|size| size == bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn the_sizes_the_speed_bars_need_are_in_all_plans() {
        for (kind, full) in [Kind::SoftRoce, Kind::SoftHca].into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let plan = Plan::new(kind, full, vec![], vec![]);
            for (test, size) in [("latency", 8), ("bandwidth", 64 << 10), ("bandwidth", 1 << 20), ("message_rate", 8)] {
                assert!(plan.has(catalogue::test(test).unwrap(), size), "{test}, {size}");
            }
        }
    }

    #[test]
    fn a_round_of_a_first_table_is_begun_if_one_as_long_as_the_others_ends_in_time_and_three_always_are() {
        let plan = Plan::new(Kind::SoftHca, false, vec![], vec![]);
        let another = |done, seconds| plan.has_another_round(done, Duration::from_secs(seconds));
        assert!(another(3, 135) && !another(3, 136));
        assert!(another(2, 900) && !another(4, 900) && !another(5, 1));
        let again = |seconds| plan.has_time_again(Duration::from_secs(seconds));
        assert!(again(224) && !again(225), "what is unsteady is measured again until the time is over");
    }

    #[test]
    fn the_sizes_of_a_first_table_are_sizes_of_the_test() {
        let plan = Plan::new(Kind::SoftHca, false, vec![], vec![]);
        assert!(catalogue::TESTS.iter().all(|test| plan.sizes_of(test).eq(test.few.iter().copied())));
    }
}

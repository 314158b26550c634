// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a bench measures, in how many rounds, with which sizes.
//!
//! A machine's speed drifts, so everything is measured in several rounds, and within a round all transports take turns
//! at each size of each group of tests. With `--full`, latencies, which are short and judged closely, may have more rounds
//! than the rest; without, a [`budget`] says how many there is time for.
//!
//! This file has the plan itself. [`round`] says what each of its rounds starts, a [`step`] at a time; [`wanted`] makes
//! it of what the user asks for, [`brief`] says what a first table leaves out, [`available`] leaves out what is not there,
//! by what `openmpi` knows of the Open MPI. Grade: setup. Carried out by [`crate::run`]. Tests: in each file.

pub(crate) mod available;
mod brief;
mod budget;
mod openmpi;
mod round;
pub(crate) mod step;
pub(crate) mod wanted;

use crate::catalogue::device_kind::Kind;
use crate::catalogue::transport::{self, Transport};
use crate::catalogue::{By, Test};
use budget::Budget;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What to measure, as the arguments say.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
    /// In the order of the report.
    pub(crate) tests: Vec<&'static Test>,
    /// What to measure them over.
    pub(crate) transports: Vec<Transport>,
    /// Message sizes, ascending; none: those that each test has in a first table.
    pub(crate) sizes: Vec<u64>,
    /// How often latencies are measured; at least as often as the rest.
    pub(crate) rounds: usize,
    rounds_of_the_rest: usize,
    rounds_of_instructions: usize,
    /// The time of a first table; none: all rounds are measured.
    budget: Option<Budget>,
    /// What a first table does not have, and `--full` has.
    pub(crate) brief: Option<String>,
    /// What was not there to be planned.
    pub(crate) left_out: Vec<LeftOut>,
}

/// A transport or a tool that this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    /// Its name in tables.
    pub(crate) what: String,
    /// What is missing, and what brings it.
    pub(crate) reason: String,
}

/// A first table has so many, if there is time.
const MOST_ROUNDS: usize = 5;

/// Instructions are counted twice: enough to see that the counts repeat.
const ROUNDS_OF_INSTRUCTIONS: usize = 2;

impl Plan {
    /// The transports that it measures.
    #[must_use]
    pub fn transports(&self) -> &[Transport] {
        &self.transports
    }

    /// In how many rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Whether it compares the adapter with the host's memory, by a program of its own.
    #[must_use]
    pub fn has_host_memory(&self) -> bool {
        self.tests.iter().any(|test| test.by == By::HostMemory)
    }

    /// The plan for a first table, or for all sizes.
    pub(crate) fn new(kind: Kind, full: bool, tests: Vec<&'static Test>, transports: Vec<Transport>) -> Self {
        const SOME: &[u64] = &[8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20];
        const ALL: &[u64] = &[0, 1, 8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
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
            budget: (!full).then_some(Budget::FOUR_MINUTES),
            brief: None,
            left_out: Vec::new(),
        }
    }

    /// The plan for what events cost: small differences, so many rounds.
    pub(crate) fn of_events(kind: Kind, full: bool, tests: Vec<&'static Test>) -> Self {
        let (rounds, rounds_of_instructions) = if full { (8, ROUNDS_OF_INSTRUCTIONS) } else { (5, 1) };
        let plan = Self::new(kind, full, tests, transport::EVENTS.to_vec());
        Self { rounds, rounds_of_the_rest: rounds, rounds_of_instructions, budget: None, ..plan }
    }

    /// Whether another round follows so many, which took so long.
    pub(crate) fn has_another_round(&self, done: usize, passed: Duration) -> bool {
        done < self.rounds && self.budget.is_none_or(|budget| budget.has_another_round(done, passed))
    }

    /// Whether there is time to measure again what is unsteady. What events cost are ratios within a round, of which there
    /// is no half.
    pub(crate) fn has_time_again(&self, passed: Duration) -> bool {
        !self.is_of_events() && self.budget.is_none_or(|budget| budget.has_time_again(passed))
    }

    /// Whether this is a plan for what events cost.
    pub(crate) fn is_of_events(&self) -> bool {
        self.transports.contains(&Transport::WithoutEvents)
    }

    /// The sizes a test is measured with.
    pub(crate) fn sizes_of(&self, test: &Test) -> impl Iterator<Item = u64> {
        let sizes = if self.sizes.is_empty() { test.few } else { &self.sizes };
        sizes.iter().copied().filter(move |size| (test.sizes.0..=test.sizes.1).contains(size))
    }

    /// Whether a test is measured with a size.
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
    fn the_sizes_of_a_first_table_are_sizes_of_the_test() {
        let plan = Plan::new(Kind::SoftHca, false, vec![], vec![]);
        assert!(catalogue::TESTS.iter().all(|test| plan.sizes_of(test).eq(test.few.iter().copied())));
    }
}

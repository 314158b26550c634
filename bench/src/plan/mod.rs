// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a bench measures, in how many rounds, with which sizes.
//!
//! A machine's speed drifts, so everything is measured in several rounds, and within a round all transports of one
//! group of tests follow each other closely. Latencies, which are short and judged closely, may have more rounds than
//! the rest.
//!
//! This file has the plan itself. [`round`] says what each of its rounds starts, a [`step`] at a time; [`wanted`] makes
//! it of what the user asks for, [`available`] leaves out what is not there, by what `openmpi` knows of the Open MPI.
//! Grade: setup. Carried out by [`crate::run`]. Tests: in each file.

pub(crate) mod available;
mod openmpi;
mod round;
pub(crate) mod step;
pub(crate) mod wanted;

use crate::catalogue::device_kind::Kind;
use crate::catalogue::transport::{self, Transport};
use crate::catalogue::{By, Test};
use serde::{Deserialize, Serialize};

/// What to measure, as the arguments say.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
    /// In the order of the report.
    pub(crate) tests: Vec<&'static Test>,
    /// What to measure them over.
    pub(crate) transports: Vec<Transport>,
    /// Message sizes, ascending.
    pub(crate) sizes: Vec<u64>,
    /// How often latencies are measured; at least as often as the rest.
    pub(crate) rounds: usize,
    rounds_of_the_rest: usize,
    rounds_of_instructions: usize,
    /// How long the MPI program measures each latency, and each other value.
    seconds_per_row: (f64, f64),
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

/// Instructions are counted twice: enough to see that the counts repeat.
const ROUNDS_OF_INSTRUCTIONS: usize = 2;

impl Plan {
    /// What it measures over.
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

    /// The plan for a run with all sizes, or for a quick one.
    pub(crate) fn new(kind: Kind, quick: bool, tests: Vec<&'static Test>, transports: Vec<Transport>) -> Self {
        const FEW: &[u64] = &[8, 4 << 10, 64 << 10, 1 << 20];
        const SOME: &[u64] = &[8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20];
        const ALL: &[u64] = &[0, 1, 8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
        let (sizes, rounds, rest, seconds_per_row) = match (kind, quick) {
            (Kind::SoftHca, true) => (FEW, 3, 2, (0.1, 0.05)),
            (Kind::SoftHca, false) => (SOME, 5, 3, (0.1, 0.05)),
            (_, true) => (FEW, 2, 2, (0.2, 0.2)),
            (_, false) => (ALL, 3, 3, (0.3, 0.3)),
        };
        Self {
            kind,
            tests,
            transports,
            sizes: sizes.to_vec(),
            rounds,
            rounds_of_the_rest: rest,
            rounds_of_instructions: ROUNDS_OF_INSTRUCTIONS,
            seconds_per_row,
            left_out: Vec::new(),
        }
    }

    /// The plan for what events cost: small differences, so many short rounds.
    pub(crate) fn of_events(kind: Kind, quick: bool, tests: Vec<&'static Test>) -> Self {
        let (rounds, rounds_of_instructions) = if quick { (5, 1) } else { (8, ROUNDS_OF_INSTRUCTIONS) };
        let plan = Self::new(kind, quick, tests, transport::EVENTS.to_vec());
        Self { rounds, rounds_of_the_rest: rounds, rounds_of_instructions, ..plan }
    }

    /// Whether this is a plan for what events cost.
    pub(crate) fn is_of_events(&self) -> bool {
        self.transports.contains(&Transport::WithoutEvents)
    }

    /// The sizes a test is measured with.
    pub(crate) fn sizes_of(&self, test: &Test) -> impl Iterator<Item = u64> {
        self.sizes.iter().copied().filter(move |size| (test.sizes.0..=test.sizes.1).contains(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_the_speed_bars_need_are_in_all_plans() {
        for (kind, quick) in [Kind::SoftRoce, Kind::SoftHca].into_iter().flat_map(|kind| [(kind, false), (kind, true)])
        {
            let plan = Plan::new(kind, quick, vec![], vec![]);
            for size in [8, 64 << 10, 1 << 20] {
                assert!(plan.sizes.contains(&size), "{size}");
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run found, and what it could not measure.
//!
//! Grade: setup. Made by [`crate::run`], condensed by [`crate::report`]. Plain data.

use crate::programs::Measurement;
use crate::programs::event_counts::Counts;
use crate::programs::instructions::{Count, Counted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the counts with a buffer that is too small are called.
pub const SMALL_BUFFER: &str = "small buffer";

#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) rounds: usize,
    /// How many values were measured again after them, as they were unsteady.
    pub(crate) again: usize,
    /// In the order it was measured.
    pub(crate) measured: Vec<Measurement>,
    /// Where the instructions go, of the last time each was counted.
    pub(crate) instructions: BTreeMap<Count, Counted>,
    /// What became of events, in all runs with a tool that counts them, by the transport's name.
    pub(crate) events: BTreeMap<&'static str, Counts>,
    pub(crate) failures: Vec<Failure>,
    /// How many times their first length programs without MPI need, which measure what they are told: found in the first
    /// round of each.
    pub(crate) lengths: BTreeMap<(&'static str, u64), u32>,
}

/// How much was measured for the values of a report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Effort {
    /// How often each value was measured; what is longer or exact, less often.
    pub(crate) rounds: usize,
    /// How many values were measured again, as their rounds lay too far apart.
    pub(crate) again: usize,
    /// The seconds of the shortest row.
    pub(crate) shortest: f64,
    /// And of the longest.
    pub(crate) longest: f64,
}

impl Effort {
    /// `3 rounds of rows of 0.2 to 1.6 s; 2 values measured again`.
    pub(crate) fn words(self) -> String {
        let Self { rounds, again, shortest, longest } = self;
        format!("{rounds} rounds, rows of {shortest:.1} to {longest:.1} s; values measured again: {again}")
    }
}

impl Found {
    /// How much was measured; none where no program says how long.
    pub(crate) fn effort(&self) -> Option<Effort> {
        let seconds = || self.measured.iter().filter_map(|one| one.seconds);
        let shortest = seconds().min_by(f64::total_cmp)?;
        let longest = seconds().max_by(f64::total_cmp)?;
        Some(Effort { rounds: self.rounds, again: self.again, shortest, longest })
    }
}

/// A start of a program, in one round, that did not measure all that it was started for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) transport: String,
    /// The tests it is of; of a raw program, those that are compared with it.
    pub(crate) tests: Vec<String>,
    /// Each value: the name of its row, and its size.
    pub(crate) values: Vec<(String, u64)>,
    pub(crate) round: usize,
    /// What happened, with what was printed.
    pub(crate) reason: String,
    /// Whether the machine was too busy, and nothing else is wrong: another round makes up for it.
    pub(crate) busy: bool,
    /// Whether a value of it was measured in no other round either.
    pub(crate) missing: bool,
}

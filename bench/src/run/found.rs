// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run found, and what it could not measure.
//!
//! Grade: setup. Made by [`crate::run`], condensed by [`crate::report`]. Plain data.

use crate::programs::event_counts::Counts;
use crate::programs::instructions::{Count, Counted};
use crate::programs::measurement::Measurement;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the counts with a buffer that is too small are called.
pub(crate) const SMALL_BUFFER: &str = "small buffer";

/// Everything a run found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In the order it was measured.
    pub(crate) measured: Vec<Measurement>,
    /// Where the instructions go, of the last time each was counted.
    pub(crate) instructions: BTreeMap<Count, Counted>,
    /// What became of events, in all runs with a tool that counts them, by the transport's name.
    pub(crate) events: BTreeMap<&'static str, Counts>,
    /// How often a program of perftest was run again, as it could not find out how fast the processor's clock runs.
    pub(crate) repeated: usize,
    /// What could not be measured.
    pub(crate) failures: Vec<Failure>,
}

/// A start of a program, in one round, that did not measure all that it was started for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// What was to carry it.
    pub(crate) transport: String,
    /// The tests it is of; of a raw program, those that are compared with it.
    pub(crate) tests: Vec<String>,
    /// Each value: the name of its row, and its size.
    pub(crate) values: Vec<(String, u64)>,
    /// The round, from 1.
    pub(crate) round: usize,
    /// What happened, with what was printed.
    pub(crate) reason: String,
    /// Whether the machine was too busy, and nothing else is wrong: another round makes up for it.
    pub(crate) busy: bool,
    /// Whether a value of it was measured in no other round either.
    pub(crate) missing: bool,
}

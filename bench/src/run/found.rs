// SPDX-License-Identifier: MIT OR Apache-2.0
//! The values that a run found, and its failures. Made by [`crate::run`], summarised by [`crate::report`]. Plain data.

use crate::programs::Measurement;
use crate::programs::event_counts::Counts;
use crate::programs::instructions::{Count, Counted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the counts with a buffer that is too small.
pub const SMALL_BUFFER: &str = "small buffer";

#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) effort: Effort,
    /// In the order of measurement.
    pub(crate) measured: Vec<Measurement>,
    /// The last count of each: its instructions by object.
    pub(crate) instructions: BTreeMap<Count, Counted>,
    /// Counts of events in all runs with a tool that counts them, by the transport's name.
    pub(crate) events: BTreeMap<&'static str, Counts>,
    pub(crate) failures: Vec<Failure>,
    /// Length that each program without MPI needs, in multiples of its first length; found in its first round.
    pub(crate) lengths: BTreeMap<(&'static str, u64), u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Effort {
    /// Rounds of a value; long or exact ones have fewer.
    pub(crate) rounds: usize,
    /// Number of values measured again because they were unsteady.
    pub(crate) again: usize,
}

/// A start of a program, in one round, that did not measure all of its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) transport: String,
    /// Tests of its values; for a raw program, the tests that are compared with it.
    pub(crate) tests: Vec<String>,
    /// Name of the row, and size, of each value.
    pub(crate) values: Vec<(String, u64)>,
    pub(crate) round: usize,
    /// The failure, with the program's output.
    pub(crate) reason: String,
    /// Whether the only cause was a busy machine, so that another round makes up for it.
    pub(crate) busy: bool,
    /// Whether no other round measured one of its values either.
    pub(crate) missing: bool,
}

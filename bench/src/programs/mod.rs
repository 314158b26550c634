// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that measure: the command line of each, and what it prints.
//!
//! `ibex_mpi_bench` ([`mpi`]), perftest ([`perftest`], [`ucx_perftest`]),
//! `ibex_mpi_instructions` under valgrind ([`instructions`], `callgrind`), `host_memory_ratios` ([`host_memory`]),
//! and the tool `every_event` ([`event_counts`]). Each gives a [`Measurement`]. Runs nothing.

mod callgrind;
pub(crate) mod event_counts;
pub(crate) mod host_memory;
pub(crate) mod instructions;
pub(crate) mod mpi;
pub(crate) mod perftest;
pub(crate) mod ucx_perftest;

use crate::catalogue::{Test, Transport};
use anyhow::{Context, Result, bail};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    /// Name of the test, or of the raw program.
    pub(crate) test: String,
    pub(crate) transport: Transport,
    pub(crate) bytes: u64,
    /// The value, in the unit of the test.
    pub(crate) value: f64,
    /// What the measurement itself says of its spread.
    pub(crate) spread: f64,
    /// How long it took, where the program says it.
    pub(crate) seconds: Option<f64>,
}

/// A line of `ibex_mpi_bench` or `host_memory_ratios`; it may have more fields than are read here.
#[derive(Deserialize)]
struct Line {
    test: String,
    /// Where one program measures several.
    transport: Option<String>,
    bytes: u64,
    unit: String,
    value: f64,
    spread: f64,
    seconds: Option<f64>,
}

impl Line {
    fn read(program: &str, line: &str) -> Result<Self> {
        serde_json::from_str(line).with_context(|| format!("{program} printed a line that cannot be read: {line}"))
    }

    /// The measurement of a test over a transport, of which a value has this unit and is above 0.
    fn measured(self, program: &str, transport: Transport, test: &Test) -> Result<Measurement> {
        let Self { test: name, bytes, unit, value, spread, seconds, .. } = self;
        if unit != test.metric.unit() || value <= 0.0 || !value.is_finite() {
            bail!("{program} gives {value} {unit} for {name} of {bytes} bytes");
        }
        Ok(Measurement { test: name, transport, bytes, value, spread, seconds })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn measured(test: &str, transport: Transport, bytes: u64, value: f64) -> Measurement {
        Measurement { test: test.to_owned(), transport, bytes, value, spread: 0.5, seconds: None }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of each program that measures, and its output as a [`Measurement`]. Runs nothing.

mod callgrind;
pub(crate) mod event_counts;
pub(crate) mod host_memory;
pub(crate) mod instructions;
pub(crate) mod libfabric;
pub(crate) mod mpi;
pub(crate) mod perftest;
mod stock;

use crate::catalogue::{Test, Transport};
use anyhow::{Context, Result, bail};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    /// Name of the test, or of the raw program.
    pub(crate) test: String,
    pub(crate) transport: Transport,
    pub(crate) bytes: u64,
    /// In the unit of the test.
    pub(crate) value: f64,
    /// Spread that the program itself gives.
    pub(crate) spread: f64,
}

/// A line that `ibex_mpi_bench`, `ibex_fi_latency` or `host_memory_ratios` prints. Other fields are ignored.
#[derive(Deserialize)]
struct Line {
    test: String,
    /// Given if the program measures several.
    transport: Option<String>,
    bytes: u64,
    unit: String,
    value: f64,
    spread: f64,
}

impl Line {
    fn read(program: &str, line: &str) -> Result<Self> {
        serde_json::from_str(line).with_context(|| format!("{program} printed a line that cannot be read: {line}"))
    }

    /// Makes the measurement of a test over a transport; the value must have the test's unit and be above 0.
    fn measured(self, program: &str, transport: Transport, test: &Test) -> Result<Measurement> {
        let Self { test: name, bytes, unit, value, spread, .. } = self;
        let expected = test.metric.unit();
        if unit != expected || value <= 0.0 || !value.is_finite() {
            bail!(
                "{program} gives {value} {unit} for {name} of {bytes} bytes, and a value above 0 {expected} was expected; \
                 is the program of this release of ibex?"
            );
        }
        Ok(Measurement { test: name, transport, bytes, value, spread })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn measured(test: &str, transport: Transport, bytes: u64, value: f64) -> Measurement {
        Measurement { test: test.to_owned(), transport, bytes, value, spread: 0.5 }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the programs without MPI: perftest, the program of libfabric's calls, and the host's memory. The first two are
//! repeated with twice the length until the value stays the same, because caches, windows and clocks have to warm up.
//! `benches/mpi/ibex_mpi_bench.c` has the same rule. Called by [`super`]. Grade: setup. Tests: `run/mod.rs`, and below.

use super::found::Found;
use super::runner::Runner;
use crate::catalogue::RawProgram;
use crate::nodes::{Job, Outcome};
use crate::programs::{Measurement, host_memory, libfabric as of_libfabric, perftest};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Reason why a working program of perftest has no value.
#[derive(Debug)]
pub(super) struct Busy;

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it could not measure the processor's clock in {TRIES} runs, as the machine is too busy")
    }
}

impl std::error::Error for Busy {}

/// Most runs of a program of perftest for one value.
pub(super) const TRIES: usize = 6;

/// No length is doubled after this time; most of it goes into starting programs.
const PATIENCE: Duration = Duration::from_secs(4);

/// Greatest length of a row, in multiples of the first: a power of two.
const LONGEST: u32 = 16;

/// A row is long enough if doubling it changes its median by less than this share.
const SETTLED: f64 = 0.05;

/// Measures a row: the first time until it has settled, from then on with the length that it took.
pub(super) fn raw(runner: &mut Runner, program: &'static RawProgram, bytes: u64, found: &mut Found) -> Result<()> {
    row((program.name, bytes), found, |times| {
        let outcome = raw_undisturbed(runner, program, bytes, times);
        let parsed = outcome.and_then(|outcome| perftest::parse(&outcome.stdout, program, bytes));
        parsed.with_context(|| format!("the raw measurement {} of {bytes} bytes failed", program.name))
    })
}

/// Measures a row by libfabric's calls, in the same way.
pub(super) fn libfabric(runner: &Runner, bytes: u64, found: &mut Found) -> Result<()> {
    row((of_libfabric::PROGRAM, bytes), found, |times| {
        let outcome = runner.job(&of_libfabric::job(runner.place, bytes, times))?.checked();
        let parsed = outcome.and_then(|outcome| of_libfabric::parse(&outcome.stdout));
        parsed.with_context(|| format!("the measurement of {bytes} bytes by libfabric's calls failed"))
    })
}

/// Measures the row of a program and a size, by a function that gets its length, and notes its value.
fn row(of: (&'static str, u64), found: &mut Found, mut measured: impl FnMut(u32) -> Result<Measurement>) -> Result<()> {
    let value = if let Some(times) = found.lengths.get(&of) {
        measured(*times)?
    } else {
        let begun = Instant::now();
        let (times, last) = until_settled(measured, |one| one.value, || begun.elapsed() < PATIENCE)?;
        found.lengths.insert(of, times);
        last
    };
    found.measured.push(value);
    Ok(())
}

/// Measures a row repeatedly, each time twice as long, until its median has settled or `has_time` is false. Returns the
/// last length in multiples of the first, and the last value.
fn until_settled<T>(
    mut measured: impl FnMut(u32) -> Result<T>,
    median: impl Fn(&T) -> f64,
    has_time: impl Fn() -> bool,
) -> Result<(u32, T)> {
    let (mut times, mut last) = (1, measured(1)?);
    while times < LONGEST {
        times *= 2;
        let longer = measured(times)?;
        let settled = (median(&longer) - median(&last)).abs() < SETTLED * median(&last);
        last = longer;
        if settled || !has_time() {
            break;
        }
    }
    Ok((times, last))
}

fn raw_undisturbed(runner: &mut Runner, program: &RawProgram, bytes: u64, times: u32) -> Result<Outcome> {
    for _ in 0..TRIES {
        let (port, place) = (runner.next_port(), runner.place);
        let iterations = perftest::iterations(program.reads, bytes, place.kind) * times;
        let outcome = runner.both_sides(&perftest::sides(program.name, place, bytes, iterations, port))?;
        if !perftest::was_disturbed(&outcome) {
            return outcome.checked();
        }
        runner.progress.remarks(&format!(
            "{} could not measure the processor's clock, as the machine was busy; it is run again",
            program.name
        ));
    }
    Err(Busy.into())
}

pub(super) fn host_memory(runner: &Runner, found: &mut Found) -> Result<()> {
    let outcome = runner.job(&Job::new(host_memory::command(runner.place)))?;
    let outcome = outcome.checked().context("the comparison with the host's memory failed")?;
    found.measured.extend(host_memory::parse(&outcome.stdout)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    /// Returns the lengths of a row that gives these values in turn, and its last value.
    fn grown(values: &[f64]) -> (Vec<u32>, f64) {
        let mut lengths = Vec::new();
        let measured = |times: u32| {
            lengths.push(times);
            Ok(values[lengths.len() - 1])
        };
        let (times, value) = until_settled(measured, |value| *value, || true).unwrap();
        assert_eq!(lengths.last(), Some(&times));
        (lengths, value)
    }

    #[test]
    fn a_row_is_doubled_until_that_changes_its_median_by_less_than_a_twentieth_or_it_is_at_its_longest() {
        assert_eq!(grown(&[100.0, 104.9]), (vec![1, 2], 104.9));
        assert_eq!(grown(&[100.0, 105.0, 100.0]), (vec![1, 2, 4], 100.0));
        assert_eq!(grown(&[100.0, 60.0, 50.0, 48.0]), (vec![1, 2, 4, 8], 48.0));
        assert_eq!(grown(&[1.0, 2.0, 1.0, 2.0, 1.0]), (vec![1, 2, 4, 8, 16], 1.0));
    }

    #[test]
    fn a_row_for_which_there_is_no_time_is_doubled_once_and_a_failure_ends_it() {
        let row = until_settled(|times| Ok(f64::from(times)), |value| *value, || false);
        assert_eq!(row.unwrap().0, 2);
        let fails = |times| if times > 1 { bail!("gone") } else { Ok(1.0) };
        assert!(until_settled(fails, |value| *value, || true).is_err());
    }
}

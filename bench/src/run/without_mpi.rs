// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the programs without MPI: perftest, `ucx_perftest`, the host's memory; the first two until twice the time gives
//! the same.
//!
//! First moments are not what goes on: caches, windows and clocks are still filling. The rule is that of
//! `benches/mpi/ibex_mpi_bench.c`. Grade: setup. Called by [`super`]. Tests: there, and at the end of this file.

use super::found::Found;
use super::runner::Runner;
use crate::catalogue::{RawProgram, Test};
use crate::nodes::{Job, Outcome};
use crate::programs::{Measurement, host_memory, perftest, ucx_perftest};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Why a program of perftest has no value, though it works.
#[derive(Debug)]
pub(super) struct Busy;

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it could not measure the processor's clock in {TRIES} runs, as the machine is too busy")
    }
}

impl std::error::Error for Busy {}

/// How often a program of perftest is run in all for one value.
pub(super) const TRIES: usize = 6;

/// No length is doubled after so long a time, which is that of starts above all.
const PATIENCE: Duration = Duration::from_secs(4);

/// How many times as long as at first a row becomes at the most: a power of two.
const LONGEST: u32 = 16;

/// A row is long enough if doubling it changes its median by less than this share.
const SETTLED: f64 = 0.05;

pub(super) fn raw(runner: &mut Runner, program: &'static RawProgram, bytes: u64, found: &mut Found) -> Result<()> {
    let measured = |times| {
        let outcome = raw_undisturbed(runner, program, bytes, times)?;
        perftest::parse(&outcome.stdout, program, bytes)
    };
    let named = || format!("the raw measurement {} of {bytes} bytes failed", program.name);
    long_enough((program.name, bytes), measured, found).with_context(named)
}

/// Measures something that does what it is told for so long: the first time until it is settled, from then on as long as
/// it took.
fn long_enough(
    of: (&'static str, u64),
    mut measured: impl FnMut(u32) -> Result<Measurement>,
    found: &mut Found,
) -> Result<()> {
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

/// Measures a row again and again, each time twice as long, until its median has settled or `has_time` says no.
/// Returns how many times the first length the last row had, and what `measured` returned for it.
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

/// Runs a program of perftest until it could find out how fast the processor's clock runs.
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

pub(super) fn ucx_perftest(runner: &mut Runner, test: &'static Test, bytes: u64, found: &mut Found) -> Result<()> {
    let measured = |times| {
        let sides = ucx_perftest::sides(test, bytes, times, runner.place, runner.next_port())?;
        let outcome = runner.both_sides(&sides)?.checked().context("ucx_perftest failed")?;
        ucx_perftest::parse(&outcome.stdout, test, bytes)
    };
    long_enough((test.name, bytes), measured, found)
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

    /// The lengths that are measured, and the last value, of a row that gives these in turn.
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
    fn a_row_is_doubled_until_that_changes_its_median_by_less_than_a_twentieth() {
        assert_eq!(grown(&[100.0, 104.9]), (vec![1, 2], 104.9));
        assert_eq!(grown(&[100.0, 105.0, 100.0]), (vec![1, 2, 4], 100.0));
        assert_eq!(grown(&[100.0, 60.0, 50.0, 48.0]), (vec![1, 2, 4, 8], 48.0));
    }

    #[test]
    fn a_row_that_does_not_settle_ends_at_its_longest() {
        assert_eq!(grown(&[1.0, 2.0, 1.0, 2.0, 1.0]), (vec![1, 2, 4, 8, 16], 1.0));
    }

    #[test]
    fn a_row_for_which_there_is_no_time_is_doubled_once() {
        let row = until_settled(|times| Ok(f64::from(times)), |value| *value, || false);
        assert_eq!(row.unwrap().0, 2);
    }

    #[test]
    fn what_cannot_be_measured_ends_the_row() {
        let fails = |times| if times > 1 { bail!("gone") } else { Ok(1.0) };
        assert!(until_settled(fails, |value| *value, || true).is_err());
    }
}

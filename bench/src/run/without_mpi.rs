// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the programs without MPI: perftest, `ucx_perftest`, the host's memory.
//!
//! Grade: setup. Called by [`super`]. Tests: there.

use super::found::Found;
use super::runner::Runner;
use crate::catalogue::transport::Transport;
use crate::catalogue::{RawProgram, Test};
use crate::growth;
use crate::nodes::job::{Job, Outcome};
use crate::programs::measurement::Measurement;
use crate::programs::{host_memory, perftest, ucx_perftest};
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

/// Runs a program of perftest with one size.
pub(super) fn raw(runner: &mut Runner, program: &'static RawProgram, bytes: u64, found: &mut Found) -> Result<()> {
    let measured = |times| {
        let outcome = raw_undisturbed(runner, program, bytes, times)?;
        let perftest::Value { value, spread } = perftest::parse(&outcome.stdout, program.reads, bytes)?;
        let (test, transport) = (program.name.to_owned(), Transport::Raw);
        Ok(Measurement { test, transport, bytes, value, spread, seconds: None })
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
        let (times, last) = growth::until_settled(measured, |one| one.value, || begun.elapsed() < PATIENCE)?;
        found.lengths.insert(of, times);
        last
    };
    found.measured.push(value);
    Ok(())
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

/// Runs `ucx_perftest` with a test and a size.
pub(super) fn ucx_perftest(runner: &mut Runner, test: &'static Test, bytes: u64, found: &mut Found) -> Result<()> {
    let measured = |times| {
        let sides = ucx_perftest::sides(test, bytes, times, runner.place, runner.next_port())?;
        let outcome = runner.both_sides(&sides)?.checked().context("ucx_perftest failed")?;
        ucx_perftest::parse(&outcome.stdout, test, bytes)
    };
    long_enough((test.name, bytes), measured, found)
}

/// Compares the emulated adapter with the host's memory.
pub(super) fn host_memory(runner: &Runner, found: &mut Found) -> Result<()> {
    let outcome = runner.job(&Job::new(host_memory::command(runner.place)))?;
    let outcome = outcome.checked().context("the comparison with the host's memory failed")?;
    found.measured.extend(host_memory::parse(&outcome.stdout)?);
    Ok(())
}

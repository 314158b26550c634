// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs MPI over a transport, and takes its values and its counts of events as they come; counts its instructions, and
//! again if the counts differ. Called by [`super`]. Grade: setup. Tests: `run/mod.rs`.

use super::found::{Found, SMALL_BUFFER};
use super::runner::{NodesGone, Runner};
use crate::catalogue::{self, Kind, Test, Transport};
use crate::nodes::{Job, Stream};
use crate::programs::event_counts::Counts;
use crate::programs::instructions::{self, Count};
use crate::programs::{Measurement, mpi};
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Runs `ibex_mpi_bench` over a transport: these tests with a size. Keeps the values before a failure.
pub(super) fn mpi(
    runner: &Runner,
    transport: Transport,
    tests: &[&'static Test],
    bytes: u64,
    found: &mut Found,
) -> Result<()> {
    let argv = mpi::command(runner.place, transport, tests, &[bytes])?;
    // The processors also do a software adapter's work, and may be those of a virtual machine.
    let start = if runner.place.kind == Kind::SoftRoce { 300 } else { 60 };
    let (a_row, expected) = (20, tests.len());
    let limit = Duration::from_secs(start + a_row * expected as u64);
    let job = mpi::job(runner.place, transport, argv).limit(limit);

    let mut measured = Vec::new();
    let mut wrong = None;
    let outcome = runner.nodes.run(&job, &mut |stream, line| {
        if stream == Stream::Stdout {
            if let Some(counts) = Counts::parse(line) {
                found.events.entry(transport.name()).or_default().add(counts);
            }
            match mpi::measurement(line, transport, tests) {
                Ok(Some(measurement)) => {
                    runner.progress.advance(1);
                    measured.push(measurement);
                }
                Ok(None) => {}
                Err(error) => wrong = Some(error),
            }
        }
    });
    let values = measured.len();
    found.measured.append(&mut measured);
    let outcome = outcome.context(NodesGone)?;
    let outcome = outcome.checked().with_context(|| format!("MPI over {} failed", transport.name()))?;
    if let Some(error) = wrong {
        return Err(error);
    }
    if values != expected {
        bail!("MPI over {} measured {} values, and {expected} were expected: {}", transport.name(), values, outcome);
    }
    // Logs and traces are long, and nobody reads them.
    let left = match transport {
        Transport::Logger => [0, 1].map(|rank| runner.place.reports.join(format!("events.{rank}"))).into(),
        Transport::Recorded => vec![mpi::trace(runner.place)],
        _ => return Ok(()),
    };
    let left = left.iter().map(|path| path.display().to_string());
    let remove = Job::new(["rm", "-r"].map(str::to_owned).into_iter().chain(left));
    runner.job(&remove)?.checked().context("the logger or the recorder wrote nothing")?;
    Ok(())
}

/// Loses events on purpose, to see that each loss is counted.
pub(super) fn small_buffer(runner: &Runner, found: &mut Found) -> Result<()> {
    let tests: Vec<&Test> = catalogue::test("bandwidth").into_iter().collect();
    let argv = mpi::command(runner.place, Transport::Buffered, &tests, &[8])?;
    let mut job = mpi::job(runner.place, Transport::Buffered, argv);
    job.env.push(("OMPI_MCA_btl_ibex_event_buffer".to_owned(), "8".to_owned()));
    let outcome = runner.job(&job)?.checked().context("MPI with a small buffer for events failed")?;
    found.events.insert(SMALL_BUFFER, Counts::of_all(&outcome.stdout));
    Ok(())
}

/// Most counts of instructions in a round.
const COUNTS: usize = 3;

/// Counts, and counts again if the number differs from the previous round's, because then a rank had to wait. With a
/// tool the counts may vary, because the number of events that it gets depends on time.
pub(super) fn instructions(runner: &Runner, what: Count, is_of_events: bool, found: &mut Found) -> Result<()> {
    let transport = what.transport;
    let named = || format!("counting the instructions of MPI over {} failed", transport.name());
    let before = found.instructions.get(&what);
    let before = before.map(|counted| instructions::of_mpi(&counted.objects));
    let mut counts: Vec<f64> = before.into_iter().collect();
    for _ in 0..COUNTS {
        let counted = instructions::counted(runner.place, what, |job| runner.job(job)).with_context(named)?;
        let instructions = instructions::of_mpi(&counted.objects);
        let varies = matches!(transport, Transport::Callbacks | Transport::Buffered);
        if is_of_events && transport.is_pml() {
            // Matching events have no column in the tables.
            found.instructions.insert(what, counted);
            return Ok(());
        }
        if varies || before.is_none() || counts.iter().any(|other| instructions::repeats(instructions, *other)) {
            found.measured.push(Measurement {
                test: what.test().to_owned(),
                transport,
                bytes: what.bytes,
                value: instructions,
                spread: 0.0,
            });
            found.instructions.insert(what, counted);
            return Ok(());
        }
        runner.progress.remarks(&format!(
            "{instructions:.0} instructions of MPI over {}, and {:.0} before: counted again",
            transport.name(),
            before.unwrap_or(instructions)
        ));
        counts.push(instructions);
    }
    bail!("the instructions of MPI over {} do not repeat: {counts:.0?}", transport.name());
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs MPI over a transport, and takes its values and its counts of events as they come.
//!
//! Grade: setup. Called by [`super`]. Tests: there.

use super::found::{Found, SMALL_BUFFER};
use super::runner::{NodesGone, Runner};
use crate::catalogue::device_kind::Kind;
use crate::catalogue::transport::Transport;
use crate::catalogue::{self, Test};
use crate::nodes::job::{Job, Stream};
use crate::programs::event_counts::Counts;
use crate::programs::mpi;
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Runs `ibex_mpi_bench` over a transport: these tests with a size. What it measured before it failed is found, too.
pub(super) fn mpi(
    runner: &Runner,
    transport: Transport,
    tests: &[&'static Test],
    bytes: u64,
    found: &mut Found,
) -> Result<()> {
    let argv = mpi::command(runner.place, transport, tests, &[bytes])?;
    // The processors do a software adapter's work, too, and may be those of a virtual machine.
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
        bail!(
            "MPI over {} measured {} values, and {expected} were expected: {}",
            transport.name(),
            values,
            outcome.shown
        );
    }
    if transport == Transport::Logger {
        remove_logs(runner)?;
    }
    if transport == Transport::Recorded {
        let trace = mpi::trace(runner.place).display().to_string();
        runner.job(&Job::new(["rm", "-r", &trace]))?.checked().context("the recorder left no trace")?;
    }
    Ok(())
}

/// Logs are long, and nobody reads them.
fn remove_logs(runner: &Runner) -> Result<()> {
    let logs = [0, 1].map(|rank| mpi::log(runner.place, rank).display().to_string());
    runner.job(&Job::new(["rm", &logs[0], &logs[1]]))?.checked().context("the logger wrote no file")?;
    Ok(())
}

/// Loses events on purpose, to see that none is lost without being counted.
pub(super) fn small_buffer(runner: &Runner, found: &mut Found) -> Result<()> {
    let tests: Vec<&Test> = catalogue::test("bandwidth").into_iter().collect();
    let argv = mpi::command(runner.place, Transport::Buffered, &tests, &[8])?;
    let mut job = mpi::job(runner.place, Transport::Buffered, argv);
    job.env.push(("OMPI_MCA_btl_ibex_event_buffer".to_owned(), "8".to_owned()));
    let outcome = runner.job(&job)?.checked().context("MPI with a small buffer for events failed")?;
    found.events.insert(SMALL_BUFFER, Counts::of_all(&outcome.stdout));
    Ok(())
}

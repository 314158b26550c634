// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts instructions over a transport, and again where the counts differ.
//!
//! Grade: setup. Called by [`super`].

use super::found::Found;
use super::runner::Runner;
use crate::catalogue::transport::Transport;
use crate::programs::instructions::{self, Count};
use crate::programs::measurement::Measurement;
use anyhow::{Context, Result, bail};

/// How often instructions are counted in all in a round.
const COUNTS: usize = 3;

/// Counts, and counts again where the number is not that of the round before: then something was waited for. What a
/// tool is told, and when, depends on time, and is counted as it comes.
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
            // Of the matching, which have no column among the others.
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
                seconds: None,
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

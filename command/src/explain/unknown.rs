// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remarks about missing data, at the end of each output: lost events, and inconsistent data. Called by `receipt`,
//! `life` and `waits`. Grade: setup. Tests: in `explain`.

use ibex_messages::Job;
use serde::Serialize;

use super::text::{name, table};

#[derive(Serialize, Default)]
pub(super) struct Unknown {
    losses: Vec<Lost>,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Lost {
    rank: String,
    event: String,
    count: u64,
}

impl Unknown {
    pub(super) fn of(job: &Job) -> Unknown {
        let lost = |loss: &ibex_messages::Loss| Lost {
            rank: name(job, loss.rank),
            event: loss.event.clone(),
            count: loss.count,
        };
        Unknown { losses: job.losses.iter().map(lost).collect(), faults: job.faults.clone() }
    }
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.losses.is_empty() {
            writeln!(f, "\nLost events")?;
            let rows = self.losses.iter().map(|of| vec![of.rank.clone(), of.event.clone(), of.count.to_string()]);
            writeln!(f, "{}", table(&["rank", "event", "lost"], &[2], rows))?;
        }
        if !self.faults.is_empty() {
            writeln!(f, "\nRemarks")?;
            self.faults.iter().try_for_each(|fault| writeln!(f, "  - {fault}"))?;
        }
        Ok(())
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the jobs of a bench: on the caller's [`Nodes`], or [`Here`]. Grade: setup.

use anyhow::Result;
pub use ibex_jobs::{Job, Outcome, Stream};
use ibex_jobs::{Purpose, here};
use which::which;

/// Runs jobs where the device is.
pub trait Nodes {
    /// Runs a job to its end, and calls `line` with each line that it prints, as it comes.
    ///
    /// # Errors
    /// Neither this job nor another can be run. A job that fails is an [`Outcome`].
    fn run(&self, job: &Job, line: &mut dyn FnMut(Stream, &str)) -> Result<Outcome>;
}

pub(crate) fn run(nodes: &dyn Nodes, job: &Job) -> Result<Outcome> {
    nodes.run(job, &mut |_, _| {})
}

/// This machine.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Nodes for Here {
    fn run(&self, job: &Job, line: &mut dyn FnMut(Stream, &str)) -> Result<Outcome> {
        here(job, Purpose::Measurement).wait_with(line)
    }
}

/// Whether a program of that name is in `PATH`.
pub fn is_in_path(program: &str) -> bool {
    which(program).is_ok()
}

#[cfg(test)]
pub(crate) fn ended(status: i32, stdout: &str, stderr: &str) -> Outcome {
    let (ending, elapsed) = (ibex_jobs::Ending::Exited(status), std::time::Duration::ZERO);
    Outcome { command: "x".to_owned(), ending, stdout: stdout.to_owned(), stderr: stderr.to_owned(), elapsed }
}

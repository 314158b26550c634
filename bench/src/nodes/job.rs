// SPDX-License-Identifier: MIT OR Apache-2.0
//! A command and its output, and the trait that runs it. [`crate::run`] makes a [`Job`]; a [`Nodes`], which the caller
//! of the bench provides, runs it. Grade: setup. Plain data.

use anyhow::{Result, bail};
use std::time::Duration;

/// A command.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, searched in `PATH`, and its arguments.
    pub argv: Vec<String>,
    /// Variables beyond those of this process.
    pub env: Vec<(String, String)>,
    /// Time after which it is ended with all processes that it started.
    pub limit: Duration,
}

impl Job {
    /// Makes a job with a limit of two minutes.
    pub(crate) fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self { argv, env: Vec::new(), limit: Duration::from_mins(2) }
    }

    pub(crate) fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}

/// Stream of a job's line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A finished job.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether it returned status 0.
    pub success: bool,
    /// The command, its end, and the last lines of its output.
    pub shown: String,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

impl Outcome {
    /// Returns itself if the job succeeded; else an error with the command, its end and its output.
    pub(crate) fn checked(self) -> Result<Self> {
        if self.success { Ok(self) } else { bail!("{}", self.shown) }
    }
}

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

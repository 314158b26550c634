// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs where the device is: a command, what it printed, and the one who runs it.
//!
//! Made by [`crate::run`]; carried out by a [`Nodes`], which the caller of the bench provides. Grade: setup. Plain data.

use anyhow::{Result, bail};
use std::time::Duration;

/// A command.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, searched in `PATH`, and its arguments.
    pub argv: Vec<String>,
    /// Set on top of the environment.
    pub env: Vec<(String, String)>,
    /// After this time it is ended with all that it started.
    pub limit: Duration,
}

impl Job {
    /// One with two minutes.
    pub(crate) fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self { argv, env: Vec::new(), limit: Duration::from_mins(2) }
    }

    pub(crate) fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}

/// Which of its streams a job wrote to.
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
    /// The command, how it ended, and the last of what it printed.
    pub shown: String,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

impl Outcome {
    /// Itself where the job succeeded; else an error with the command, the ending and what it printed.
    pub(crate) fn checked(self) -> Result<Self> {
        if self.success { Ok(self) } else { bail!("{}", self.shown) }
    }
}

/// Runs jobs where the device is.
pub trait Nodes {
    /// Runs a job to its end, and calls `line` with each line that it prints, as it comes.
    ///
    /// # Errors
    /// It cannot be run, and no other can. A job that fails is an [`Outcome`].
    fn run(&self, job: &Job, line: &mut dyn FnMut(Stream, &str)) -> Result<Outcome>;
}

/// Runs a job whose lines matter at its end alone.
pub(crate) fn run(nodes: &dyn Nodes, job: &Job) -> Result<Outcome> {
    nodes.run(job, &mut |_, _| {})
}

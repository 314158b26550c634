// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job: a command in one node, what it prints, and how it ended. [`crate::Running`] is a started one. Plain values;
//! times are of the node's monotonic clock. Tests: in running.rs, and at the end of this file.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use serde::{Deserialize, Serialize};

/// A command to run in a node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Job {
    /// Number of its node, from 0.
    pub node: usize,
    /// The program (searched in `PATH`) and its arguments.
    pub argv: Vec<String>,
    /// Variables on top of the node's environment.
    pub env: Vec<(String, String)>,
    /// Text of its standard input, which then stays open until the job ends or its caller does; `None`: it has none.
    pub input: Option<String>,
    /// Working folder; by default a guest's `/tmp`, on a local device the caller's.
    pub cwd: Option<PathBuf>,
    /// Time limit, after which its processes are ended; [`crate::Purpose`] says which time counts.
    pub limit: Duration,
}

impl Job {
    /// Time limit of a job that sets none.
    pub const LIMIT: Duration = Duration::from_mins(2);

    /// Number of its limits after which a job is killed, however little of that time it had.
    pub const CROWDED: u32 = 12;

    /// Makes a job in node 0 with the default limit.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            node: 0,
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            input: None,
            cwd: None,
            limit: Self::LIMIT,
        }
    }

    /// Moves the job to another node.
    #[must_use]
    pub fn on(mut self, node: usize) -> Self {
        self.node = node;
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the working folder. A guest sees the host's folders.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

/// How a job ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Ending {
    /// The job returned this status.
    Exited(i32),
    /// This signal ended the job.
    Signaled(i32),
    /// The job reached its time limit and was killed.
    TimedOut,
    /// The caller had the job killed.
    Killed,
    /// The job could not be started, for this reason.
    NotStarted(String),
}

/// A stream that a job writes to.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// News of a started job.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Event {
    /// It wrote these bytes.
    Wrote(Stream, Vec<u8>),
    /// It has ended, after this time; nothing follows.
    Ended(Ending, Duration),
}

/// A finished job.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Command of the job, for messages.
    pub command: String,
    /// Ending of the job.
    pub ending: Ending,
    /// Text of its standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Text of its standard error.
    pub stderr: String,
    /// Time from start to end, in the node.
    pub elapsed: Duration,
}

impl Outcome {
    /// Whether the job returned status 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.ending == Ending::Exited(0)
    }

    /// Returns the status as a shell does: the job's own, 128 + signal, 124 after its limit, 127 if it did not start.
    #[must_use]
    pub fn status(&self) -> i32 {
        match self.ending {
            Ending::Exited(status) => status,
            Ending::Signaled(signal) => 128 + signal,
            Ending::TimedOut => 124,
            Ending::Killed => 137,
            Ending::NotStarted(_) => 127,
        }
    }

    /// Returns the outcome if the job succeeded.
    ///
    /// # Errors
    /// The job failed; the message has its command, its ending and what it printed.
    pub fn checked(self) -> anyhow::Result<Self> {
        if self.success() { Ok(self) } else { bail!("{self}") }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(out, "exited with status {status}"),
            Self::Signaled(signal) => write!(out, "was ended by signal {signal}"),
            Self::TimedOut => out.write_str("reached its time limit and was killed"),
            Self::Killed => out.write_str("was killed on request"),
            Self::NotStarted(reason) => write!(out, "could not be started: {reason}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, ending, stdout, stderr, elapsed } = self;
        write!(out, "`{command}` {ending} after {:.1} s{}", elapsed.as_secs_f64(), printed(stdout, stderr))
    }
}

/// Returns the last lines of both streams, each after a line with its name.
pub(crate) fn printed(stdout: &str, stderr: &str) -> String {
    let one = |name: &str, text: &str| match text.trim() {
        "" => String::new(),
        _ => format!("\n--- {name} ---\n{}", last_lines(text, 60)),
    };
    one("stdout", stdout) + &one("stderr", stderr)
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let skipped = lines.len().saturating_sub(count);
    let shown = lines[skipped..].join("\n");
    if skipped == 0 { shown } else { format!("({skipped} lines before)\n{shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ending: Ending, stdout: &str) -> Outcome {
        let (stdout, stderr) = (stdout.to_owned(), String::new());
        Outcome { command: "x".to_owned(), ending, stdout, stderr, elapsed: Duration::ZERO }
    }

    #[test]
    fn endings_have_the_statuses_a_shell_gives() {
        let status = |ending| outcome(ending, "").status();
        assert_eq!(status(Ending::Exited(7)), 7);
        assert_eq!(status(Ending::Signaled(11)), 139);
        assert_eq!(status(Ending::TimedOut), 124);
        assert_eq!(status(Ending::NotStarted("x".to_owned())), 127);
    }

    #[test]
    fn a_long_output_is_shown_by_its_end() {
        let lines: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
        let shown = outcome(Ending::Exited(1), &lines.join("\n")).to_string();
        assert!(shown.contains("(40 lines before)\nline 40\n") && shown.ends_with("line 99"), "{shown}");
    }
}

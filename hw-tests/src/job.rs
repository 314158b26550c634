// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job: a command in one node, what it prints, and how it ended.
//!
//! [`Job`] says what to run, [`crate::Running`] is a started one, [`Outcome`] a finished one. Made by callers of
//! [`crate::fabric`]; events come from `channel` (a guest) or `process` (this machine). Setup grade;
//! plain values. Times are of the node's monotonic clock. Tests: in running.rs, and at the end of this file.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use serde::{Deserialize, Serialize};

/// A command to run in a node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Job {
    /// The node it runs in, from 0.
    pub node: usize,
    /// The program (searched in `PATH`) and its arguments.
    pub argv: Vec<String>,
    /// Set on top of the node's environment.
    pub env: Vec<(String, String)>,
    /// Where it runs; the node's `/tmp` by default (on a local device: where the caller is).
    pub cwd: Option<PathBuf>,
    /// After this time all its processes are killed. Only time counts in which the job had the processors it wanted
    /// (`pace`).
    pub limit: Duration,
}

impl Job {
    /// The limit of a job that sets none.
    pub const LIMIT: Duration = Duration::from_mins(2);

    /// However little it had of it: after so many times its limit a job is killed.
    pub const CROWDED: u32 = 12;

    /// A job in node 0 with the default limit.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            node: 0,
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: None,
            limit: Self::LIMIT,
        }
    }

    /// The same job in another node.
    #[must_use]
    pub fn on(mut self, node: usize) -> Self {
        self.node = node;
        self
    }

    /// The same job with one more environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The same job in another folder (of the node: the guest of a virtual machine sees the host's folders).
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    /// The same job with another time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

/// How a job ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Ending {
    /// It returned this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// It reached its time limit and was killed.
    TimedOut,
    /// It was killed because the caller asked for it.
    Killed,
    /// It could not be started, for this reason.
    NotStarted(String),
}

/// Which of its streams a job wrote to.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a started job tells.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Event {
    /// It wrote these bytes.
    Wrote(Stream, Vec<u8>),
    /// It ended after this time; nothing follows.
    Ended(Ending, Duration),
}

/// A finished job.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The job's command, for messages.
    pub command: String,
    /// How it ended.
    pub ending: Ending,
    /// All it wrote to standard output; bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// All it wrote to standard error.
    pub stderr: String,
    /// From start to end in the node.
    pub elapsed: Duration,
}

impl Outcome {
    /// Whether the job returned status 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.ending == Ending::Exited(0)
    }

    /// The status as a shell gives it: the job's own, 128 plus a signal, 124 for a time-out, 127 for a job that did not
    /// start.
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

    /// The outcome itself where the job succeeded.
    ///
    /// # Errors
    /// It did not: the message has the command, the ending and what it printed.
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
    /// The command, how it ended, after how long, and the last lines of what it printed.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` {} after {:.1} s", self.command, self.ending, self.elapsed.as_secs_f64())?;
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.trim().is_empty() {
                write!(out, "\n--- {name} ---\n{}", last_lines(text, 60))?;
            }
        }
        Ok(())
    }
}

pub(crate) fn last_lines(text: &str, count: usize) -> String {
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

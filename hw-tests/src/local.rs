// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent of a device of this machine: the process that runs the jobs of its one node.
//!
//! A process of its own, so that the jobs end when the program that wanted them is killed, and so that on emulated
//! adapters it and all it starts can run under `softhca run`. Started by [`crate::fabric`], ended when it is dropped.
//! Setup grade; any thread. Tests: the device tests of this package.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use crate::channel::Channel;

/// A running agent.
pub(crate) struct LocalAgent {
    process: Child,
    channel: Channel,
}

impl LocalAgent {
    /// Starts the agent: what `command` runs, with the words that make it one.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<(Self, Channel)> {
        // Its own process group: a Ctrl-C for this program must not end it before it has ended the jobs.
        command.arg("local").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
        let output = process.stdin.take().context("take the agent's input")?;
        let input = process.stdout.take().context("take the agent's output")?;
        let channel = Channel::over(input, output)?;
        Ok((Self { process, channel: channel.clone() }, channel))
    }
}

impl Drop for LocalAgent {
    fn drop(&mut self) {
        // It fails only where the agent has ended; ending the jobs takes it a bounded time.
        let _ = self.channel.stop();
        let _ = self.process.wait();
    }
}

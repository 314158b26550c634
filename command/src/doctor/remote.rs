// SPDX-License-Identifier: MIT OR Apache-2.0
//! Has other hosts look at themselves, by ssh, all at once.
//!
//! The same command must be in `PATH` there. Called by [`super`]. Grade: setup; a thread for each host.

use super::watch::Seen;
use crate::facts::Facts;
use crate::parameters::Given;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::thread;

/// What is known of a host.
#[derive(Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) facts: Facts,
    pub(super) seen: Seen,
}

/// What the other host's shell is to run.
pub(super) fn words(given: &Given, watch: f64) -> String {
    let quoted = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
    let parameters = given.words().iter().map(quoted).collect::<Vec<_>>().join(" ");
    format!("ibex doctor --facts --watch {watch} {parameters}")
}

/// Asks all of them, in order.
///
/// # Errors
/// A host that cannot be reached, or has no `ibex`.
pub(super) fn ask_all(hosts: &[String], words: &str) -> Result<Vec<Host>> {
    thread::scope(|scope| {
        let asked: Vec<_> = hosts.iter().map(|host| scope.spawn(move || ask(host, words))).collect();
        asked
            .into_iter()
            .map(|asked| asked.join().unwrap_or_else(|_| bail!("a thread that asked a host panicked")))
            .collect()
    })
}

fn ask(host: &str, words: &str) -> Result<Host> {
    let ssh = Command::new("ssh").args(["-o", "BatchMode=yes", host, words]).stdin(Stdio::null()).output();
    let output = ssh.context("cannot start ssh")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{host} cannot be asked ({}): {}; `ssh {host} ibex info` must work", output.status, said.trim());
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{host} has another version of ibex, perhaps: its answer cannot be read"))
}

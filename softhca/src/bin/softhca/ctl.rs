// SPDX-License-Identifier: MIT OR Apache-2.0
//! `softhca ctl`: gives the fabric it is started in a command, or tells how often its faults applied.
//!
//! It joins the fabric as any program does, so that it needs no other process there. Setup grade. Tests:
//! tests/commands.rs.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Subcommand;
use softhca::engine::Fabric;
use softhca::environment::{self, Place};
use softhca::fabric_folder::check_private;

/// How long processes may take to carry a command out; on the busiest machine they need a small part of it.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Takes a port down
    LinkDown {
        /// The port; without a number, port 1
        #[arg(value_name = "DEVICE[:PORT]")]
        port: String,
        /// `for_ns=NS`: up again after so many nanoseconds
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Takes a port up, whatever has put it down
    LinkUp {
        /// The port; without a number, port 1
        #[arg(value_name = "DEVICE[:PORT]")]
        port: String,
    },
    /// Raises an async event, and changes the port where a key says so
    Event {
        /// The port; without a number, port 1
        #[arg(value_name = "DEVICE[:PORT]")]
        port: String,
        /// A name of `ibv_event_type`: `DEVICE_FATAL`, `LID_CHANGE` (with `lid=NUMBER`), `GID_CHANGE` (with
        /// `gid=ADDRESS`), ...
        #[arg(value_name = "EVENT")]
        event: String,
        /// Further keys of `[[fault]]` (see docs/softhca.md)
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Prints for each `[[fault]]` of the configuration how often it applied
    Faults,
}

/// Does it, and returns when it is in force.
///
/// # Errors
/// There is no fabric, the command is wrong, or a process did not carry it out.
pub(crate) fn ctl(command: Command) -> Result<ExitCode> {
    let config = environment::config()?;
    let (Place::Folder(folder) | Place::Named(folder)) = environment::place(&config)?;
    check_private(&folder).context(
        "`softhca ctl` acts on the fabric of the `softhca run` that it is started in, or that SOFTHCA_FABRIC and \
         SOFTHCA_CONFIG name",
    )?;
    let rule = match command {
        Command::LinkDown { port, keys } => Some(config.command("link-down", &port, &keys)),
        Command::LinkUp { port } => Some(config.command("link-up", &port, &[])),
        Command::Event { port, event, mut keys } => {
            keys.push(format!("event={event}"));
            Some(config.command("event", &port, &keys))
        }
        Command::Faults => None,
    };
    let rule = rule.transpose().map_err(|wrong| anyhow!("{wrong}"))?;
    let fabric = Fabric::join(config.fabric_in(folder.clone()))
        .with_context(|| format!("cannot join the fabric in {}", folder.display()))?;
    match rule {
        Some(rule) => fabric.command(&rule, PATIENCE)?,
        None => {
            for (number, (rule, applied, asked)) in (1..).zip(fabric.faults_applied()) {
                println!("{number} {} applied {applied} of {asked}", rule.action);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

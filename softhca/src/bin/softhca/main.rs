// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `softhca`: runs any verbs program on an emulated adapter. `softhca run -- CMD` makes a private fabric (a
//! folder in /dev/shm), points CMD and everything that it starts to it, and removes it at the end; docs/softhca.md says
//! how to do that by hand. Within it, `softhca ctl` makes a fault happen when the user wants (tests/commands.rs).

mod run;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use softhca::engine::Fabric;
use softhca::fabric_folder;
use softhca::fabric_folder::check_private;
use softhca::profiles::Name;

#[derive(Parser)]
#[command(
    name = "softhca",
    version,
    about = "An emulated InfiniBand adapter for the processes of this host: a test and development device"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a program, and whatever it starts, on emulated adapters of their own
    Run {
        /// Describes the adapters and faults (see docs/softhca.md); without it, one InfiniBand adapter
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Limits and behaviours of adapters that name no profile: mlx5, rxe, irdma, `bnxt_re` or minimal
        #[arg(long, value_name = "NAME")]
        profile: Option<Name>,
        /// Names the fabric, so that several `softhca run` share it; the last to end removes nothing then
        #[arg(long, value_name = "NAME")]
        fabric: Option<String>,
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        program: Vec<OsString>,
    },
    /// Has a fault happen now to the programs of this fabric, or prints how often each `[[fault]]` of its configuration
    /// applied; for use inside of `run`
    Ctl {
        action: Action,
        /// The port of a fault; without a number, port 1
        #[arg(value_name = "DEVICE[:PORT]")]
        port: Option<String>,
        /// Keys of `[[fault]]` (see docs/softhca.md), as `for_ns=NS` for `link-down`. `event` has the event in front, a
        /// name of `ibv_event_type`: `DEVICE_FATAL`, `LID_CHANGE` (with `lid=NUMBER`), `GID_CHANGE` (with `gid=ADDRESS`)
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Checks a configuration file and prints the adapters it describes
    Check {
        /// The file
        config: PathBuf,
        /// As of `run`
        #[arg(long, value_name = "NAME")]
        profile: Option<Name>,
    },
    /// Writes the manual pages of this command, for packagers
    #[command(hide = true)]
    Pages {
        /// The folder, as /usr/share
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run { config, profile, fabric, program } => {
            run::run(config.as_deref(), profile, fabric.as_deref(), &program)
        }
        Command::Ctl { action, port, keys } => ctl(action, port, keys),
        Command::Check { config, profile } => check(&config, profile),
        Command::Pages { folder } => pages(&folder),
    };
    result.unwrap_or_else(|error| {
        eprintln!("softhca: {error:#}");
        ExitCode::from(125)
    })
}

fn pages(folder: &Path) -> Result<ExitCode> {
    let manual = folder.join("man/man1");
    std::fs::create_dir_all(&manual).with_context(|| format!("cannot make {}", manual.display()))?;
    clap_mangen::generate_to(Arguments::command(), &manual)
        .with_context(|| format!("cannot write to {}", manual.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn check(path: &Path, profile: Option<Name>) -> Result<ExitCode> {
    let config = softhca::config::Config::read(path, profile)?;
    for device in &config.devices {
        println!("{}: guid {:016x}, {} port(s)", device.name, device.node_guid, device.ports.len());
        for (index, port) in device.ports.iter().enumerate() {
            println!("  port {}: lid {}, {} gid(s), mtu {}", index + 1, port.lid, port.gids.len(), 128 << port.mtu);
        }
    }
    println!("{} fault rule(s)", config.faults.len());
    Ok(ExitCode::SUCCESS)
}

/// Time that processes may take to carry out a command; on the busiest machine they need a small part of it.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, ValueEnum)]
enum Action {
    /// Takes a port down
    LinkDown,
    /// Takes a port up, whatever has put it down
    LinkUp,
    /// Raises an async event, and changes the port where a key says so
    Event,
    /// Prints how often each fault applied
    Faults,
}

/// Gives a command to the fabric of this process and returns when it is in force, or prints how often the fabric's
/// faults applied. It joins the fabric like any program, so it needs no other process there.
fn ctl(action: Action, port: Option<String>, mut keys: Vec<String>) -> Result<ExitCode> {
    let config = fabric_folder::config()?;
    let (folder, _) = fabric_folder::place(&config)?;
    check_private(&folder).context(
        "`softhca ctl` acts on the fabric of the `softhca run` that it is started in, or that SOFTHCA_FABRIC and \
         SOFTHCA_CONFIG name",
    )?;
    let rule = match action {
        Action::Faults => None,
        Action::LinkDown | Action::LinkUp | Action::Event => {
            let port = port.context("which port? Write DEVICE or DEVICE:PORT")?;
            if let (Action::Event, Some(name)) = (action, keys.first_mut()) {
                *name = format!("event={name}");
            }
            let name = action.to_possible_value().context("every action has a name")?;
            Some(config.command(name.get_name(), &port, &keys).map_err(|wrong| anyhow!("{wrong}"))?)
        }
    };
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex top [PID|JOB]`: what the processes of this host that run count, port by port or peer by peer, and how fast.
//!
//! [`look`] reads their flight recorders' files and compares them with what they showed before; [`table`] puts that into
//! rows, and [`screen`] shows these anew every so often. Grade: setup. Tests: there; with a device,
//! `hw-tests/tests/device/flight.rs`.

mod look;
mod screen;
mod table;

pub(crate) use look::peer_name;
#[cfg(test)]
pub(crate) use look::tests;

use crate::answer::{self, Form};
use anyhow::{Result, ensure};
use ibex::flight::leftovers::FOLDER;
use look::Look;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Arguments of `ibex top`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: one reading of the processes of a job, for a script\n  ibex top 2038235137 --once --json\n\n\
                        Keys: q ends, p shows peers or ports, the arrows scroll. A process that makes no call of MPI shows what it had counted at \
                        its last; the last column says how long ago that was."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    /// Only the process of this number, or those of this job of Open MPI's
    pid_or_job: Option<u32>,
    /// A row for each peer, instead of for each port
    #[arg(long)]
    peers: bool,
    /// Look twice, print what was found, and end
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0)]
    interval: f64,
    /// The folder of the recorders' files, where that parameter of the job names another
    #[arg(long, default_value = FOLDER)]
    folder: PathBuf,
}

/// Shows it until it is told to end, or prints it once.
///
/// # Errors
/// An interval that is none, or a terminal that is none.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { form, pid_or_job, peers, once, interval, folder } = arguments;
    ensure!((0.01..=3600.0).contains(interval), "--interval {interval} is not between 0.01 and 3600 seconds");
    let pause = Duration::from_secs_f64(*interval);
    let look = || Look::at(folder, *pid_or_job);
    if *once || form.is_json() {
        let before = look();
        thread::sleep(pause);
        let mut found = look().since(&before);
        found.by_peer = *peers;
        answer::print(form, &found)?;
        return Ok(ExitCode::SUCCESS);
    }
    screen::show(look, pause, *peers)?;
    Ok(ExitCode::SUCCESS)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex top [PID|JOB]`: shows the counts and rates of this host's running processes, per port or per peer. [`look`]
//! samples the flight recorders' files and computes rates; [`table`] makes rows, and [`screen`] redraws them. Grade:
//! setup. Tests: there; with a device, `hw-tests/tests/device/flight.rs`.

mod look;
mod screen;
mod table;

#[cfg(test)]
pub(crate) use look::tests;
pub(crate) use look::{is_of_job, peer_name};

use crate::answer::{self, Form};
use anyhow::{Result, ensure};
use ibex::flight::leftovers::FOLDER;
use look::Look;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

#[derive(clap::Args)]
#[command(
    after_help = "Example: one reading of the processes of a job, for a script\n  ibex top 2038235137 --once --json\n\n\
                        Keys: q ends, p shows peers or ports, the arrows scroll. A process that makes no MPI call shows the counts of \
                        its last; the last column says how long ago that was."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    /// Only the process of this number, or the processes of this job
    pid_or_job: Option<u32>,
    /// Show a row per peer instead of per port
    #[arg(long)]
    peers: bool,
    /// Sample twice, print the result, and end
    #[arg(long)]
    once: bool,
    /// Seconds between two samples
    #[arg(long, default_value_t = 1.0)]
    interval: f64,
    /// The folder of the recorders' files, if the job uses another than /dev/shm
    #[arg(long, default_value = FOLDER)]
    folder: PathBuf,
}

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

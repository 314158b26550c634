// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex explain`: the protocols, reasons and waits of a job's messages, from its trace. Prints the [`receipt`] of each
//! pair of ranks, the [`life`] of one message, or the [`waits`]; each ends with the data that is [`unknown`]. For a
//! process instead of a folder ([`live`]) it uses the trace that the process records, or its counts ([`counted`]).
//! Grade: setup. Tests: in the files.

mod calls;
mod counted;
mod life;
mod live;
mod parts;
mod receipt;
mod text;
mod unknown;
mod waits;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, ensure};
use ibex::flight::leftovers::FOLDER;
use ibex_ffi::clock::monotonic;
use ibex_messages::Job;
use ibex_trace::Folder;

use crate::answer::{self, Form};

#[derive(clap::Args)]
#[command(after_help = "Examples: the whole life of the third message that rank 0 sent\n  \
                        ibex explain trace --message 0:3\n\
                        what a process of this host has sent so far, every 5 seconds\n  \
                        ibex explain --live 4711 --every 5")]
pub(crate) struct Arguments {
    /// The folder with the trace
    #[arg(value_name = "DIR", required_unless_present = "live")]
    trace: Option<PathBuf>,
    /// Explain a running process: by the trace that its job records, or, without one, by its counts
    #[arg(long, value_name = "PID", conflicts_with = "trace")]
    live: Option<u32>,
    /// Repeat every so many seconds, until the process ends
    #[arg(long, value_name = "SECONDS", requires = "live")]
    every: Option<f64>,
    /// The folder of the flight recorder's files, if the job uses another than /dev/shm
    #[arg(long, value_name = "DIR", default_value = FOLDER, requires = "live")]
    folder: PathBuf,
    /// Show the life of one message: the N-th that the rank sent, from 1
    #[arg(long, value_name = "RANK:N", conflicts_with = "waits", value_parser = life::wanted)]
    message: Option<life::Wanted>,
    /// Show waits: for late senders, late receivers, receivers without progress, connections, queues
    #[arg(long)]
    waits: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(pid) = arguments.live {
        return watch(arguments, pid);
    }
    let trace = arguments.trace.as_ref().context("name a folder with a trace, or use --live")?;
    show(arguments, &Job::read(&Folder::open(trace)?))?;
    Ok(ExitCode::SUCCESS)
}

fn watch(arguments: &Arguments, pid: u32) -> Result<ExitCode> {
    let pause = arguments.every.map(live::pause).transpose()?;
    let live = live::Live::find(pid, &arguments.folder)?;
    let needs_a_trace = arguments.waits || arguments.message.is_some();
    ensure!(
        live.trace.is_some() || !needs_a_trace,
        "process {pid} is not recorded, and its counts have neither single messages nor waits: start the job with \
         ibex trace -- mpirun ..., or leave --message and --waits out"
    );
    let look = || match &live.trace {
        Some(trace) => show(arguments, &live::recorded(trace)?),
        None => answer::print_on(&arguments.form, &counted::Counted::of(&live.counted()?, monotonic())),
    };
    let mut is_read = look()?;
    while let Some(pause) = pause.filter(|_| is_read) {
        thread::sleep(pause);
        // Its file disappears with it, perhaps between two readings.
        let shown = if live.is_running() { look() } else { Ok(true) };
        if !live.is_running() {
            eprintln!("ibex: process {pid} has ended.");
            break;
        }
        is_read = shown?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the requested view of a job; `false` if the reader has closed the pipe.
fn show(arguments: &Arguments, job: &Job) -> Result<bool> {
    match (arguments.message, arguments.waits) {
        (Some(wanted), _) => answer::print_on(&arguments.form, &life::Life::of(job, wanted)?),
        (None, true) => answer::print_on(&arguments.form, &waits::Waits::of(job)),
        (None, false) => answer::print_on(&arguments.form, &receipt::Receipt::of(job)),
    }
    .context("cannot print it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_faults_are_printed() {
        let loss = ibex_messages::Loss { rank: 0, event: "e".into(), count: 7 };
        let (losses, faults) = (vec![loss], vec!["A sentence.".into()]);
        let job = Job { ranks: vec![ibex_messages::Rank::default()], losses, faults, ..Job::default() };
        for text in [receipt::Receipt::of(&job).to_string(), waits::Waits::of(&job).to_string()] {
            assert!(text.contains("A sentence.") && text.contains("Lost events"), "{text}");
        }
    }

    #[test]
    fn the_parts_add_up_to_the_job() {
        let job = Job::synthetic(4, 500, 3);
        let receipt = serde_json::to_value(receipt::Receipt::of(&job)).expect("JSON");
        let sum = |name: &str| -> u64 {
            let pairs = receipt["pairs"].as_array().expect("pairs");
            pairs.iter().filter_map(|pair| pair[name].as_u64()).sum()
        };
        assert_eq!(sum("messages"), 500);
        assert_eq!(sum("bytes"), job.messages.iter().map(|message| message.bytes).sum::<u64>());
        let waits = serde_json::to_value(waits::Waits::of(&job)).expect("JSON");
        let count = |kind: &serde_json::Value| kind["count"].as_u64().unwrap_or(0);
        let all: u64 = waits["kinds"].as_array().expect("kinds").iter().map(count).sum();
        assert_eq!(all, job.message_waits().len() as u64);
        let life = life::Life::of(&job, life::wanted("2:1").expect("a message")).expect("there");
        let text = life.to_string();
        assert!(
            ["adapter  the message arrives", "delay", "±300 ns", "MPI_Send"].iter().all(|words| text.contains(words)),
            "{text}"
        );
        assert!(life::Life::of(&job, life::wanted("2:500").expect("a message")).is_err());
        let text = receipt::Receipt::of(&job).to_string();
        assert!(text.contains("mlx5_0:1") && text.contains("MPI_Recv"), "{text}");
    }
}

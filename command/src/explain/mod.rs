// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex explain`: the protocols, reasons and waits of a job's messages, from its trace.
//!
//! Reads the folder and prints one of three: the [`receipt`] of each pair of ranks, the [`life`] of one message, or the
//! [`waits`]. Each ends with what is unknown. For a process instead of a folder ([`live`]) it uses the trace that the
//! process records, or its counts ([`counted`]). Grade: setup. Tests: in the files.

mod counted;
mod life;
mod live;
mod receipt;
mod waits;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use ibex::flight::leftovers::FOLDER;
use ibex_ffi::clock::monotonic;
use ibex_messages::Job;
use ibex_trace::Folder;
use serde::Serialize;

use crate::answer::{self, Form};

/// Arguments of `ibex explain`.
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

/// Reads, and prints.
///
/// # Errors
/// The folder has no trace, there is no such message, or there is no data about the process.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(pid) = arguments.live {
        return watch(arguments, pid);
    }
    let trace = arguments.trace.as_ref().context("name a folder with a trace, or use --live")?;
    show(arguments, &Job::read(&Folder::open(trace)?))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows a running process, once or until it ends.
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

/// Remarks about missing data, at the end of each output.
#[derive(Serialize, Default)]
struct Unknown {
    losses: Vec<Lost>,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Lost {
    rank: String,
    event: String,
    count: u64,
}

impl Unknown {
    fn of(job: &Job) -> Unknown {
        let lost = |loss: &ibex_messages::Loss| Lost {
            rank: name(job, loss.rank),
            event: loss.event.clone(),
            count: loss.count,
        };
        Unknown { losses: job.losses.iter().map(lost).collect(), faults: job.faults.clone() }
    }
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.losses.is_empty() {
            writeln!(f, "\nLost events")?;
            let rows = self.losses.iter().map(|of| vec![of.rank.clone(), of.event.clone(), of.count.to_string()]);
            writeln!(f, "{}", table(&["rank", "event", "lost"], &[2], rows))?;
        }
        if !self.faults.is_empty() {
            writeln!(f, "\nRemarks")?;
            self.faults.iter().try_for_each(|fault| writeln!(f, "  - {fault}"))?;
        }
        Ok(())
    }
}

/// A rank's name: `3`, or `1.3` in another world.
fn name(job: &Job, place: u32) -> String {
    job.ranks.get(place as usize).map_or_else(
        || "?".to_owned(),
        |of| if of.world == 0 { of.rank.to_string() } else { format!("{}.{}", of.world, of.rank) },
    )
}

/// A table; columns of numbers are right-aligned.
fn table(names: &[&str], numbers: &[usize], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(names.to_vec());
    rows.for_each(|row| {
        table.add_row(row);
    });
    for number in numbers {
        if let Some(column) = table.column_mut(*number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Nanoseconds in the unit that fits.
fn duration(nanoseconds: i64) -> String {
    let magnitude = nanoseconds.unsigned_abs();
    let value = nanoseconds as f64;
    match magnitude {
        0..10_000 => format!("{nanoseconds} ns"),
        10_000..10_000_000 => format!("{:.1} us", value / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// Bytes in the unit that fits.
fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{:.1} KiB", value / 1024.0),
        10_485_760..10_737_418_240 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.1} GiB", value / 1_073_741_824.0),
    }
}

/// A value's name in JSON, with blanks.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(|word| word.replace('_', " ")))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units_that_fit() {
        assert_eq!([0, 9_999, 10_000, -25_000_000].map(duration), ["0 ns", "9999 ns", "10.0 us", "-25.0 ms"]);
        assert_eq!([0, 10_239, 10_240, 20 << 20].map(bytes), ["0 B", "10239 B", "10.0 KiB", "20.0 MiB"]);
        assert_eq!(word(&ibex_messages::Protocol::ReceiverFirst), "receiver first");
    }

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
            text.contains("the message arrives") && text.contains("One-way delay") && text.contains("±300 ns"),
            "{text}"
        );
        assert!(life::Life::of(&job, life::wanted("2:500").expect("a message")).is_err());
        assert!(receipt::Receipt::of(&job).to_string().contains("mlx5_0:1"));
    }
}

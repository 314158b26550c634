// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex explain`: how the messages of a job went, why so, and what they waited for, from its trace.
//!
//! Reads the folder and prints one of three: [`receipt`] for each pair of ranks, [`life`] of one message, [`waits`] of
//! all. Each ends with what is not known. Grade: setup. Tests: in the files.

mod life;
mod receipt;
mod waits;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use ibex_messages::Job;
use ibex_trace::Folder;
use serde::Serialize;

use crate::answer::{self, Form};

/// Arguments of `ibex explain`.
#[derive(clap::Args)]
#[command(after_help = "Example: the whole life of the third message that rank 0 sent\n  \
                        ibex explain trace --message 0:3")]
pub(crate) struct Arguments {
    /// The folder with the trace
    folder: PathBuf,
    /// Show the life of one message: the N-th that the rank sent, from 1
    #[arg(long, value_name = "RANK:N", conflicts_with = "waits", value_parser = life::wanted)]
    message: Option<life::Wanted>,
    /// Show what was waited for: late senders, late receivers, late waits, connections, queues
    #[arg(long)]
    waits: bool,
    #[command(flatten)]
    form: Form,
}

/// Reads, and prints.
///
/// # Errors
/// The folder has no trace, or there is no such message.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = Folder::open(&arguments.folder)?;
    let job = Job::read(&folder);
    match (arguments.message, arguments.waits) {
        (Some(wanted), _) => answer::print(&arguments.form, &life::Life::of(&job, wanted)?),
        (None, true) => answer::print(&arguments.form, &waits::Waits::of(&job)),
        (None, false) => answer::print(&arguments.form, &receipt::Receipt::of(&job)),
    }
    .context("cannot show it")?;
    Ok(ExitCode::SUCCESS)
}

/// What is not known, at the end of each output.
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
            writeln!(f, "\nTo be known of what is shown")?;
            self.faults.iter().try_for_each(|fault| writeln!(f, "  - {fault}"))?;
        }
        Ok(())
    }
}

/// A rank in words: `3`, and in a further world `1.3`.
fn name(job: &Job, place: u32) -> String {
    job.ranks.get(place as usize).map_or_else(
        || "?".to_owned(),
        |of| if of.world == 0 { of.rank.to_string() } else { format!("{}.{}", of.world, of.rank) },
    )
}

/// A table; columns with numbers are to the right.
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
    fn losses_and_faults_are_told_of() {
        let loss = ibex_messages::Loss { rank: 0, event: "e".into(), count: 7 };
        let (losses, faults) = (vec![loss], vec!["A sentence.".into()]);
        let job = Job { ranks: vec![ibex_messages::Rank::default()], losses, faults, ..Job::default() };
        for text in [receipt::Receipt::of(&job).to_string(), waits::Waits::of(&job).to_string()] {
            assert!(text.contains("A sentence.") && text.contains("Lost events"), "{text}");
        }
    }

    #[test]
    fn what_is_shown_adds_up_to_the_job() {
        let job = Job::made(4, 500, 3);
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
        assert_eq!(all, job.messages.iter().map(|message| message.waits().count() as u64).sum::<u64>());
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job in the formats of other tools. `ibex export` calls [`export`]. Each format has its own file or folder, which
//! states its rules and their source. Shared parts: `walk.rs` iterates over a job in the order of time and keeps only
//! items in flight in memory; `life.rs` names the phases, `lanes.rs` assigns lanes. docs/exports.md is for users. Path:
//! pending. Threads: any. Tests: in the files; with programs that read the formats, in tests/.

#![deny(unsafe_code)] // but for the binding of the OTF2 library (otf2/library/)

mod counters;
mod file;
mod functions;
mod lanes;
mod life;
mod names;
mod otf2;
mod paraver;
mod peers;
mod perfetto;
mod regions;
mod tables;
mod threads;
mod walk;

use std::path::Path;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use ibex_messages::Job;

/// A format.
#[allow(clippy::doc_markdown, reason = "the text of --help")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Format {
    /// A file in protobuf, for ui.perfetto.dev and trace_processor
    Perfetto,
    /// A folder with an OTF2 archive, for Vampir, Scalasca and otf2-print
    Otf2,
    /// The files OUT.prv, OUT.pcf and OUT.row, for Paraver
    Paraver,
    /// A folder with a table each of messages, ranks and the rest, for spreadsheets and scripts
    Csv,
    /// The same tables in Parquet, for pandas, Polars and DuckDB
    Parquet,
}

/// Writes a job in a format. The job is not copied: the additional memory depends on the messages in flight, and on the
/// numbers of MPI calls, searches and fragments.
///
/// # Errors
/// `out` exists or cannot be written, or a library is missing. The incomplete output stays for inspection.
pub fn export(job: &Job, format: Format, out: &Path) -> Result<()> {
    ensure!(out.symlink_metadata().is_err(), file::exists(out));
    match format {
        Format::Perfetto => perfetto::write(job, out),
        Format::Otf2 => otf2::write(job, out),
        Format::Paraver => paraver::write(job, out),
        Format::Csv => tables::csv::write(job, out),
        Format::Parquet => tables::parquet::write(job, out),
    }
}

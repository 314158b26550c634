// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as tables: the common part of CSV and Parquet, which write one file per table into a folder. `columns.rs`
//! lists the columns of each table. Each message has one row with all its known values; an unknown value is empty,
//! never 0. A reference to a row of another table is the row's number, which is its position. Path: pending. Threads:
//! any. Memory: some columns of some rows, and the waits. Tests: tests/tables.rs.

mod columns;
pub(crate) mod csv;
pub(crate) mod parquet;

use std::ops::Deref;
use std::path::Path;

use anyhow::Result;
use ibex_messages::{Job, ProcessWait, Wait};

use crate::file;

/// The kind of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    /// Nanoseconds since 1970.
    Time,
    Text,
    Truth,
}

enum Cell<'j> {
    None,
    Number(i64),
    Text(&'j str),
    Truth(bool),
}

/// A job with its waits, which are computed once.
struct Tabled<'a> {
    job: &'a Job,
    waits: Vec<Waited>,
}

/// A wait of a message, or of the sender's requests for the receiver.
struct Waited {
    wait: Wait,
    message: Option<u32>,
    sender: u32,
    receiver: u32,
}

impl Tabled<'_> {
    fn of(job: &Job) -> Tabled<'_> {
        let of_messages = job.message_waits().into_iter().map(|(place, wait)| {
            let of = &job.messages[place];
            Waited { wait, message: Some(place as u32), sender: of.sender, receiver: of.receiver }
        });
        let of_process = |of: ProcessWait| Waited { wait: of.wait, message: None, sender: of.rank, receiver: of.peer };
        let waits = of_messages.chain(job.process_waits().into_iter().map(of_process)).collect();
        Tabled { job, waits }
    }
}

impl Deref for Tabled<'_> {
    type Target = Job;

    fn deref(&self) -> &Job {
        self.job
    }
}

/// Returns the cell of a row.
type CellOf = for<'j> fn(&'j Tabled<'_>, usize) -> Cell<'j>;

struct Column {
    name: &'static str,
    kind: Kind,
    cell: CellOf,
}

/// A table: its name, its number of rows in a job, and its columns.
struct Table {
    name: &'static str,
    rows: fn(&Tabled<'_>) -> usize,
    columns: &'static [Column],
}

fn write_folder(
    job: &Job,
    out: &Path,
    extension: &str,
    write: impl Fn(&Tabled<'_>, &Table, &Path) -> Result<()>,
) -> Result<()> {
    std::fs::create_dir(out).map_err(file::failed(out))?;
    let tabled = Tabled::of(job);
    for table in columns::TABLES {
        write(&tabled, table, &out.join(format!("{}.{extension}", table.name)))?;
    }
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as tables: what CSV and Parquet have in common.
//!
//! Each table has its columns in a list: name, kind, and how a row has its value. `columns.rs` has the lists, `csv.rs` and
//! `parquet.rs` write them. One row for each message with all that is known of it; what is not known is empty, never 0.
//! Rows of other tables are named by their numbers, which are their places. Path: pending. Threads: any. Memory: some
//! columns of some rows. Tests: tests/tables.rs.

mod columns;
pub(crate) mod csv;
pub(crate) mod parquet;

use std::borrow::Cow;
use std::path::Path;

use ibex_messages::Job;

use crate::error::ExportError;

/// What values a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    /// Nanoseconds since 1970.
    Time,
    Text,
    Truth,
}

/// A value.
enum Cell<'j> {
    None,
    Number(i64),
    Text(Cow<'j, str>),
    Truth(bool),
}

/// A column: its name, its kind, and the value of a row.
struct Column {
    name: &'static str,
    kind: Kind,
    cell: for<'j> fn(&'j Job, usize) -> Cell<'j>,
}

/// A table: its name, how many rows a job has of it, and its columns.
struct Table {
    name: &'static str,
    rows: fn(&Job) -> usize,
    columns: &'static [Column],
}

/// Makes the folder, and a file for each table in it.
fn write_folder(
    job: &Job,
    out: &Path,
    extension: &str,
    write: impl Fn(&Job, &Table, &Path) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    std::fs::create_dir(out).map_err(ExportError::write(out))?;
    for table in columns::TABLES {
        write(job, table, &out.join(format!("{}.{extension}", table.name)))?;
    }
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as tables: the common part of CSV and Parquet, which write one file per table into a folder. `columns.rs`
//! lists the columns of each table. Each message has one row with all its known values; an unknown value is empty,
//! never 0. A reference to a row of another table is the row's number, which is its position. Path: pending. Threads:
//! any. Memory: some columns of some rows. Tests: tests/tables.rs.

mod columns;
pub(crate) mod csv;
pub(crate) mod parquet;

use std::path::Path;

use anyhow::Result;
use ibex_messages::Job;

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

/// Returns the cell of a row.
type CellOf = for<'j> fn(&'j Job, usize) -> Cell<'j>;

struct Column {
    name: &'static str,
    kind: Kind,
    cell: CellOf,
}

/// A table: its name, its number of rows in a job, and its columns.
struct Table {
    name: &'static str,
    rows: fn(&Job) -> usize,
    columns: &'static [Column],
}

fn write_folder(
    job: &Job,
    out: &Path,
    extension: &str,
    write: impl Fn(&Job, &Table, &Path) -> Result<()>,
) -> Result<()> {
    std::fs::create_dir(out).map_err(file::failed(out))?;
    for table in columns::TABLES {
        write(job, table, &out.join(format!("{}.{extension}", table.name)))?;
    }
    Ok(())
}

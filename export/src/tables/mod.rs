// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as tables: what CSV and Parquet have in common.
//!
//! An export is a folder with one file per table, which `csv.rs` and `parquet.rs` write. `columns.rs` lists the columns
//! of each table: name, kind, and a function that returns a row's value. `table.rs` has the type of a table. Each
//! message has one row with all that is known of it; an unknown value is empty, never 0. A reference to a row of
//! another table is the row's number, which is its position. Path: pending. Threads: any. Memory: some columns of some
//! rows. Tests: tests/tables.rs.

mod columns;
pub(crate) mod csv;
pub(crate) mod parquet;
mod table;

use std::path::Path;

use anyhow::Result;
use ibex_messages::Job;

use crate::file;
use table::Table;

/// Creates the folder, and writes one file per table into it.
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

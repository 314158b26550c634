// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as tables: what CSV and Parquet have in common.
//!
//! An export is a folder with a file for each table, which `csv.rs` and `parquet.rs` write. Each table has its columns in a
//! list: name, kind, and how a row has its value. `table.rs` says what a table is, `columns.rs` has the lists. One row for
//! each message with all that is known of it; what is not known is empty, never 0.
//! Rows of other tables are named by their numbers, which are their places. Path: pending. Threads: any. Memory: some
//! columns of some rows. Tests: tests/tables.rs.

mod columns;
pub(crate) mod csv;
pub(crate) mod parquet;
mod table;

use std::path::Path;

use anyhow::Result;
use ibex_messages::Job;

use crate::file;
use table::Table;

/// Makes the folder, and a file for each table in it.
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

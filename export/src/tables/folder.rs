// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder that an export of tables is: a file for each table.
//!
//! Called by `csv.rs` and `parquet.rs`. Path: pending. Tests: tests/tables.rs.

use std::path::Path;

use ibex_messages::Job;

use super::columns;
use super::table::Table;
use crate::error::ExportError;

/// Makes the folder, and a file for each table in it.
pub(super) fn write_folder(
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables as CSV: a folder with a file for each. Source: RFC 4180, but lines end with a line feed alone. Rules: the
//! first line has the names; a value with a comma, quote or line end is quoted, and quotes in it are doubled; unknown
//! values are empty. UTF-8. Times are nanoseconds since 1970. Called by `lib.rs`. Tests: tests/tables.rs.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use ibex_messages::Job;

use super::{Cell, Table, Tabled, write_folder};
use crate::file;

pub(crate) fn write(job: &Job, out: &Path) -> Result<()> {
    write_folder(job, out, "csv", |job, table, path| file::write(path, |file| write_table(job, table, file)))
}

fn write_table(job: &Tabled<'_>, table: &Table, file: &mut impl Write) -> io::Result<()> {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    writeln!(file, "{}", names.join(","))?;
    for row in 0..(table.rows)(job) {
        for (place, column) in table.columns.iter().enumerate() {
            if place > 0 {
                file.write_all(b",")?;
            }
            match (column.cell)(job, row) {
                Cell::None => {}
                Cell::Number(number) => write!(file, "{number}")?,
                Cell::Truth(truth) => write!(file, "{truth}")?,
                Cell::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                    write!(file, "\"{}\"", text.replace('"', "\"\""))?;
                }
                Cell::Text(text) => file.write_all(text.as_bytes())?,
            }
        }
        file.write_all(b"\n")?;
    }
    Ok(())
}

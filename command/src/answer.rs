// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of a command: text for people, or JSON for programs. Called by each command with its result. If the reader
//! closes the pipe early (`| head`), the command ends quietly. Grade: setup. Tests: below.

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Text or JSON.
#[derive(clap::Args, Default)]
pub(crate) struct Form {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Form {
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }
}

pub(crate) fn print<T: Serialize + Display>(form: &Form, found: &T) -> Result<()> {
    print_on(form, found).map(|_| ())
}

/// Prints a result; `false` if the reader has closed the pipe, so that the caller stops.
pub(crate) fn print_on<T: Serialize + Display>(form: &Form, found: &T) -> Result<bool> {
    let text = if form.json { serde_json::to_string_pretty(found)? + "\n" } else { found.to_string() };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot write to standard output"),
    }
}

/// Returns the text of an error with its causes, each once, even if an error already contains the text of its cause.
pub(crate) fn reason(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.ends_with(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

/// Returns rows of names and values, with the values aligned.
pub(crate) fn rows<'a>(indent: usize, rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let rows: Vec<_> = rows.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| {
        let mut lines = value.lines();
        let first = format!("{:indent$}{name:width$}  {}\n", "", lines.next().unwrap_or_default());
        lines.fold(first, |text, line| text + &format!("{:1$}{line}\n", "", indent + width + 2))
    };
    rows.iter().map(line).collect()
}

/// Makes a table in which the columns `numbers` are right-aligned.
pub(crate) fn table(names: &[&str], numbers: &[usize], rows: impl Iterator<Item = Vec<String>>) -> Table {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_printed_once() {
        let missing = || std::io::Error::from(ErrorKind::NotFound);
        let tells = ibex_trace::Error::System { action: "read", file: "/x".into(), cause: missing().into() };
        let tells = anyhow::Error::new(tells);
        assert_eq!(reason(&tells), format!("cannot read /x: {}", missing()));
        let above = tells.context("cannot export");
        assert_eq!(reason(&above), format!("cannot export: cannot read /x: {}", missing()));
        assert_eq!(
            reason(&anyhow::Error::new(missing()).context("cannot read /x")),
            format!("cannot read /x: {}", missing())
        );
    }

    #[test]
    fn values_are_aligned_and_empty_ones_left_out() {
        let text = rows(2, [("a", "1".to_owned()), ("longer", "2\n3".to_owned()), ("none", String::new())]);
        assert_eq!(text, "  a       1\n  longer  2\n          3\n");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The type of a table: columns, each with the kind of its values and a function that returns a row's value.
//! `columns.rs` makes tables; `csv.rs` and `parquet.rs` read them. Path: pending. Tests: tests/tables.rs.

use std::borrow::Cow;

use ibex_messages::Job;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    /// Nanoseconds since 1970.
    Time,
    Text,
    Truth,
}

pub(super) enum Cell<'j> {
    None,
    Number(i64),
    Text(Cow<'j, str>),
    Truth(bool),
}

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) cell: for<'j> fn(&'j Job, usize) -> Cell<'j>,
}

/// A table: its name, its number of rows in a job, and its columns.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) rows: fn(&Job) -> usize,
    pub(super) columns: &'static [Column],
}

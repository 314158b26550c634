// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a table is: columns, each with the kind of its values and the way to a row's.
//!
//! `columns.rs` makes them; `csv.rs` and `parquet.rs` read them. Path: pending. Tests: tests/tables.rs.

use std::borrow::Cow;

use ibex_messages::Job;

/// What values a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    /// Nanoseconds since 1970.
    Time,
    Text,
    Truth,
}

/// A value.
pub(super) enum Cell<'j> {
    None,
    Number(i64),
    Text(Cow<'j, str>),
    Truth(bool),
}

/// A column: its name, its kind, and the value of a row.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) cell: for<'j> fn(&'j Job, usize) -> Cell<'j>,
}

/// A table: its name, how many rows a job has of it, and its columns.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) rows: fn(&Job) -> usize,
    pub(super) columns: &'static [Column],
}

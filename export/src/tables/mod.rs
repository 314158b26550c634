// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as tables: what CSV and Parquet have in common.
//!
//! Each table has its columns in a list: name, kind, and how a row has its value. `table.rs` says what a table is, `columns.rs`
//! has the lists, `folder.rs` makes a file for each table, which `csv.rs` and `parquet.rs` write. One row for each message with all that is known of it; what is not known is empty, never 0.
//! Rows of other tables are named by their numbers, which are their places. Path: pending. Threads: any. Memory: some
//! columns of some rows. Tests: tests/tables.rs.

mod columns;
pub(crate) mod csv;
mod folder;
pub(crate) mod parquet;
mod table;

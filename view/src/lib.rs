// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as one page of HTML: a time line of its messages, and what can be counted of them.
//!
//! [`page`] writes the page: its text, style and scripts stand in `page/` as a reader of them wants them (`page.rs`
//! puts them together), its data follow as blocks of columns (`block.rs`). `lanes.rs` says which rows the time line
//! has, `waits.rs` what each message waited for, `rows.rs` what the page knows of all messages at once, `columns.rs` how
//! that is written, with what it looks up of one, `levels.rs` what it draws of a stretch of time with too many of them, `rare.rs` connections,
//! incidents and one-sided operations, `about.rs` the rest. [`picture`] has a browser without a window draw a page.
//!
//! The crate knows of a [`Job`] and nothing below it. Path: pending. One thread. No unsafe code. Tests: in the files;
//! tests/browser.rs looks at pages as a browser shows them.

#![forbid(unsafe_code)]

mod about;
mod block;
mod columns;
mod lanes;
mod levels;
mod page;
pub mod picture;
mod rare;
mod rows;
mod waits;

use ibex_messages::Job;
use std::io::{self, Write};

/// Writes the page: one file that needs no other, and no network.
///
/// # Errors
/// Those of `out`.
pub fn page(job: &Job, out: &mut dyn Write) -> io::Result<()> {
    page::write(job, out)
}

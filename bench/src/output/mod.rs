// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report for a reader: as [`text`] for the terminal, and as one page of [`html`] with [`plot`]s. Both show the same
//! [`table`]s.

pub(crate) mod html;
mod plot;
mod table;
pub(crate) mod text;

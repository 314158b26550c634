// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as one HTML page: a time line of its messages, and statistics. [`page()`] writes the page: text, style and
//! scripts from `page/` (assembled by `page`), then the data as blocks of columns (`block.rs`). [`picture`] draws a
//! page with a headless browser. Path: pending. One thread. No unsafe code. Tests: in the files; tests/browser.rs opens
//! pages in a browser.

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
mod spans;
mod waits;

pub use page::page;

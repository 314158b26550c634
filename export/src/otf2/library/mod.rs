// SPDX-License-Identifier: MIT OR Apache-2.0
//! The OTF2 library, whose C code writes archives in the Open Trace Format 2. This crate's only unsafe code. The
//! library (Debian: libopen-trace-format2-10) is loaded when the first archive is made.
//!
//! `archive.rs` and `definitions.rs` are the safe interface: the caller writes events first, each location's in the
//! order of time, then the definitions that the events name by numbers of the caller's choice. Called by `../mod.rs`.
//! Path: setup. Threads: an archive belongs to one. Times: ticks of the clock that [`Definitions::clock`] describes.
//! Tests: export/tests/otf2.rs, with the library's own programs.

mod archive;
mod buffers;
mod definitions;
mod open_files;
mod symbols;

pub(crate) use archive::{Archive, Communication, Value};
pub(crate) use definitions::{Definitions, Kind, Role};
pub(crate) use open_files::raise_open_files;

use anyhow::Result;

pub(crate) fn available() -> Result<()> {
    symbols::functions().map(|_| ())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The OTF2 library: archives in the Open Trace Format 2, written by its own C code. The only unsafe code of this crate.
//!
//! The library (Debian: libopen-trace-format2-10) is looked for when the first archive is made; whoever never makes one
//! does not need it. `symbols.rs` has what is called of it, `buffers.rs` its memory;
//! `archive.rs` and `definitions.rs` make it safe: events first, each location's in the order of time, then the definitions
//! that the events name by numbers of the caller's choice. `open_files.rs` raises the limit of the files it opens.
//!
//! Called by `../mod.rs`. Path: setup. Threads: an archive belongs to one. Times: ticks of the clock that
//! [`Definitions::clock`] describes. Tests: export/tests/otf2.rs, with the library's own programs.

mod archive;
mod buffers;
mod definitions;
mod open_files;
mod symbols;

pub(crate) use archive::{Archive, Communication, Value};
pub(crate) use definitions::{Definitions, Kind, Role};
pub(crate) use open_files::raise_open_files;

use anyhow::Result;

/// Whether archives can be written here.
pub(crate) fn available() -> Result<()> {
    symbols::functions().map(|_| ())
}

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
mod symbols;

pub(crate) use archive::{Archive, Communication, Value};
pub(crate) use definitions::{Definitions, Kind, Role};

use anyhow::Result;

pub(crate) fn available() -> Result<()> {
    symbols::functions().map(|_| ())
}

/// Raises the limit of open files to the hard limit, as the library needs one for each location. If that is too low,
/// opening a file fails later.
pub(crate) fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the call, which fills it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is valid for the call, which only reads it.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

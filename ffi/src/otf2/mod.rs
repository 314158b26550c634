// SPDX-License-Identifier: MIT OR Apache-2.0
//! Archives in the Open Trace Format 2, written by its own C library.
//!
//! The library (Debian: libopen-trace-format2-10) is looked for when the first archive is made; whoever never makes one
//! does not need it. `symbols.rs` has what is called of it, `buffers.rs` its memory, `error.rs` what goes
//! wrong; [`Archive`] makes it safe: events first, each location's in the order of time, then the definitions that the
//! events name by numbers of the caller's choice.
//!
//! Called by the crate `ibex-export`. Path: setup. Threads: an archive belongs to one. Times: ticks of the clock that
//! [`Definitions::clock`] describes. Tests: at the end of this file; with the library's own programs, in export/.

mod archive;
mod buffers;
mod error;
mod symbols;

pub use archive::{Archive, Communication, Definitions, Value};
pub use error::Otf2Error;

/// Whether archives can be written here.
///
/// # Errors
/// [`Otf2Error::Missing`].
pub fn available() -> Result<(), Otf2Error> {
    symbols::functions().map(|_| ())
}

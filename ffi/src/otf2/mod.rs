// SPDX-License-Identifier: MIT OR Apache-2.0
//! Archives in the Open Trace Format 2, written by its own C library.
//!
//! The library (Debian: libopen-trace-format2-10) is looked for when the first archive is made; whoever never makes one
//! does not need it. `symbols.rs` has what is called of it, `buffers.rs` its memory, [`Archive`] makes it safe: events first, each location's in
//! the order of time, then the definitions that the events name by numbers of the caller's choice.
//!
//! Called by the crate `ibex-export`. Path: setup. Threads: an archive belongs to one. Times: ticks of the clock that
//! [`Definitions::clock`] describes. Tests: at the end of this file; with the library's own programs, in export/.

mod archive;
mod buffers;
mod symbols;

pub use archive::{Archive, Communication, Definitions, Value};

/// What goes wrong with an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Otf2Error {
    /// There is no library.
    #[error(
        "the OTF2 library (3.x) cannot be loaded: {why}; install it: apt-get install libopen-trace-format2-10 \
         (with its programs: otf2-tools)"
    )]
    Missing {
        /// What the system's linker says.
        why: String,
    },
    /// The library refuses a call.
    #[error("the OTF2 library cannot {what}: {why}")]
    Failed {
        /// What was asked of it.
        what: &'static str,
        /// What it says.
        why: String,
    },
    /// A text has a byte 0 in it.
    #[error("a name cannot be written to an OTF2 archive, as it has a byte 0: {0:?}")]
    Text(String),
}

/// Whether archives can be written here.
///
/// # Errors
/// [`Otf2Error::Missing`].
pub fn available() -> Result<(), Otf2Error> {
    symbols::functions().map(|_| ())
}

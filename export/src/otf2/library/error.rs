// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes wrong with an archive, and what to do. Path: errors. Threads: plain data.

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

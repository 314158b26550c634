// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of a trace, as sentences: the file, the block and its offset, the expected and the found content, and the
//! part that is still readable. Path: setup. Threads: plain data. Tests: tests/damage.rs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A fault of a trace, or a system call that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action} {}: {cause}", file.display())]
    System {
        /// The action.
        action: &'static str,
        /// The file or folder.
        file: PathBuf,
        /// The system's error.
        #[source]
        cause: Arc<std::io::Error>,
    },
    /// An empty file.
    #[error("{} is empty: its process ended before it wrote anything, or the disk was full. Nothing can be read", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A file of another kind.
    #[error("{} is no trace of ibex: it begins with {found}, but a trace begins with {expected}. Nothing can be read", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Its first bytes.
        found: Hex,
        /// First bytes of a trace.
        expected: Hex,
    },
    /// A file of a later format.
    #[error("{} is a trace of format {version}, but this ibex reads formats up to {known}: use the ibex that wrote it, or a later one. Nothing can be read", file.display())]
    Future {
        /// The file.
        file: PathBuf,
        /// Its format.
        version: u32,
        /// Latest format that this ibex reads.
        known: u32,
    },
    /// A file that ends within a block, for example because its process was killed while writing.
    #[error("{} is cut off: {block} at offset {offset} has {expected} bytes, but the file contains only {found} of them. {readable}", file.display())]
    Truncated {
        /// The file.
        file: PathBuf,
        /// Part that is cut off.
        block: Part,
        /// Offset of that part.
        offset: u64,
        /// Number of its bytes, as far as it is known.
        expected: u64,
        /// Number of bytes that are there.
        found: u64,
        /// The readable part.
        readable: Readable,
    },
    /// A block that was changed, or that never had the right format.
    #[error("{} is damaged: {block} at offset {offset}: expected {expected}, found {found}. {readable}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Part that is damaged.
        block: Part,
        /// Offset of that part.
        offset: u64,
        /// Content that should be there.
        expected: String,
        /// Content that is there.
        found: String,
        /// The readable part.
        readable: Readable,
    },
    /// A file that ends after a whole block that is not the last one: its process was killed, or still runs.
    #[error("{} was not finished: it ends at offset {length} without a last block; the process was killed, or still runs. {readable}", file.display())]
    Unfinished {
        /// The file.
        file: PathBuf,
        /// Its length.
        length: u64,
        /// The readable part.
        readable: Readable,
    },
    /// A writer got data that a trace cannot hold.
    #[error("{} cannot hold {what}", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// The data.
        what: String,
    },
    /// A folder without traces.
    #[error("there is no trace in {}: no file there has a name that ends in .ibex", folder.display())]
    NoTrace {
        /// The folder.
        folder: PathBuf,
    },
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The preamble.
    Preamble,
    /// The block of this number.
    Block(u32),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Preamble => write!(f, "the preamble"),
            Part::Block(number) => write!(f, "block {number}"),
        }
    }
}

/// The readable part of a file with a fault: the blocks before and after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readable {
    /// Number of blocks before it.
    pub before: usize,
    /// Number of blocks after it.
    pub after: usize,
}

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.before, self.after) {
            (0, 0) => write!(f, "Nothing can be read"),
            (before, 0) => write!(f, "The {before} blocks before can be read"),
            (0, after) => write!(f, "The {after} blocks after it can be read"),
            (before, after) => write!(f, "The {before} blocks before and the {after} after it can be read"),
        }
    }
}

/// Bytes, shown in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        write!(f, "{}", digits.join(" "))
    }
}

impl Error {
    /// The readable part, if the fault has a position in a file.
    pub(crate) fn readable_mut(&mut self) -> Option<&mut Readable> {
        match self {
            Error::Truncated { readable, .. }
            | Error::Damaged { readable, .. }
            | Error::Unfinished { readable, .. } => Some(readable),
            _ => None,
        }
    }
}

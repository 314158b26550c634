// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of an export, as sentences that say what to do.
//!
//! Made by the formats, shown by `ibex export`. Tests: tests/refusals.rs.

use std::io;
use std::path::{Path, PathBuf};

use crate::otf2::Otf2Error;

/// Why an export fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Something has the name of what is to be written.
    #[error("{0} exists already, and nothing is overwritten; give another name or remove it")]
    Exists(PathBuf),
    /// A file or folder cannot be written.
    #[error("{path} cannot be written: {cause}")]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// The OTF2 library is missing or refuses.
    #[error(transparent)]
    Otf2(#[from] Otf2Error),
    /// The crate that writes Parquet refuses.
    #[error("{path} cannot be written as Parquet: {why}")]
    Parquet {
        /// Which.
        path: PathBuf,
        /// What it says.
        why: String,
    },
}

impl ExportError {
    /// Of a file.
    pub(crate) fn write(path: &Path) -> impl Fn(io::Error) -> ExportError + '_ {
        |cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => ExportError::Exists(path.to_owned()),
            _ => ExportError::Write { path: path.to_owned(), cause },
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job in the formats of other tools.
//!
//! [`export`] is what `ibex export` calls. Each format is a file of its own, which states its rules and where they stand:
//! `otf2.rs`. What they share: `walk.rs` goes through a job in the order of time and holds no more than what is in flight;
//! `life.rs` names the phases, `lanes.rs` says where they are drawn, `counters.rs` counts queues. docs/exports.md is for
//! users. Path: pending. Threads: any. Tests: in the files; with programs that read the formats, in tests/.

#![forbid(unsafe_code)]

mod counters;
mod error;
mod lanes;
mod life;
mod names;
mod otf2;
mod peers;
mod threads;
mod walk;

use std::path::Path;

use ibex_messages::Job;

pub use error::ExportError;

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Open Trace Format 2: a folder.
    Otf2,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 1] = [Format::Otf2];

    /// As it is named on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Otf2 => "otf2",
        }
    }

    /// What it makes, and for whom.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Format::Otf2 => "a folder with an OTF2 archive, for Vampir, Scalasca and otf2-print",
        }
    }
}

/// Writes a job in a format. The job is not copied: memory beyond it goes with what is in flight at a time.
///
/// # Errors
/// `out` exists or cannot be written, or a library is missing. What was written up to then is left for a look.
pub fn export(job: &Job, format: Format, out: &Path) -> Result<(), ExportError> {
    if out.symlink_metadata().is_ok() {
        return Err(ExportError::Exists(out.to_owned()));
    }
    match format {
        Format::Otf2 => otf2::write(job, out),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Index ([`SourceId`]) and description ([`SourceInfo`], for `MPI_T_source_get_info`) of an event source.
//!
//! Plain values, below all files that have sources or events of them; the table of sources is in `source.rs`. Path:
//! any; nothing runs here but a cast. Threads: plain data. Tests: `tests/sources.rs`.

/// How many sources there may be.
pub const SOURCES: usize = 64;

/// The number of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceId(pub(super) u16);

impl SourceId {
    /// Its number.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What a tool may know of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// Its name: `host:0`, `mlx5_0:1`.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Whether its events are delivered in the order of their timestamps, always.
    pub ordered: bool,
    /// The rate of its clock.
    pub ticks_per_second: u64,
    /// The greatest timestamp it can give.
    pub max_ticks: u64,
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Index ([`SourceId`]) and description ([`SourceInfo`]) of an event source; the table of sources is in `source.rs`.
//! Path: any; nothing runs here but a cast. Threads: plain data. Tests: `tests/sources.rs`.

/// Number of sources that there may be.
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

/// The description of a source for tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// Name, such as `host:0` or `mlx5_0:1`.
    pub name: String,
    /// What the source is.
    pub description: String,
    /// Whether its events are delivered in the order of their timestamps, always.
    pub ordered: bool,
    /// Rate of its clock.
    pub ticks_per_second: u64,
    /// Greatest timestamp that it can have.
    pub max_ticks: u64,
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a fabric: the number of nodes and their size, the adapters, and the folder of the cache.
//!
//! Read by [`crate::fabric`] and [`crate::vm`]. Grade: setup; plain data. Tests: the device tests of this package.

use std::fs;
use std::path::{Path, PathBuf};

/// Names the folder for the kernel and what is known of this machine, instead of `soft-roce` in the target folder.
pub const CACHE_VARIABLE: &str = "FABRIC_CACHE";

/// Options of a fabric. Processors and memory matter only to virtual machines.
#[derive(Clone, Debug)]
pub struct Options {
    /// One or two.
    pub nodes: usize,
    /// Processors of each node. With one, a loop that polls starves the kernel's part of soft-RoCE.
    pub cpus: usize,
    /// Memory of each node in MiB; bounded by three quarters of this machine's, shared between the nodes. Used when
    /// touched.
    pub memory: u64,
    /// The configuration file of the emulated adapters (docs/softhca.md); two InfiniBand adapters where `None`.
    pub adapters: Option<PathBuf>,
}

impl Options {
    /// The usual fabric of so many nodes: one node has memory for two ranks with a message over 2 GiB.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        let memory = if nodes == 1 { 10 << 10 } else { 4 << 10 };
        Self { nodes, cpus: 2, memory, adapters: None }
    }
}

/// Returns the folder for the kernel and for facts about this machine: see [`CACHE_VARIABLE`].
pub(crate) fn cache() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let target = || of("CARGO_TARGET_DIR").unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let cache = of(CACHE_VARIABLE).unwrap_or_else(|| target().join("soft-roce"));
    // The guest, and tools run in other folders, need it from the root on; where it does not exist yet, it will.
    let made = fs::create_dir_all(&cache).and_then(|()| cache.canonicalize());
    made.unwrap_or(cache)
}

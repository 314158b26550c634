// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host: its name, its kernel, and what its limits let a process have.
//!
//! Called by [`super`]. Grade: setup. Bytes. Tests: below.

use crate::answer::rows;
use ibex_ffi::limits;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;

/// What was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) kernel: String,
    /// Memory that this process may lock, bytes; none: as much as there is.
    pub(crate) locked_memory: Option<u64>,
    pub(crate) open_files: Option<u64>,
}

/// Looks at this host.
pub(crate) fn look() -> Host {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    Host {
        name: read("/proc/sys/kernel/hostname"),
        kernel: read("/proc/sys/kernel/osrelease"),
        locked_memory: limits::locked_memory(),
        open_files: limits::open_files(),
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locked = self.locked_memory.map_or_else(|| "no limit".to_owned(), |bytes| format!("{} KiB", bytes / 1024));
        let files = self.open_files.map_or_else(|| "no limit".to_owned(), |files| files.to_string());
        let found = [
            ("kernel", self.kernel.clone()),
            ("memory that a process may lock", locked),
            ("files that it may have open", files),
        ];
        write!(f, "Host {}\n{}", self.name, rows(2, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_with_its_unit_and_none_as_such() {
        let mut host = Host { name: "a".into(), kernel: "6.1".into(), locked_memory: Some(8 << 20), open_files: None };
        assert!(host.to_string().contains("lock  8192 KiB\n"));
        host.locked_memory = None;
        assert!(host.to_string().contains("lock  no limit\n"));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's name, kernel, and limits for a process, in bytes. Called by [`super`]. Grade: setup. Tests: below.

use crate::answer::rows;
use ibex_ffi::limits;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) kernel: String,
    /// Memory that this process may lock, bytes; `None`: unlimited.
    pub(crate) locked_memory: Option<u64>,
    pub(crate) open_files: Option<u64>,
}

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
            ("lockable memory per process", locked),
            ("open files per process", files),
        ];
        write!(f, "Host {}\n{}", self.name, rows(2, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_printed_with_its_unit_and_an_infinite_one_in_words() {
        let mut host = Host { name: "a".into(), kernel: "6.1".into(), locked_memory: Some(8 << 20), open_files: None };
        assert!(host.to_string().contains("per process  8192 KiB\n"));
        host.locked_memory = None;
        assert!(host.to_string().contains("per process  no limit\n"));
    }
}

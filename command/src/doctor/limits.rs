// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about the host's limits for a process of a job. Called by [`super`]. Grade: setup. Tests: below.

use super::finding::{Finding, Severity};
use crate::facts::host::Host;
use ibex::tunables::Tunables;

/// Approximate bytes of a receive slot: the longest fragment of a message.
const SLOT: u64 = 32 << 10;

/// Bytes for queues, send slots and the registrations of a small program, in addition to the receive slots.
const BESIDE: u64 = 32 << 20;

/// Number of files that Open MPI and an adapter open in a process, with a margin.
const FILES: u64 = 256;

/// Returns the least number of bytes that a process locks.
pub(super) fn needed(tunables: &Tunables) -> u64 {
    tunables.receive_queue_depth * SLOT + BESIDE
}

pub(super) fn judge(host: &Host, needed: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(locked) = host.locked_memory.filter(|locked| *locked < needed) {
        let found = format!("a process may lock {} KiB", locked / 1024);
        let finding = Finding::new(Severity::Error, "locked-memory", "limit of locked memory", found);
        findings.push(finding.expected(format!("at least {} KiB, better no limit", needed / 1024)).mended(
            "ulimit -l unlimited; for all users a file in /etc/security/limits.d with `* - memlock unlimited`; for a batch system \
             its daemon's limit (LimitMEMLOCK=infinity in slurmd.service)",
        ));
    }
    if let Some(files) = host.open_files.filter(|files| *files < FILES) {
        let found = format!("a process may have {files} files open");
        let finding = Finding::new(Severity::Warning, "open-files", "limit of open files", found);
        findings.push(
            finding
                .expected(format!("at least {FILES}"))
                .mended("ulimit -n 4096; for all users a file in /etc/security/limits.d with `* - nofile 4096`"),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_too_small_are_findings() {
        let host = |locked_memory, open_files| Host { locked_memory, open_files, ..Host::default() };
        let needed = needed(&Tunables::default());
        assert!(judge(&host(None, None), needed).is_empty());
        assert!(judge(&host(Some(needed), Some(1024)), needed).is_empty());
        let found = judge(&host(Some(8 << 20), Some(64)), needed);
        assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["locked-memory", "open-files"]);
        assert!(found[0].measured.contains("8192 KiB"));
    }
}

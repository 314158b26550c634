// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explains an error of the kernel by a limit of this process or of the host, with advice. Called where messages for
//! the user are made. Grade: setup (errors only). Threads: any. Sizes in bytes. Tests: at the end of the file.

use ibex_ffi::limits;
use std::io;

#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    /// Bytes of locked memory; `None`: no limit.
    locked: Option<u64>,
    /// Bytes of address space; `None`: no limit.
    address_space: Option<u64>,
    /// Bytes of address space in use; `None`: unknown.
    address_space_used: Option<u64>,
    /// Open files; `None`: no limit.
    files: Option<u64>,
    /// Bytes of the failed request; `None`: unknown.
    wanted: Option<u64>,
}

/// Returns advice, as sentences that follow the error; `None`: no limit explains it. `wanted`: requested bytes.
#[must_use]
pub fn advice(error: &io::Error, wanted: Option<u64>) -> Option<String> {
    let limits = Limits {
        locked: limits::locked_memory(),
        address_space: limits::address_space(),
        address_space_used: limits::address_space_used(),
        files: limits::open_files(),
        wanted,
    };
    limits.advice(error.raw_os_error()?)
}

impl Limits {
    fn advice(&self, errno: i32) -> Option<String> {
        match errno {
            libc::ENOMEM => Some(self.of_memory()),
            libc::EMFILE => Some(format!(
                "This process has as many files open as it may{}: raise the limit of open files (ulimit -n; limits.conf: `* - \
                 nofile 4096`, and for a batch system its daemon's limit)",
                self.files.map_or_else(String::new, |files| format!(", {files}"))
            )),
            libc::ENFILE => {
                Some("The host has as many files open as it may: raise its limit (sysctl fs.file-max)".to_owned())
            }
            _ => None,
        }
    }

    fn of_memory(&self) -> String {
        match (self.locked, self.address_space.filter(|limit| self.may_exceed(*limit))) {
            (None, None) => {
                "No limit of locked memory or address space explains it: the host, or the control group, is out of memory; see \
                 the kernel's log"
                    .to_owned()
            }
            (Some(locked), None) => of_locked("Most often the limit", locked),
            (None, Some(limit)) => of_address_space(limit),
            (Some(_), Some(limit)) if self.wanted.is_some() => of_address_space(limit),
            (Some(locked), Some(limit)) => {
                format!("{}. Or the limit{}", of_address_space(limit), of_locked("", locked))
            }
        }
    }

    /// Whether the request, as far as it is known, may have exceeded this limit of address space.
    fn may_exceed(&self, limit: u64) -> bool {
        match (self.address_space_used, self.wanted) {
            (Some(used), Some(wanted)) => used.saturating_add(wanted) > limit,
            _ => true,
        }
    }
}

fn of_address_space(limit: u64) -> String {
    format!(
        "The limit of address space is too low: it is {}; raise it (ulimit -v unlimited; limits.conf: `* - as \
         unlimited`), or use less: lower btl_ibex_receive_queue_depth, btl_ibex_max_send_size or btl_ibex_send_slots_max",
        size(limit)
    )
}

fn of_locked(begin: &str, limit: u64) -> String {
    format!(
        "{begin} of locked memory is too low: see `ulimit -l`, raise it (limits.conf: `* - memlock unlimited`, and for a batch \
         system its daemon's limit), or use less: lower btl_ibex_receive_queue_depth or btl_ibex_max_send_size. The limit of \
         this process is {}",
        size(limit)
    )
}

fn size(bytes: u64) -> String {
    format!("{} KiB", bytes / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Limits =
        Limits { locked: None, address_space: None, address_space_used: None, files: None, wanted: None };

    fn memory(limits: Limits) -> String {
        limits.advice(libc::ENOMEM).expect("memory has limits")
    }

    #[test]
    fn the_advice_names_the_limit_of_locked_memory_if_address_space_was_enough() {
        let locked = Limits { locked: Some(64 << 10), ..FREE };
        let roomy =
            Limits { address_space: Some(1 << 30), address_space_used: Some(1 << 20), wanted: Some(1 << 20), ..locked };
        for limits in [locked, roomy] {
            let text = memory(limits);
            assert!(text.contains("`ulimit -l`") && text.contains("64 KiB") && !text.contains("address"), "{text}");
        }
    }

    #[test]
    fn the_advice_names_the_limit_of_address_space_if_the_requested_memory_exceeds_it() {
        let short =
            Limits { address_space: Some(4 << 20), address_space_used: Some(3 << 20), wanted: Some(2 << 20), ..FREE };
        for limits in [short, Limits { locked: Some(64 << 10), ..short }] {
            let text = memory(limits);
            assert!(text.contains("ulimit -v") && text.contains("it is 4096 KiB"), "{text}");
            assert!(!text.contains("locked"), "{text}");
        }
    }

    #[test]
    fn the_advice_names_both_limits_if_the_size_of_the_requested_memory_is_unknown() {
        let text = memory(Limits { locked: Some(64 << 10), address_space: Some(4 << 20), ..FREE });
        assert!(text.contains("ulimit -v") && text.contains("Or the limit of locked memory"), "{text}");
    }

    #[test]
    fn there_is_no_advice_without_a_limit() {
        let text = memory(FREE);
        assert!(!text.contains("ulimit"), "{text}");
    }

    #[test]
    fn the_advice_on_open_files_names_the_limit() {
        let text = Limits { files: Some(16), ..FREE }.advice(libc::EMFILE).expect("files have a limit");
        assert!(text.contains("it may, 16:") && text.contains("ulimit -n"), "{text}");
        assert_eq!(FREE.advice(libc::EINVAL), None);
    }
}

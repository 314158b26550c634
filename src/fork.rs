// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether libibverbs must keep registered memory out of child processes, and has it do so. Before Linux 5.12
//! the kernel does not copy pages in use by an adapter when a process forks: the first write after the fork gives the
//! writer another page, and the adapter keeps the old one. The plugin calls this before the first port is opened.
//! Grade: setup. Threads: one. Tests: below, and `hw-tests/tests/device/memory.rs`.

use crate::tunables::ForkSupport;
use ibex_ffi::verbs::{self, ForkStatus};
use std::io;

/// A child would share pages with adapters, so a program that forks could lose data.
#[derive(Debug, thiserror::Error)]
#[error(
    "memory that is registered with the adapter cannot be kept out of child processes (ibv_fork_init: {error}). {advice}"
)]
pub struct Unprotected {
    /// Whether the user requires the protection.
    pub is_asked_for: bool,
    error: io::Error,
    advice: &'static str,
}

/// Protects this process' memory when it forks, as far as `wanted`. Called before the first registration.
///
/// # Errors
/// [`Unprotected`]: why it cannot, with advice.
pub fn prepare(wanted: ForkSupport) -> Result<(), Unprotected> {
    prepare_with(wanted, verbs::fork_status, verbs::fork_init)
}

fn prepare_with(
    wanted: ForkSupport,
    status: impl FnOnce() -> ForkStatus,
    init: impl FnOnce() -> io::Result<()>,
) -> Result<(), Unprotected> {
    // Unneeded, the call would be harmless but slow: libibverbs then walks its tree at each registration.
    if wanted == ForkSupport::No || status() != ForkStatus::Disabled {
        return Ok(());
    }
    init().map_err(|error| Unprotected {
        is_asked_for: wanted == ForkSupport::Yes,
        advice: match error.raw_os_error() {
            Some(libc::EINVAL) => {
                "Another part of this process has registered memory before; set RDMAV_FORK_SAFE=1 in its environment"
            }
            _ => "Use a kernel of 5.12 or later, or do not fork after MPI_Init",
        },
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn prepared(wanted: ForkSupport, status: ForkStatus, answer: i32) -> (Result<(), Unprotected>, bool) {
        let is_called = Cell::new(false);
        let init = || {
            is_called.set(true);
            if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
        };
        (prepare_with(wanted, || status, init), is_called.get())
    }

    #[test]
    fn ibex_calls_libibverbs_only_if_neither_it_nor_the_kernel_protects_memory() {
        for wanted in [ForkSupport::Auto, ForkSupport::Yes] {
            for (status, asked) in
                [(ForkStatus::Disabled, true), (ForkStatus::Enabled, false), (ForkStatus::Unneeded, false)]
            {
                let (outcome, is_called) = prepared(wanted, status, 0);
                assert!(outcome.is_ok() && is_called == asked, "{wanted:?} {status:?}");
            }
        }
        assert!(matches!(prepared(ForkSupport::No, ForkStatus::Disabled, libc::EINVAL), (Ok(()), false)));
    }

    #[test]
    fn a_refusal_says_why_and_whether_it_matters() {
        for (wanted, asked) in [(ForkSupport::Auto, false), (ForkSupport::Yes, true)] {
            let refusal = prepared(wanted, ForkStatus::Disabled, libc::EINVAL).0.expect_err("it is too late");
            assert_eq!(refusal.is_asked_for, asked);
            let text = refusal.to_string();
            assert!(text.contains("Invalid argument") && text.contains("RDMAV_FORK_SAFE"), "{text}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The effect of `fork` on registered memory, and libibverbs' protection against it (`ibv_fork_init(3)`,
//! `ibv_is_fork_initialized(3)`). Called by `ibex::fork` before any registration. Setup; any thread. Tests: `hw-tests`.

use crate::verbs::{errno, sys};
use std::io;

/// The effect of a fork on memory that an adapter uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkStatus {
    /// The process' first write to a page after a fork replaces the page, and the adapter keeps the old one.
    Disabled,
    /// libibverbs keeps such pages out of children.
    Enabled,
    /// The kernel copies such pages for the child when it forks (Linux 5.12 and later).
    Unneeded,
}

/// The effect that a fork would have now. Asks the kernel the first time.
pub fn fork_status() -> ForkStatus {
    // SAFETY: the call has no arguments, and is allowed at any time.
    match unsafe { sys::ibv_is_fork_initialized() } {
        sys::IBV_FORK_UNNEEDED => ForkStatus::Unneeded,
        sys::IBV_FORK_ENABLED => ForkStatus::Enabled,
        _ => ForkStatus::Disabled,
    }
}

/// Makes libibverbs keep all memory registered from now on out of children (`MADV_DONTFORK`).
///
/// # Errors
/// `EINVAL`: this process has registered memory before. `ENOSYS`: the kernel has no such advice.
pub fn fork_init() -> io::Result<()> {
    // SAFETY: the call has no arguments; libibverbs refuses it after the first registration.
    errno(unsafe { sys::ibv_fork_init() })
}

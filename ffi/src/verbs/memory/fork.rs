// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether `fork` is safe for registered memory, and how libibverbs makes it so (`ibv_fork_init(3)`,
//! `ibv_is_fork_initialized(3)`). Called by `ibex::fork` before any registration. Setup; any thread. Tests: `hw-tests`.

use crate::verbs::{errno, sys};
use std::io;

/// The effect of a fork on memory that an adapter uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkStatus {
    /// The first write to a page after the fork gives the process another page than the adapter has.
    Disabled,
    /// libibverbs keeps such pages out of children.
    Enabled,
    /// The kernel copies such pages for the child when it forks (Linux 5.12 and later).
    Unneeded,
}

/// The effect that a fork would have now. Asks the kernel the first time.
#[must_use]
pub fn fork_status() -> ForkStatus {
    // SAFETY: takes nothing, and may be called at any time.
    match unsafe { sys::ibv_is_fork_initialized() } {
        sys::IBV_FORK_UNNEEDED => ForkStatus::Unneeded,
        sys::IBV_FORK_ENABLED => ForkStatus::Enabled,
        _ => ForkStatus::Disabled,
    }
}

/// Makes libibverbs keep all memory that is registered from now on out of children (`MADV_DONTFORK`).
///
/// # Errors
/// `EINVAL`: this process has registered memory before. `ENOSYS`: the kernel has no such advice.
pub fn fork_init() -> io::Result<()> {
    // SAFETY: takes nothing; libibverbs refuses it once it is too late.
    errno(unsafe { sys::ibv_fork_init() })
}

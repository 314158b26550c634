// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_fork_init` and its relatives. A real adapter reads pinned pages, which copy-on-write after a fork would take from
//! under it; the emulated one reads the process's memory by address, so nothing has to be done. A child must open the
//! device anew, as with a real one.
//! Grade: setup. Threads: any.

use std::ffi::{c_int, c_void};

use crate::sys::{IBV_FORK_UNNEEDED, ibv_fork_status};

/// `ibv_fork_init(3)`: always succeeds.
pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized(3)`: fork needs no preparation here.
pub(crate) extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    IBV_FORK_UNNEEDED
}

/// Called by drivers of real adapters only.
pub(crate) extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Called by drivers of real adapters only.
pub(crate) extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

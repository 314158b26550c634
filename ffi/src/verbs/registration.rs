// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may be done to registered memory, and the verb that registers it.
//!
//! Called for memory of ibex's own (`mapping.rs`) and for a program's (`domain.rs`). Setup grade, any thread. Tests: device tests in
//! `hw-tests`.

use ibverbs_sys as sys;
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

bitflags::bitflags! {
    /// What may be done to registered memory (`enum ibv_access_flags`). Local reads are always allowed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u32 {
        /// The adapter may write here for this process: receives, reads' and atomics' results.
        const LOCAL_WRITE = 1;
        /// Peers may write here.
        const REMOTE_WRITE = 2;
        /// Peers may read from here.
        const REMOTE_READ = 4;
        /// Peers may do atomics here.
        const REMOTE_ATOMIC = 8;
    }
}

/// Registers `bytes` bytes at `start` (`ibv_reg_mr(3)`).
///
/// # Errors
/// The errno of the verb.
///
/// # Safety
/// The domain is live (R4). While the registration lives, the adapter may read the range, and write it if `access` lets it.
pub(super) unsafe fn register(
    domain: *mut sys::ibv_pd,
    start: *mut c_void,
    bytes: usize,
    access: Access,
) -> io::Result<NonNull<sys::ibv_mr>> {
    // SAFETY: this function's rule.
    let region = unsafe { sys::ibv_reg_mr(domain, start, bytes, access.bits() as i32) };
    NonNull::new(region).ok_or_else(io::Error::last_os_error)
}

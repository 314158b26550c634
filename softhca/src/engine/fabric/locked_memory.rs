// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locked memory: compares the memory that the registrations of this process would pin with its limit. Nothing is
//! pinned; counting and refusing follow the kernel (`ib_umem_get`): whole pages of every registration count, shared
//! ones as often as they are registered; beyond the soft limit of `RLIMIT_MEMLOCK` a process without `CAP_IPC_LOCK` is
//! refused. Grade: setup. Thread rule: any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::{Errno, Result};

const PAGE: u64 = 4096;
/// Bit of `CAP_IPC_LOCK` (capabilities(7)).
const CAP_IPC_LOCK: u32 = 14;

#[derive(Default)]
pub(crate) struct LockedMemory(AtomicU64);

impl LockedMemory {
    /// Counts the pages of `len` bytes at `addr` and returns their number; ENOMEM beyond the limit.
    pub(crate) fn lock(&self, addr: u64, len: u64) -> Result<u64> {
        let pages = (addr + len).div_ceil(PAGE) - addr / PAGE;
        let locked = self.0.fetch_add(pages, Ordering::AcqRel) + pages;
        if locked > limit() / PAGE && !may_exceed() {
            self.unlock(pages);
            return Err(Errno(libc::ENOMEM));
        }
        Ok(pages)
    }

    pub(crate) fn unlock(&self, pages: u64) {
        self.0.fetch_sub(pages, Ordering::AcqRel);
    }
}

fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a place for the answer.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if done == 0 { limit.rlim_cur } else { u64::MAX }
}

#[cold]
fn may_exceed() -> bool {
    // Version 3 (capget(2)), of the calling thread; the effective set comes first.
    let (mut header, mut sets) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    // SAFETY: version 3 fills two structures of three words each.
    let done = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    done == 0 && sets[0] & (1 << CAP_IPC_LOCK) != 0
}

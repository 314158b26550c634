// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locked memory: compares the memory that the registrations of this process would pin with its limit. Nothing is
//! pinned; counting and refusing follow the kernel (`ib_umem_get`): whole pages of every registration count, shared
//! ones as often as they are registered; beyond the soft limit of `RLIMIT_MEMLOCK` only a process with `CAP_IPC_LOCK`
//! may register. Called by: mr. Grade: setup. Thread rule: any thread. Tests: `tests/engine_locked_memory.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::engine::{Errno, Result};

const PAGE: u64 = 4096;

#[derive(Default)]
pub(crate) struct LockedMemory(AtomicU64);

impl LockedMemory {
    /// Counts the pages of `len` bytes at `addr` and returns their number; ENOMEM beyond the limit.
    pub(crate) fn lock(&self, addr: u64, len: u64) -> Result<u64> {
        let pages = (addr + len).div_ceil(PAGE) - addr / PAGE;
        let locked = self.0.fetch_add(pages, Ordering::AcqRel) + pages;
        if getrlimit(Resource::Memlock).current.is_some_and(|limit| locked > limit / PAGE) && !may_exceed() {
            self.unlock(pages);
            return Err(Errno(libc::ENOMEM));
        }
        Ok(pages)
    }

    pub(crate) fn unlock(&self, pages: u64) {
        self.0.fetch_sub(pages, Ordering::AcqRel);
    }
}

#[cold]
fn may_exceed() -> bool {
    // Those of the calling thread.
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
}

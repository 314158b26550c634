// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registered pages that a test unmaps.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::prelude::*;

/// Far from where the kernel maps what other threads ask for, so that nothing takes the place of unmapped pages.
static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);

pub struct Pages {
    mr: Mr,
    base: *mut libc::c_void,
    len: usize,
}

impl Pages {
    /// Maps and registers room for `len` bytes in the domain of `side`.
    pub fn of(side: &Side, len: usize) -> Pages {
        let at = NEXT.fetch_add(64 << 20, Ordering::Relaxed) as *mut libc::c_void;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping, which replaces nothing.
        let base = unsafe { libc::mmap(at, len, rights, how, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let mr = side.pd.reg_mr(base as u64, len as u64, base as u64, RIGHTS).unwrap();
        Pages { mr, base, len }
    }

    pub fn sge(&self) -> Sge {
        Sge { addr: self.base as u64, length: self.len as u32, lkey: self.mr.key() }
    }

    /// Unmaps the pages, and keeps the registration.
    pub fn unmap(&self) {
        // SAFETY: pages of this type, to which no reference exists.
        assert_eq!(unsafe { libc::munmap(self.base, self.len) }, 0);
    }
}

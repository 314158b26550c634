// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mapping: memory of ibex's own from the kernel, registered with an adapter as long as it is there.
//!
//! Owned by the protection domain it is registered in (`domain.rs`), and gone with it. Setup grade; any thread. Sizes in bytes. Tests:
//! device tests in `hw-tests`.

use super::errno;
use super::registration::{self, Access, Relaxation};
use ibverbs_sys as sys;
use std::io;
use std::ptr::NonNull;

/// Pages, mapped and registered.
#[derive(Debug)]
pub(super) struct Mapping {
    region: NonNull<sys::ibv_mr>,
    base: NonNull<u8>,
    bytes: usize,
}

/// What is known of a mapping: where it starts, and by which keys work requests name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapped {
    pub(super) base: NonNull<u8>,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

// SAFETY: neither pages nor their registration (R4) are tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes, zero at first, and registers them.
    ///
    /// # Errors
    /// `ENOMEM` where memory, or the limit of locked memory (`ulimit -l`), does not suffice.
    ///
    /// # Safety
    /// The domain is live, and outlives the mapping.
    pub(super) unsafe fn new(
        domain: *mut sys::ibv_pd,
        bytes: usize,
        access: Access,
        relaxation: &Relaxation,
    ) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at no given address touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // No mapping starts at address 0 (`mmap(2)`).
        let start = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // A child must not share these pages: after a copy on write the adapter would keep the old ones.
        // SAFETY: the range was just mapped and is this mapping's.
        unsafe { libc::madvise(base, bytes, libc::MADV_DONTFORK) };
        // SAFETY: the domain is live; the pages stay until they are deregistered (`drop`).
        let registered = unsafe { registration::register(domain, base, bytes, access, relaxation) };
        registered.map(|region| Mapping { region, base: start, bytes }).inspect_err(|_| {
            // SAFETY: mapped above, and registered with nobody.
            unsafe { libc::munmap(base, bytes) };
        })
    }

    pub(super) fn mapped(&self) -> Mapped {
        // SAFETY: R4, the registration is live; the keys are set once, at registration.
        let (lkey, rkey) = unsafe { ((*self.region.as_ptr()).lkey, (*self.region.as_ptr()).rkey) };
        Mapped { base: self.base, lkey, rkey }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: R4: registered once, deregistered once.
        let deregistered = errno(unsafe { sys::ibv_dereg_mr(self.region.as_ptr()) });
        // Where that failed an adapter may still write there.
        if deregistered.is_ok() {
            // SAFETY: mapped in `new`, unmapped once, and no adapter reaches it any more (R3).
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory from the kernel for ibex's own use (`pages`), registered with an adapter for its whole life. Its
//! protection domain owns it (`domain.rs`). Setup grade; any thread. Sizes in bytes. Tests: device tests in `hw-tests`.

use super::pages::{HugePages, PageKind, Pages};
use super::registration::{self, Access, Relaxation};
use crate::verbs::handle::Handle;
use crate::verbs::sys;
use std::io;
use std::ptr::NonNull;

#[derive(Debug)]
pub(super) struct Mapping {
    registered: Option<(Handle<sys::ibv_mr>, Pages)>,
    mapped: Mapped,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Mapped {
    pub(super) base: NonNull<u8>,
    /// Number of registered bytes, at least as many as wanted.
    pub(super) bytes: usize,
    pub(super) kind: PageKind,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

// SAFETY: neither pages nor their registration (R4) are tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps and registers `bytes` zero bytes, on huge pages if those are `wanted` and available.
    ///
    /// # Safety
    /// The domain is live, and outlives the mapping.
    pub(super) unsafe fn new(
        domain: *mut sys::ibv_pd,
        (bytes, wanted): (usize, HugePages),
        access: Access,
        relaxation: &Relaxation,
    ) -> io::Result<Mapping> {
        if let Some(pages) = Pages::explicit(bytes, wanted) {
            // SAFETY: the caller says that the domain is live, and outlives the mapping.
            let mapping = unsafe { Mapping::of(domain, pages, access, relaxation) };
            // Huge pages are more than `bytes`, perhaps more than the process may lock.
            if mapping.is_ok() {
                return mapping;
            }
        }
        // SAFETY: the caller says that the domain is live, and outlives the mapping.
        unsafe { Mapping::of(domain, Pages::new(bytes, wanted)?, access, relaxation) }
    }

    /// # Safety
    /// The domain is live, and outlives the mapping.
    unsafe fn of(
        domain: *mut sys::ibv_pd,
        pages: Pages,
        access: Access,
        relaxation: &Relaxation,
    ) -> io::Result<Mapping> {
        let (base, bytes) = (pages.base(), pages.bytes());
        // SAFETY: R4: the caller says that the domain outlives the mapping; the pages stay until deregistered (`drop`).
        let region = unsafe { registration::register(domain, base.as_ptr().cast(), bytes, access, relaxation) }?;
        // SAFETY: R4, the registration is live; the keys are set once, at registration.
        let (lkey, rkey) = unsafe { ((*region.raw()).lkey, (*region.raw()).rkey) };
        let mapped = Mapped { base, bytes, kind: pages.kind(), lkey, rkey };
        Ok(Mapping { registered: Some((region, pages)), mapped })
    }

    pub(super) fn mapped(&self) -> Mapped {
        self.mapped
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The adapter must not reach unmapped pages (R3). If deregistration fails they stay mapped.
        if let Some((region, pages)) = self.registered.take()
            && region.destroy().is_err()
        {
            std::mem::forget(pages);
        }
    }
}

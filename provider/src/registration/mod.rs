// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations of a program's memory with the adapter of an endpoint, so that long messages are read without a copy.
//!
//! Each message registers its data, and gives the registration back once its peer has done with it. Called by
//! `host/memory.rs`. Grade: pending. Threads: the one that has entered the endpoint. Tests: `hw-tests`.

use std::sync::Arc;

use ibex_ffi::verbs::{Access, MemoryRegion, ProtectionDomain};

/// Shortest message whose memory is registered, bytes. Below it, two copies cost less than two system calls that pin
/// the pages and let them go.
const SHORTEST: usize = 256 << 10;

/// The registrations of an endpoint.
pub(crate) struct Registrations {
    domain: Arc<ProtectionDomain>,
    all: Vec<Option<MemoryRegion>>,
    free: Vec<u32>,
}

/// Names a registration that is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    place: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

impl Registrations {
    pub(crate) fn new(domain: Arc<ProtectionDomain>) -> Self {
        Registrations { domain, all: Vec::new(), free: Vec::new() }
    }

    /// Registers memory of a message. `None`: it is too short, or the system refuses, as for read-only memory of a
    /// receive or beyond the limit of locked memory.
    ///
    /// # Safety
    /// A1: the memory belongs to an operation, which ends after the registration is given back.
    pub(crate) unsafe fn register(&mut self, start: usize, length: usize, access: Access) -> Option<Registered> {
        if length < SHORTEST {
            return None;
        }
        // The completion of a read tells when the data has arrived, so it may arrive in any order.
        let access = access | Access::RELAXED_ORDERING;
        // SAFETY: A1: the program keeps the memory mapped until the end of the operation, which comes later.
        let region = unsafe { self.domain.register(start, length, access) }.ok()?;
        let (lkey, rkey) = (region.lkey(), region.rkey());
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        self.all[place as usize] = Some(region);
        Some(Registered { place, lkey, rkey })
    }

    /// Takes a registration back, which no posted work request names.
    pub(crate) fn give_back(&mut self, registered: Registered) {
        self.all[registered.place as usize] = None;
        self.free.push(registered.place);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the fabric: slots, and registrations without a cache.
//!
//! What an adapter reads or writes is named by its address, as in a work request, and copied here. Threads: the test's.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::LocalSpan;

use super::super::super::memory::Registered;
use super::Fabric;

/// A copy of what is at an address. That who has posted a request which names it keeps it until the request is
/// acknowledged is what is tried (R2).
pub(super) fn read(start: u64, length: usize) -> Vec<u8> {
    let start = std::ptr::with_exposed_provenance::<u8>(start as usize);
    let mut bytes = vec![0; length];
    // SAFETY: R2: named by a request that is under way; the copy is new.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(start, length) };
    bytes
}

/// Writes to an address, by the same rule.
pub(super) fn write(start: u64, bytes: &[u8]) {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(start as usize);
    // SAFETY: R2: a slot that the adapter has, or named by a read that is under way.
    unsafe { start.copy_from(bytes.as_ptr(), bytes.len()) };
}

/// Slots of one size, in memory of their own.
#[derive(Debug)]
pub(super) struct Slots {
    memory: *mut [u8],
    size: usize,
    count: usize,
}

// SAFETY: the memory is its own.
unsafe impl Send for Slots {}

impl Slots {
    pub(super) fn new(size: u32, count: u32) -> Self {
        let (size, count) = (size as usize, count as usize);
        let memory = Box::into_raw(vec![0; size * count].into_boxed_slice());
        memory.cast::<u8>().expose_provenance();
        Slots { memory, size, count }
    }

    pub(super) fn count(&self) -> u32 {
        self.count as u32
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Where a slot starts.
    pub(super) fn address(&self, slot: u32) -> Option<u64> {
        let slot = slot as usize;
        (slot < self.count).then(|| (self.memory.cast::<u8>().addr() + slot * self.size) as u64)
    }

    /// A slot, whole.
    pub(super) fn span(&self, slot: u32) -> Option<LocalSpan> {
        // SAFETY: R3: the fabric reads it without a registration, as long as it is there; R1, R2: who posts it.
        self.address(slot).map(|start| unsafe { LocalSpan::new(start, self.size as u32, 0) })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: made by `into_raw` in `new`; once.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

/// What is registered.
struct Region {
    port: usize,
    start: u64,
    length: u64,
    access: u32,
}

/// The registrations of all ports, by their keys.
#[derive(Default)]
pub(super) struct Registrations {
    last: u32,
    regions: HashMap<u32, Region>,
}

impl Registrations {
    fn add(&mut self, region: Region) -> u32 {
        self.last += 1;
        self.regions.insert(self.last, region);
        self.last
    }

    pub(super) fn count(&self) -> usize {
        self.regions.len()
    }

    /// # Panics
    /// There is no registration under this key for these bytes.
    pub(super) fn check(&self, (port, key): (usize, u32), (start, length): (u64, u32), access: u32) {
        let region = self.regions.get(&key).expect("a request names a registration that is there (R3)");
        let is_inside = start >= region.start && start + u64::from(length) <= region.start + region.length;
        assert!(is_inside && region.port == port && region.access & access != 0, "a request keeps to its registration");
    }
}

/// The registrations of one port.
pub(crate) struct Memory {
    fabric: Fabric,
    port: usize,
}

impl Memory {
    pub(super) fn new(fabric: Fabric, port: usize) -> Self {
        Memory { fabric, port }
    }

    /// As Open MPI's cache does.
    ///
    /// # Safety
    /// M3: the bytes are mapped until the registration is put back.
    pub(crate) unsafe fn register(&self, base: *mut c_void, size: usize, access: u32) -> Option<Registered> {
        let mut state = self.fabric.state();
        if state.ports[self.port].refuses_memory {
            return None;
        }
        let start = base.expose_provenance() as u64;
        let region = Region { port: self.port, start, length: size as u64, access };
        Some(Registered::without_cache(state.registrations.add(region)))
    }

    /// # Safety
    /// R3: no work request under way names the registration; it is put back once.
    pub(crate) unsafe fn put_back(&self, registered: Registered) -> c_int {
        let region = self.fabric.state().registrations.regions.remove(&registered.rkey());
        assert!(region.is_some_and(|region| region.port == self.port), "it is put back once, to its port");
        // SAFETY: it was there until now, so made by `register`, and nobody names it.
        unsafe { registered.free() };
        sys::OPAL_SUCCESS
    }
}

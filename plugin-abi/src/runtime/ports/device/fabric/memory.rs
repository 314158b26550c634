// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the fabric: slots, registrations without a cache, and the copies that an adapter makes. As in a work
//! request, memory is named by its address. Called by `fabric.rs`, `adapter.rs` and the PML. Threads: the test's.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::LocalSpan;

use super::super::super::memory::Registered;
use super::Fabric;

/// Copies the bytes at an address. The tests check that their owner keeps them until the request that names them is
/// acknowledged (R2); under Miri, a violation is an error here.
pub(super) fn read(start: u64, length: usize) -> Vec<u8> {
    let start = std::ptr::with_exposed_provenance::<u8>(start as usize);
    let mut bytes = vec![0; length];
    // SAFETY: R2: a request in flight names the bytes, so they are alive; the copy is in new memory.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(start, length) };
    bytes
}

pub(super) fn write(start: u64, bytes: &[u8]) {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(start as usize);
    // SAFETY: R2: the address is in a posted slot, or a read in flight names it, so it belongs to the adapter.
    unsafe { start.copy_from(bytes.as_ptr(), bytes.len()) };
}

#[derive(Debug)]
pub(super) struct Slots {
    memory: *mut [u8],
    size: usize,
    count: usize,
}

// SAFETY: `Slots` owns its memory, so any thread may use and free it.
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

    pub(super) fn address(&self, slot: u32) -> Option<u64> {
        let slot = slot as usize;
        (slot < self.count).then(|| (self.memory.cast::<u8>().addr() + slot * self.size) as u64)
    }

    pub(super) fn span(&self, slot: u32, lkey: u32) -> Option<LocalSpan> {
        // SAFETY: R3: the fabric checks the key; R1, R2: slots are accessed only by raw pointers, and the transport
        // writes a slot only before it posts it.
        self.address(slot).map(|start| unsafe { LocalSpan::new(start, self.size as u32, lkey) })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: `new` made the pointer by `Box::into_raw`, and `drop` runs once.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

struct Region {
    port: usize,
    start: u64,
    length: u64,
    access: u32,
    is_of_slots: bool,
}

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

    pub(super) fn add_slots(&mut self, port: usize, slots: &Slots) -> u32 {
        let (start, length) = (slots.address(0).unwrap_or_default(), slots.memory.len() as u64);
        self.add(Region { port, start, length, access: sys::MCA_RCACHE_ACCESS_LOCAL_WRITE, is_of_slots: true })
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<usize> {
        self.regions.remove(&key).map(|region| region.port)
    }

    pub(super) fn count(&self) -> usize {
        self.regions.values().filter(|region| !region.is_of_slots).count()
    }

    /// Panics unless a registration of this port with this key covers these bytes and permits `access`.
    pub(super) fn check(&self, (port, key): (usize, u32), (start, length): (u64, u32), access: u32) {
        let region = self.regions.get(&key).expect("a request names a registration that is there (R3)");
        let is_inside = start >= region.start && start + u64::from(length) <= region.start + region.length;
        assert!(is_inside && region.port == port && region.access & access != 0, "a request keeps to its registration");
    }
}

pub(crate) struct Memory {
    fabric: Fabric,
    port: usize,
}

impl Memory {
    pub(super) fn new(fabric: Fabric, port: usize) -> Self {
        Memory { fabric, port }
    }

    /// # Safety
    /// M3: the bytes are mapped until the registration is put back.
    pub(crate) unsafe fn register(&self, base: *mut c_void, size: usize, access: u32) -> Option<Registered> {
        let mut state = self.fabric.state();
        if state.ports[self.port].refuses_memory {
            return None;
        }
        let start = base.expose_provenance() as u64;
        let region = Region { port: self.port, start, length: size as u64, access, is_of_slots: false };
        Some(Registered::without_cache(state.registrations.add(region)))
    }

    /// # Safety
    /// R3: no work request in flight names the registration, and the caller puts it back once.
    pub(crate) unsafe fn put_back(&self, registered: Registered) -> c_int {
        let mut state = self.fabric.state();
        assert_eq!(state.registrations.remove(registered.rkey()), Some(self.port), "it is put back once, to its port");
        assert!(!state.reads_to(registered.lkey()), "a read in flight names a registration that ends (R3)");
        drop(state);
        // SAFETY: R3: `register` made it, as the table had its key until now; no request names it.
        unsafe { registered.free() };
        sys::OPAL_SUCCESS
    }
}

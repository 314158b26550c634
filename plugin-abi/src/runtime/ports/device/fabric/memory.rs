// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the fabric: slots, registrations without a cache, and the copies that an adapter makes. As in a work
//! request, memory is named by its address. Called by the simulated adapters and the PML. Grade: test. Threads: the
//! test's.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::ptr::{slice_from_raw_parts_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Arc, Mutex, MutexGuard};

use engine::transport::adapter::simulated::{self, Span};
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

use super::super::super::memory::Registered;
use super::Fabric;

/// Copies the bytes at an address. The tests check that their owner keeps them until the request that names them is
/// acknowledged (R2); under Miri, a violation is an error here.
fn read(start: *const u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // SAFETY: R2: a request in flight names the bytes, so they are alive; the copy is in new memory.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(start, length) };
    bytes
}

struct Region {
    port: usize,
    start: u64,
    length: usize,
    access: u32,
    is_of_slots: bool,
}

#[derive(Default)]
struct Table {
    last: u32,
    regions: BTreeMap<u32, Region>,
    /// Ports that refuse to register memory.
    refusing: BTreeSet<usize>,
}

impl Table {
    fn add(&mut self, region: Region) -> u32 {
        self.last += 1;
        self.regions.insert(self.last, region);
        self.last
    }

    /// Panics unless a registration of this port with this key covers these bytes and permits `right`.
    fn check(&self, port: usize, (start, length, key): Span, right: Access) {
        let region = self.regions.get(&key).expect("a request names a registration that is there (R3)");
        let end = region.start + region.length as u64;
        let is_inside = start >= region.start && start + u64::from(length) <= end;
        let flag = match right {
            Access::REMOTE_READ => sys::MCA_RCACHE_ACCESS_REMOTE_READ,
            Access::REMOTE_WRITE => sys::MCA_RCACHE_ACCESS_REMOTE_WRITE,
            Access::LOCAL_WRITE => sys::MCA_RCACHE_ACCESS_LOCAL_WRITE,
            _ => 0,
        };
        assert!(
            is_inside && region.port == port && region.access & flag == flag,
            "a request keeps to its registration"
        );
    }
}

#[derive(Clone, Default)]
pub(super) struct Registrations(Arc<Mutex<Table>>);

impl Registrations {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("no test failed while it looked")
    }

    pub(super) fn count(&self) -> usize {
        self.table().regions.values().filter(|region| !region.is_of_slots).count()
    }

    pub(super) fn refuse(&self, port: usize, refuses: bool) {
        let refusing = &mut self.table().refusing;
        _ = if refuses { refusing.insert(port) } else { refusing.remove(&port) };
    }
}

impl simulated::Memory for Registrations {
    fn allocate(&mut self, port: usize, length: usize) -> (u64, u32) {
        let memory = Box::into_raw(vec![0_u8; length].into_boxed_slice()).cast::<u8>();
        let (start, access) = (memory.expose_provenance() as u64, sys::MCA_RCACHE_ACCESS_LOCAL_WRITE);
        (start, self.table().add(Region { port, start, length, access, is_of_slots: true }))
    }

    fn free(&mut self, key: u32) {
        let Region { start, length, is_of_slots, .. } = self.table().regions.remove(&key).expect("freed once");
        assert!(is_of_slots, "the memory of an operation is not the adapter's");
        // SAFETY: `allocate` made the pointer by `Box::into_raw`, and the table had it until now.
        drop(unsafe {
            Box::from_raw(slice_from_raw_parts_mut(with_exposed_provenance_mut::<u8>(start as usize), length))
        });
    }

    fn span(&self, (start, length, key): Span) -> LocalSpan {
        // SAFETY: R3: the table checks the key; R1, R2: slots are accessed only by raw pointers, and the transport
        // writes a slot only before it posts it.
        unsafe { LocalSpan::new(start, length, key) }
    }

    fn inline(&self, span: InlineSpan<'_>) -> Vec<u8> {
        read(span.as_ptr(), span.len())
    }

    fn read(&self, port: usize, at: Span, right: Access) -> Option<Vec<u8>> {
        self.table().check(port, at, right);
        Some(read(with_exposed_provenance(at.0 as usize), at.1 as usize))
    }

    fn write(&mut self, port: usize, at: Span, right: Access, bytes: &[u8]) -> Option<()> {
        self.table().check(port, at, right);
        assert_eq!(at.1 as usize, bytes.len());
        // SAFETY: R2: the address is in a posted slot, or a request in flight names it, so it belongs to the adapter.
        unsafe { with_exposed_provenance_mut::<u8>(at.0 as usize).copy_from(bytes.as_ptr(), bytes.len()) };
        Some(())
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
    pub(crate) unsafe fn register(&self, base: *mut c_void, length: usize, access: u32) -> Option<Registered> {
        let mut table = self.fabric.registrations.table();
        if table.refusing.contains(&self.port) {
            return None;
        }
        let start = base.expose_provenance() as u64;
        let region = Region { port: self.port, start, length, access, is_of_slots: false };
        Some(Registered::without_cache(table.add(region)))
    }

    /// # Safety
    /// R3: no work request in flight names the registration, and the caller puts it back once.
    pub(crate) unsafe fn put_back(&self, registered: Registered) -> c_int {
        let removed = self.fabric.registrations.table().regions.remove(&registered.rkey());
        assert!(removed.is_some_and(|region| region.port == self.port), "it is put back once, to its port");
        assert!(!self.fabric.reads_to(registered.lkey()), "a read in flight names a registration that ends (R3)");
        // SAFETY: R3: `register` made it, as the table had its key until now; no request names it.
        unsafe { registered.free() };
        sys::OPAL_SUCCESS
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The heap of the region: blocks in size classes (powers of two), one behind the other, each with a header that names
//! its class and its owner. Called by: code that makes, resizes or destroys a queue (`Process::allocate`), and the
//! burial of a dead process. Grade: setup. Thread rule: the heap's own lock. A block is in the heap once the heap's end
//! is behind it, so its class is written before. The lists of free blocks follow from the headers; a process that
//! inherits the lock makes them anew. An allocated block is zero. Tests: `tests/engine_killed.rs`.

use crate::engine::memory::layout::{HEAP_AT, REGION_BYTES};
use crate::engine::{Errno, Held, Process, Result, Shared, SharedLock, W32, W64};

const SMALLEST: u32 = 7;
const CLASSES: usize = 32;
const HEAD: u64 = 64;

#[repr(C)]
pub(crate) struct Heap {
    lock: SharedLock,
    _pad: W32,
    end: W64,
    free: [W64; CLASSES],
}

#[repr(C, align(64))]
struct Block {
    class: W32,
    /// Token of the process; 0 while free.
    owner: W32,
    next: W64,
}

// SAFETY: words only, repr(C), zero is valid.
unsafe impl Shared for Block {}

impl Heap {
    pub(super) fn begin(&self) {
        self.end.set(HEAP_AT);
    }
}

impl Process {
    fn lock_heap(&self) -> Held<'_> {
        let heap = &self.header().heap;
        let held = heap.lock.lock(self);
        if held.is_inherited {
            heap.free.iter().for_each(|list| list.set(0));
            self.blocks().filter(|(_, block)| block.owner.get() == 0).for_each(|(at, block)| self.list(at, block));
        }
        held
    }

    fn blocks(&self) -> impl Iterator<Item = (u64, &'static Block)> {
        let mut at = HEAP_AT;
        std::iter::from_fn(move || {
            let block = (at < self.header().heap.end.seen()).then(|| (at, self.region().at::<Block>(at)))?;
            at += 1 << block.1.class.get();
            Some(block)
        })
    }

    fn list(&self, at: u64, block: &Block) {
        let list = &self.header().heap.free[(block.class.get() - SMALLEST) as usize];
        block.next.set(list.get());
        list.publish(at);
    }

    /// Allocates `len` zeroed bytes, 64-byte aligned, for this process, and returns their offset; ENOMEM.
    pub(crate) fn allocate(&self, len: u64) -> Result<u64> {
        let (region, heap) = (self.region(), &self.header().heap);
        let class = (len + HEAD).next_power_of_two().trailing_zeros().max(SMALLEST);
        let list = heap.free.get((class - SMALLEST) as usize).ok_or(Errno(libc::ENOMEM))?;
        let _held = self.lock_heap();
        let listed = list.get();
        let at = if listed == 0 { heap.end.get() } else { listed };
        if at + (1 << class) > REGION_BYTES {
            return Err(Errno(libc::ENOMEM));
        }
        let block = region.at::<Block>(at);
        block.class.set(class);
        block.owner.publish(self.token());
        if listed == 0 {
            heap.end.publish(at + (1 << class));
        } else {
            list.set(block.next.get());
        }
        Ok(at + HEAD)
    }

    /// Gives back a block of `allocate`; does nothing for offset 0.
    pub(crate) fn release(&self, offset: u64) {
        if offset != 0 {
            let _held = self.lock_heap();
            self.free(offset - HEAD, self.region().at(offset - HEAD));
        }
    }

    fn free(&self, at: u64, block: &Block) {
        if block.owner.get() == 0 {
            return;
        }
        // SAFETY: the block is given back, so nobody uses its bytes (M2); its header says how large it is.
        unsafe { self.region().clear(at + HEAD, (1 << block.class.get()) - HEAD) };
        block.owner.publish(0);
        self.list(at, block);
    }

    /// Gives back all memory of a process that is dead and whose queue pairs are gone.
    pub(crate) fn release_memory_of(&self, token: u32) {
        let _held = self.lock_heap();
        self.blocks().filter(|(_, block)| block.owner.get() == token).for_each(|(at, block)| self.free(at, block));
    }

    /// Panics unless each block belongs to one of these processes, or is listed once as free.
    pub(crate) fn audit_heap(&self, alive: &[u32]) {
        let _held = self.lock_heap();
        let of_list = |list: &W64| {
            let next = |at: &u64| Some(self.region().at::<Block>(*at).next.get()).filter(|next| *next != 0);
            std::iter::successors(Some(list.get()).filter(|first| *first != 0), next)
        };
        let free: Vec<u64> = self.header().heap.free.iter().flat_map(of_list).collect();
        audit_places(self.blocks().map(|(at, block)| (at, block.owner.get())), &free, alive);
    }
}

/// Panics unless each place is owned by a living process, or has the owner 0 and is listed once in `free`.
pub(crate) fn audit_places(places: impl Iterator<Item = (u64, u32)>, free: &[u64], alive: &[u32]) {
    for (place, owner) in places {
        let listed = free.iter().filter(|free| **free == place).count();
        let is_right = if owner == 0 { listed == 1 } else { listed == 0 && alive.contains(&owner) };
        assert!(is_right, "place {place:#x} is listed {listed} times as free, and is of process {owner:#x}");
    }
}

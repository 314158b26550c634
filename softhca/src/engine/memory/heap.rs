// SPDX-License-Identifier: MIT OR Apache-2.0
//! The heap of the region: blocks in size classes (powers of two), each with a header that names its owner process.
//! Called by: code that makes, resizes or destroys a queue (`Process::allocate`), and the burial of a dead process.
//! Grade: setup. Thread rule: the heap's own lock, which survives its holder; a block is linked before the list's head
//! changes, so the list stays whole if the holder dies. A block given out is zero.

use crate::engine::memory::layout::{HEAP_AT, REGION_BYTES};
use crate::engine::memory::{Process, Shared, SharedLock, W32, W64};
use crate::engine::{Errno, Result};

const SMALLEST: u32 = 7;
const CLASSES: usize = 32;
const HEAD: u64 = 64;

/// `Block::kind`: whether the block is free or given out.
const KIND_FREE: u32 = 0;
const KIND_BYTES: u32 = 1;

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
    kind: W32,
    owner: W32,
    _pad: W32,
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
    /// Allocates `len` zeroed bytes, 64-byte aligned, for this process, and returns their offset; ENOMEM.
    pub(crate) fn allocate(&self, len: u64) -> Result<u64> {
        let (region, heap) = (self.region(), &self.header().heap);
        let class = (len + HEAD).next_power_of_two().trailing_zeros().max(SMALLEST);
        let index = (class - SMALLEST) as usize;
        if index >= CLASSES {
            return Err(Errno(libc::ENOMEM));
        }
        let _held = heap.lock.lock(self);
        let mut at = heap.free[index].get();
        if at == 0 {
            at = heap.end.get();
            if at + (1 << class) > REGION_BYTES {
                return Err(Errno(libc::ENOMEM));
            }
            heap.end.set(at + (1 << class));
        } else {
            heap.free[index].set(region.at::<Block>(at).next.get());
        }
        let block = region.at::<Block>(at);
        block.class.set(class);
        block.owner.set(self.token());
        block.kind.set(KIND_BYTES);
        Ok(at + HEAD)
    }

    /// Gives back what `allocate` gave; does nothing for offset 0.
    pub(crate) fn release(&self, offset: u64) {
        if offset != 0 {
            let _held = self.header().heap.lock.lock(self);
            self.release_locked(offset - HEAD);
        }
    }

    fn release_locked(&self, at: u64) {
        let region = self.region();
        let block = region.at::<Block>(at);
        if block.kind.get() == KIND_FREE {
            return;
        }
        let class = block.class.get();
        // SAFETY: the block is given back, so nobody uses its bytes (M2); its header says how large it is.
        unsafe { region.clear(at + HEAD, (1 << class) - HEAD) };
        block.kind.set(KIND_FREE);
        let head = &self.header().heap.free[(class - SMALLEST) as usize];
        block.next.set(head.get());
        head.set(at);
    }

    /// Gives back all memory of a process that is dead and whose queue pairs are gone.
    pub(crate) fn release_memory_of(&self, token: u32) {
        let (region, heap) = (self.region(), &self.header().heap);
        let _held = heap.lock.lock(self);
        let mut at = HEAP_AT;
        while at < heap.end.get() {
            let block = region.at::<Block>(at);
            let class = block.class.get();
            if class < SMALLEST {
                break; // its maker died before he wrote the class: nothing after it can be told apart
            }
            if block.owner.get() == token && block.kind.get() != KIND_FREE {
                self.release_locked(at);
            }
            at += 1 << class;
        }
    }
}

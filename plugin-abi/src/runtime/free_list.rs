// SPDX-License-Identifier: MIT OR Apache-2.0
//! A free list of records of one type, with the blocks of memory that contain them, which live as long as the list.
//! Open MPI and work requests hold addresses of records, so these are plain pointers, and the link of the list is
//! inside the record ([`Linked`]). Called by the pools of both components (`btl/two_sided/descriptor/pool.rs`,
//! `pml/request.rs`). Grade: hot (a pop, a push); [`FreeList::add`] allocates (pending). Threads: the owner's. Tests:
//! `btl/two_sided/descriptor/tests.rs`, `btl/one_sided/operation.rs`.

use std::ptr::{NonNull, null_mut};

/// A record with a field for the link of a free list.
///
/// # Safety
/// At offset `NEXT` the record has a `*mut Self` that only the list uses while the record is free. Any thread may use
/// it.
pub(crate) unsafe trait Linked: Sized {
    /// Offset of the link in bytes.
    const NEXT: usize;
}

pub(crate) struct FreeList<T: Linked> {
    free: *mut T,
    blocks: Vec<*mut [T]>,
}

// SAFETY: the value owns the blocks that its pointers refer to; their records may move to another thread (`Linked`).
unsafe impl<T: Linked> Send for FreeList<T> {}

impl<T: Linked> FreeList<T> {
    pub(crate) const fn new() -> Self {
        FreeList { free: null_mut(), blocks: Vec::new() }
    }

    /// Takes the record that was given back last. `None`: all are in use.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<NonNull<T>> {
        let record = NonNull::new(self.free)?;
        // SAFETY: a record on the list is not used by others, and `give_back` wrote its link.
        self.free = unsafe { link(record.as_ptr()).read() };
        Some(record)
    }

    /// # Safety
    /// The record was taken from this list, and nobody uses it any more.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, record: *mut T) {
        // SAFETY: the caller says that nobody uses the record any more, so the link is the list's (`Linked`).
        unsafe { link(record).write(self.free) };
        self.free = record;
    }

    /// Adds new records; calls `place` for each at its final address.
    #[cold]
    pub(crate) fn add(&mut self, records: Vec<T>, mut place: impl FnMut(NonNull<T>)) {
        let block = Box::into_raw(records.into_boxed_slice());
        for index in 0..block.len() {
            // SAFETY: the index is within the block.
            let record = unsafe { NonNull::new_unchecked(block.cast::<T>().add(index)) };
            place(record);
            // SAFETY: the record is in a block of this list, and nobody uses it: only `place` got its address.
            unsafe { self.give_back(record.as_ptr()) };
        }
        self.blocks.push(block);
    }

    #[cfg(test)]
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }
}

impl<T: Linked> Drop for FreeList<T> {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: `add` made it with `into_raw`. Its owner closes the port first, so no request names a record.
            drop(unsafe { Box::from_raw(block) });
        }
    }
}

#[inline]
fn link<T: Linked>(record: *mut T) -> *mut *mut T {
    record.wrapping_byte_add(T::NEXT).cast()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A free list of records of one type, and the blocks they lie in, which live as long as the list.
//!
//! Open MPI and work requests hold the addresses of records, so these are plain pointers, and the record itself has the
//! link of the list ([`Linked`]). Used by `btl/descriptor/pool.rs` and `btl/operation.rs`. Grade: hot (a pop, a push);
//! [`FreeList::add`] allocates (pending). Threads: its owner's. Tests: `btl/descriptor/tests.rs`, `btl/operation.rs`.

use std::ptr::{NonNull, null_mut};

/// A record that has room for the link of a free list.
///
/// # Safety
/// At `NEXT` bytes the record has a `*mut Self` that nobody else uses while it is in a free list. A record in one may
/// be used by any thread.
pub(crate) unsafe trait Linked: Sized {
    /// The offset of the link, bytes.
    const NEXT: usize;
}

/// Records, in use and free.
pub(crate) struct FreeList<T: Linked> {
    free: *mut T,
    blocks: Vec<*mut [T]>,
}

// SAFETY: the pointers are to blocks this value owns; they and the records in it move with it (`Linked`).
unsafe impl<T: Linked> Send for FreeList<T> {}

impl<T: Linked> FreeList<T> {
    /// No record yet.
    pub(crate) const fn new() -> Self {
        FreeList { free: null_mut(), blocks: Vec::new() }
    }

    /// Whether all are in use.
    pub(crate) const fn is_empty(&self) -> bool {
        self.free.is_null()
    }

    /// Takes the record that was given back last. `None`: all are in use.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<NonNull<T>> {
        let record = NonNull::new(self.free)?;
        // SAFETY: a record on the free list is ours alone, its link written when it was put there.
        self.free = unsafe { link(record.as_ptr()).read() };
        Some(record)
    }

    /// Puts a record back.
    ///
    /// # Safety
    /// It was taken from here, and nobody uses it any more.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, record: *mut T) {
        // SAFETY: taken from here and used by nobody any more, as the caller says: the link is the list's (`Linked`).
        unsafe { link(record).write(self.free) };
        self.free = record;
    }

    /// Takes up new records; `place` sees each where it will stay.
    #[cold]
    pub(crate) fn add(&mut self, records: Vec<T>, mut place: impl FnMut(NonNull<T>)) {
        let block = Box::into_raw(records.into_boxed_slice());
        for index in 0..block.len() {
            // SAFETY: within the block just made.
            let record = unsafe { NonNull::new_unchecked(block.cast::<T>().add(index)) };
            place(record);
            // SAFETY: ours, and nobody has it yet.
            unsafe { self.give_back(record.as_ptr()) };
        }
        self.blocks.push(block);
    }

    /// Blocks taken up so far.
    #[cfg(test)]
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }
}

impl<T: Linked> Drop for FreeList<T> {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: made by `into_raw` in `add`. A free list goes when its port is closed: no work request names a
            // record.
            drop(unsafe { Box::from_raw(block) });
        }
    }
}

/// Where the link of a record is.
#[inline]
fn link<T: Linked>(record: *mut T) -> *mut *mut T {
    record.wrapping_byte_add(T::NEXT).cast()
}

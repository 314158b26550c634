// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of the OTF2 library: one chunk for each location, written to the file whenever it is full. By itself the
//! library keeps up to 128 MiB of each location before it writes. A second chunk for events is refused, which makes the
//! library flush; definitions get all the chunks that they ask for.
//!
//! Called by the library, in the thread that writes. Path: pending. Rule of the blocks: B1: the library passes a slot
//! of its own that is null at first, keeps the value stored there, and passes it to `free_all` with `is_final` once,
//! after which it uses neither the slot nor the chunks. Tests: export/tests/otf2.rs, with several chunks.

use std::ffi::c_void;
use std::ptr;

use super::symbols::{FlushCallbacks, MemoryCallbacks};

const DO_FLUSH: u8 = 1;
const EVENTS: u8 = 3;

/// A full buffer always goes to its file. The flush has no record, because its time is not the job's.
pub(super) static FLUSH: FlushCallbacks = FlushCallbacks { before: Some(flush), after: None };
pub(super) static MEMORY: MemoryCallbacks = MemoryCallbacks { allocate, free_all };

extern "C" fn flush(_: *mut c_void, _: u8, _: u64, _: *mut c_void, _: bool) -> u8 {
    DO_FLUSH
}

/// The chunks of a buffer; the library uses the first `used`.
#[derive(Default)]
struct Chunks {
    all: Vec<Vec<u64>>,
    used: usize,
}

impl Chunks {
    fn take(&mut self, file: u8, bytes: u64) -> *mut c_void {
        if file == EVENTS && self.used == 1 {
            return ptr::null_mut();
        }
        if self.used == self.all.len() {
            self.all.push(vec![0; (bytes as usize).div_ceil(size_of::<u64>())]);
        }
        self.used += 1;
        self.all[self.used - 1].as_mut_ptr().cast()
    }
}

extern "C" fn allocate(_: *mut c_void, file: u8, _: u64, slot: *mut *mut c_void, bytes: u64) -> *mut c_void {
    // SAFETY: B1: the slot is valid for the call.
    let mut chunks = unsafe { *slot }.cast::<Chunks>();
    if chunks.is_null() {
        chunks = Box::into_raw(Box::default());
        // SAFETY: B1: the slot is valid, and the library keeps its value for `free_all`.
        unsafe { *slot = chunks.cast() };
    }
    // SAFETY: B1: `chunks` was made above or in an earlier call, and one thread writes.
    unsafe { &mut *chunks }.take(file, bytes)
}

extern "C" fn free_all(_: *mut c_void, _: u8, _: u64, slot: *mut *mut c_void, is_final: bool) {
    // SAFETY: B1: the slot is valid for the call.
    let chunks = unsafe { *slot }.cast::<Chunks>();
    if chunks.is_null() {
        return;
    }
    // SAFETY: B1: `allocate` made it, and one thread writes.
    unsafe { &mut *chunks }.used = 0;
    if is_final {
        // SAFETY: B1: the library does not use it after this.
        unsafe { *slot = ptr::null_mut() };
        // SAFETY: B1: made by `Box::into_raw`, and taken out of the slot.
        drop(unsafe { Box::from_raw(chunks) });
    }
}

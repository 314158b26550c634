// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send or a receive of a test: its request, and the program's buffer. The test, like the PML, accesses the buffer by
//! raw pointers only.
//!
//! When a finished operation is dropped, its buffer is overwritten, as a program may do. Called by the other tests of
//! this folder. Threads: the test's.

use std::ptr::NonNull;

use super::super::request::Request;

/// Initial value of each byte of a receive buffer.
pub(super) const EMPTY: u8 = 0xee;
/// Number of bytes behind a receive buffer that no message may change.
pub(super) const GUARD: usize = 8;

/// Bytes of a program's buffer.
pub(super) struct Bytes(NonNull<[u8]>);

impl Bytes {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Bytes(NonNull::from(Box::leak(bytes.into_boxed_slice())))
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    pub(super) fn copy(&self) -> Vec<u8> {
        let mut copy = vec![0; self.0.len()];
        // SAFETY: both have `len` bytes; the test has one thread, so no other thread writes them.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(self.start(), copy.len()) };
        copy
    }

    /// Overwrites the bytes, as a program may do once its operation is finished.
    fn spoil(&self) {
        // SAFETY: P2: the operation is finished, so only the test uses the `len` bytes.
        unsafe { self.start().write_bytes(0xaa, self.0.len()) };
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: `new` leaked the box, and `drop` runs once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A send or a receive that was begun.
pub(super) struct Operation {
    pub(super) request: NonNull<Request>,
    pub(super) bytes: Bytes,
}

/// How a receive ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) source: i32,
    pub(super) tag: i32,
    pub(super) length: usize,
    pub(super) error: i32,
    pub(super) is_cancelled: bool,
}

impl Operation {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Operation { request: NonNull::from(Box::leak(Box::new(Request::unused()))), bytes: Bytes::new(bytes) }
    }

    pub(super) fn is_finished(&self) -> bool {
        // SAFETY: P1: the request lives until the operation is dropped.
        unsafe { self.request.as_ref() }.is_finished()
    }

    /// Status of the finished receive.
    pub(super) fn status(&self) -> Status {
        // SAFETY: P1: the request is finished, so the PML no longer refers to it.
        let status = unsafe { &(*self.request.as_ptr()).base().req_status };
        let (source, tag, error, is_cancelled) =
            (status.MPI_SOURCE, status.MPI_TAG, status.MPI_ERROR, status._cancelled != 0);
        Status { source, tag, length: status._ucount, error, is_cancelled }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // After a failed assertion the PML may still refer to the request, so it is leaked.
        if self.is_finished() {
            self.bytes.spoil();
            // SAFETY: P1: `new` leaked the box, and the request is finished, so the PML no longer refers to it.
            drop(unsafe { Box::from_raw(self.request.as_ptr()) });
        } else {
            assert!(std::thread::panicking(), "an operation ends before it is forgotten");
        }
    }
}

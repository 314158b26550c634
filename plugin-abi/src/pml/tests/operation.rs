// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send or a receive of a test: its request, and the buffer of the program, which is reached by raw pointers alone, as
//! the PML reaches it.
//!
//! When an operation is done the program uses its buffer for something else. Threads: the test's.

use std::ptr::NonNull;

use super::super::request::Request;

/// What a buffer for a message has before, and how many bytes follow it that no message is to touch.
pub(super) const EMPTY: u8 = 0xee;
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

    /// What is there.
    pub(super) fn copy(&self) -> Vec<u8> {
        let mut copy = vec![0; self.0.len()];
        // SAFETY: as many bytes, which nobody writes meanwhile: there is one thread.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(self.start(), copy.len()) };
        copy
    }

    /// The program uses them for something else.
    fn spoil(&self) {
        // SAFETY: as many bytes, which nobody else uses now.
        unsafe { self.start().write_bytes(0xaa, self.0.len()) };
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, once.
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

    /// Whether it is done.
    pub(super) fn is_finished(&self) -> bool {
        // SAFETY: P1: it lives as long as this.
        unsafe { self.request.as_ref() }.is_finished()
    }

    /// How it ended.
    pub(super) fn status(&self) -> Status {
        // SAFETY: P1: finished, so this call's own.
        let status = unsafe { &(*self.request.as_ptr()).base().req_status };
        let (source, tag, error, is_cancelled) =
            (status.MPI_SOURCE, status.MPI_TAG, status.MPI_ERROR, status._cancelled != 0);
        Status { source, tag, length: status._ucount, error, is_cancelled }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // What failed may be named still.
        if self.is_finished() {
            self.bytes.spoil();
            // SAFETY: leaked by `new`, once; finished, so that nobody names it.
            drop(unsafe { Box::from_raw(self.request.as_ptr()) });
        } else {
            assert!(std::thread::panicking(), "an operation ends before it is forgotten");
        }
    }
}

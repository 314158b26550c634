// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send or a receive of a test: its request, and the program's buffer. The test, like the PML, accesses the buffer by
//! raw pointers only.
//!
//! The test finishes an operation as its owner does: a blocking call gives the request back, a program frees it. Then
//! the test overwrites the buffer, as a program may do.

use std::mem::{forget, replace};
use std::ptr::NonNull;

use super::super::instance::{OF_TEST, Pml};
use super::super::module::persistent::COMPLETED;
use super::super::request::{Handle, Owner, Request, Transfer};
use super::libmpi::{BLOCK, JOB_HAS_ENDED, STRIDE};
use ibex_ffi::openmpi::sys;

/// Initial value of each byte of a receive buffer, and of the gaps of a send buffer.
const EMPTY: u8 = 0xee;
/// Number of bytes behind the data that no message may change.
const GUARD: usize = 8;

#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub(super) owner: Owner,
    pub(super) is_persistent: bool,
    pub(super) has_gaps: bool,
}

impl How {
    pub(super) const CALL: How = How { owner: Owner::Call, is_persistent: false, has_gaps: false };
    pub(super) const NONBLOCKING: How = How { owner: Owner::Mpi, ..How::CALL };
}

pub(super) struct Bytes(NonNull<[u8]>);

/// Returns a buffer for `room` bytes of data that begins with `data`.
pub(super) fn laid_out(data: &[u8], room: usize, has_gaps: bool) -> Vec<u8> {
    if !has_gaps {
        return [data, &vec![EMPTY; room - data.len() + GUARD]].concat();
    }
    let mut bytes = vec![EMPTY; room / BLOCK * STRIDE + GUARD];
    for (block, data) in data.chunks(BLOCK).enumerate() {
        bytes[block * STRIDE..][..data.len()].copy_from_slice(data);
    }
    bytes
}

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

    /// Overwrites the bytes, as a program may do while no operation uses them.
    pub(super) fn write(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.0.len());
        // SAFETY: P2: no operation is in progress, so only the test uses the `len` bytes.
        unsafe { self.start().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.write(&vec![0xaa; self.0.len()]);
        // SAFETY: `new` leaked the box, and `drop` runs once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

pub(super) struct Operation {
    pml: &'static Pml,
    pub(super) request: Handle,
    pub(super) bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) source: i32,
    pub(super) tag: i32,
    pub(super) length: usize,
    pub(super) error: i32,
    pub(super) is_cancelled: bool,
}

impl Operation {
    pub(super) fn new(pml: &'static Pml, request: Handle, bytes: Bytes) -> Self {
        Operation { pml, request, bytes }
    }

    /// Looks at the request, or changes it.
    fn with<T>(&self, look: impl FnOnce(&mut Request) -> T) -> T {
        look(self.pml.enter().expect("nobody is inside").requests.get(self.request))
    }

    pub(super) fn is_finished(&self) -> bool {
        self.with(|request| {
            let is_call = request.shell.owner.is_call();
            if is_call { request.is_finished() } else { request.base().req_complete.addr() == COMPLETED }
        })
    }

    pub(super) fn is_inactive(&self) -> bool {
        self.with(|request| request.base().req_state == sys::OMPI_REQUEST_INACTIVE)
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.with(|request| !matches!(request.core.transfer, Transfer::None))
    }

    pub(super) fn status(&self) -> Status {
        self.with(|request| {
            let status = &request.base().req_status;
            let (source, tag, error, is_cancelled) =
                (status.MPI_SOURCE, status.MPI_TAG, status.MPI_ERROR, status._cancelled != 0);
            Status { source, tag, length: status._ucount, error, is_cancelled }
        })
    }

    /// Makes a finished persistent request inactive, as `MPI_Wait` does.
    pub(super) fn deactivate(&self) {
        self.with(|request| request.base().req_state = sys::OMPI_REQUEST_INACTIVE);
    }

    /// Gives the request up, finished or not (`MPI_Request_free`). Returns the buffer, which an unfinished send reads.
    pub(super) fn free(mut self) -> Bytes {
        self.give_back();
        let bytes = replace(&mut self.bytes, Bytes::new(Vec::new()));
        forget(self);
        bytes
    }

    fn give_back(&mut self) {
        OF_TEST.set(Some(self.pml));
        if self.with(|request| request.shell.owner.is_call()) {
            assert!(self.is_finished(), "a blocking call ends before it is forgotten");
            let mut state = self.pml.enter().expect("nobody is inside");
            state.requests.give_back(self.request);
        } else {
            let mut raw = Request::as_raw(self.request);
            // SAFETY: M4: a live request that MPI holds, whose functions are the PML's.
            let code = unsafe { ((*raw).req_free).map(|free| free(&raw mut raw)) };
            assert!(code == Some(sys::OPAL_SUCCESS) && raw.is_null());
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // After a failed assertion, or the end of the job, the PML may still refer to the request.
        if !std::thread::panicking() && !JOB_HAS_ENDED.get() {
            assert!(self.is_finished(), "an operation ends before it is forgotten");
            self.give_back();
        }
    }
}

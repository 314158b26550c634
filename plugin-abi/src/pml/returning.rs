// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a call that the program itself has made, while a tool listens: callbacks that may do anything are called
//! there.
//!
//! The PML is called by libmpi for itself as well, in collective operations, in the making of communicators, for files
//! and windows, where a callback that communicates could do harm. What a program sends and receives itself has a tag of
//! at least 0, or any; what libmpi does has negative ones. So a blocking send or receive, a wait or a test is the
//! program's by the tags that it is of. Nothing is entered then. Grade: pending. Threads: any. Tests:
//! `hw-tests/tools/mpi_t_matching.c`.

use engine::matching::ANY_TAG;
use ibex_ffi::openmpi::sys;

use super::request::Request;
use crate::runtime::watch;

/// A blocking call of this tag is about to return.
#[inline(always)]
pub(crate) fn returns(tag: i32) {
    if watch::is_due() && is_programs(tag) {
        watch::serve();
    }
}

fn is_programs(tag: i32) -> bool {
    tag >= 0 || tag == ANY_TAG
}

/// Whether the program waits for one of these, as far as they are the PML's.
///
/// # Safety
/// P4: an array of so many requests of MPI's.
pub(crate) unsafe fn has_programs(count: usize, requests: *mut *mut sys::ompi_request_t) -> bool {
    (0..count).any(|index| {
        // SAFETY: P4: so many requests; P1: MPI has them. P3 does not cover this, as the PML is not entered; but nobody
        // writes the tag, which is that of when it was made.
        unsafe {
            let request = Request::from_raw(requests.add(index).read());
            request.is_some_and(|request| is_programs((*request.as_ptr()).tag))
        }
    })
}

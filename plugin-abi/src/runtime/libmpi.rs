// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of Open MPI's libraries that the PML calls for requests, data and communicators. Unit tests have stand-ins
//! for them (`pml/tests/libmpi.rs`), so that the PML runs without Open MPI, and under Miri. Called by the files that
//! make, convert and finish requests. Grade: the caller's. Threads: the caller's.

#[cfg(test)]
use crate::pml::tests::libmpi as libraries;
use ibex_ffi::openmpi::sys;
#[cfg(not(test))]
use sys as libraries;

#[cfg(not(test))]
pub(crate) use ibex_ffi::openmpi::variable::is_set;
#[cfg(test)]
pub(crate) use libraries::is_set;
pub(crate) use libraries::{
    ibex_comm_is_inter, ibex_comm_member, ibex_comm_peer, ibex_communicator_release, ibex_convertor_destruct,
    ibex_convertor_receive, ibex_convertor_send, ibex_message_alloc, ibex_message_null, ibex_message_return,
    ibex_references_release, ibex_request_complete, ibex_request_construct, ibex_request_fini, ibex_request_hold,
    ibex_request_null, ibex_request_persist, ibex_sendi, mca_pml_base_bsend_request_alloc_buf,
    mca_pml_base_bsend_request_free, opal_convertor_pack, opal_convertor_unpack,
};

/// Returns Open MPI's request that is always complete.
#[inline]
pub(crate) fn request_empty() -> *mut sys::ompi_request_t {
    // SAFETY: takes the address of an object that Open MPI never frees.
    unsafe { libraries::ibex_request_empty() }
}

/// Ends the job.
#[cold]
pub(crate) fn abort() {
    // SAFETY: it may be called at any time. It ends the process; a stand-in returns.
    unsafe { libraries::ibex_abort(1) };
}

/// Calls Open MPI's progress engine. Nothing is entered, so that callbacks may call the PML.
#[inline]
pub(crate) fn progress() {
    // SAFETY: any thread may call it.
    unsafe { libraries::opal_progress() };
}

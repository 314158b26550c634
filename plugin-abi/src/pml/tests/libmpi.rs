// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stand-ins for the functions of Open MPI's libraries that the PML calls (`runtime/libmpi.rs`).
//!
//! They work on Open MPI's own structures, made of zeroes, and panic where the PML breaks their rules: a request
//! completes once, an object is released as often as it was retained. A datatype with gaps has a block of [`BLOCK`]
//! bytes in each [`STRIDE`] bytes; packing splits no block. Called by the PML, `world.rs` and `operation.rs`.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};

use ibex_ffi::openmpi::blank::Blank;
use ibex_ffi::openmpi::sys::{self, ompi_communicator_t, ompi_datatype_t, ompi_message_t, ompi_request_t};
use ibex_ffi::openmpi::sys::{opal_convertor_t, opal_object_t, opal_proc_t};

use super::super::communicator::Comm;
use super::super::module::context;
use super::super::module::persistent::COMPLETED;

pub(crate) use super::shared_memory::ibex_sendi;

/// Length of a block of data with gaps, bytes. Miri is slow, and copies fewer blocks.
pub(super) const BLOCK: usize = if cfg!(miri) { 64 } else { 4 };
/// Distance between the starts of two blocks, bytes.
pub(super) const STRIDE: usize = BLOCK + 3;

thread_local! {
    /// Number of copies of buffered sends that have not been freed.
    static ATTACHED: Cell<usize> = const { Cell::new(0) };
    /// Number of the next convertors, messages and copies for which Open MPI has no memory.
    pub(super) static REFUSALS: Cell<usize> = const { Cell::new(0) };
    /// Whether a process has ended the job.
    pub(super) static JOB_HAS_ENDED: Cell<bool> = const { Cell::new(false) };
    static PROCESSES: [opal_proc_t; 8] = std::array::from_fn(|rank| {
        opal_proc_t { proc_name: sys::opal_process_name_t { jobid: 1, vpid: rank as u32 }, ..opal_proc_t::blank() }
    });
}

/// Resets the number of copies that were not freed, and returns it.
pub(super) fn take_attached() -> usize {
    ATTACHED.take()
}

fn is_refused() -> bool {
    REFUSALS.replace(REFUSALS.get().saturating_sub(1)) > 0
}

/// # Safety
/// `object` is a live object of Open MPI's, which begins with its reference count.
pub(super) unsafe fn references<T>(object: *mut T) -> *mut i32 {
    // SAFETY: M4: an `opal_object_t` stands first in a live object of Open MPI's.
    unsafe { &raw mut (*object.cast::<opal_object_t>()).obj_reference_count }
}

pub(crate) unsafe fn ibex_request_construct(
    request: *mut ompi_request_t,
    start: sys::ompi_request_start_fn_t,
    free: sys::ompi_request_free_fn_t,
    cancel: sys::ompi_request_cancel_fn_t,
) {
    // SAFETY: the PML's new request.
    let r = unsafe { &mut *request };
    (r.req_type, r.req_start, r.req_free, r.req_cancel) = (sys::OMPI_REQUEST_PML, start, free, cancel);
}

pub(crate) unsafe fn ibex_request_persist(request: *mut ompi_request_t) {
    // SAFETY: a live request of the PML's.
    let r = unsafe { &mut *request };
    (r.req_state, r.req_persistent) = (sys::OMPI_REQUEST_INACTIVE, true);
    (r.req_complete, r.req_complete_cb) = (without_provenance_mut(COMPLETED), None);
}

pub(crate) unsafe fn ibex_request_hold(
    request: *mut ompi_request_t,
    comm: *mut ompi_communicator_t,
    datatype: *mut ompi_datatype_t,
) {
    // SAFETY: a live request of the PML's, communicator and datatype.
    let r = unsafe {
        *references(comm) += 1;
        *references(datatype) += 1;
        &mut *request
    };
    (r.req_state, r.req_persistent) = (sys::OMPI_REQUEST_ACTIVE, false);
    (r.req_complete, r.req_complete_cb) = (null_mut(), None);
}

pub(crate) unsafe fn ibex_request_complete(request: *mut ompi_request_t) {
    // SAFETY: a live request of the PML's.
    let r = unsafe { &mut *request };
    assert!(r.req_complete.is_null() && r.req_state == sys::OMPI_REQUEST_ACTIVE, "a request completes once");
    r.req_complete = without_provenance_mut(COMPLETED);
}

pub(crate) unsafe fn ibex_request_fini(request: *mut ompi_request_t) {
    // SAFETY: a live request of the PML's.
    unsafe { (*request).req_state = sys::OMPI_REQUEST_INVALID };
}

/// An address that no request has: the PML only passes it on.
pub(crate) unsafe fn ibex_request_empty() -> *mut ompi_request_t {
    without_provenance_mut(COMPLETED)
}

pub(crate) unsafe fn ibex_request_null() -> *mut ompi_request_t {
    null_mut()
}

pub(crate) unsafe fn ibex_references_release(comm: *mut ompi_communicator_t, datatype: *mut ompi_datatype_t) {
    // SAFETY: live objects of the world's.
    unsafe {
        *references(datatype) -= 1;
        ibex_communicator_release(comm);
    }
}

pub(crate) unsafe fn ibex_communicator_release(comm: *mut ompi_communicator_t) {
    // SAFETY: a live communicator, which the world has leaked; it is freed with its last reference.
    unsafe {
        *references(comm) -= 1;
        if *references(comm) == 0 {
            assert_eq!(context::pml_del_comm(Comm::new(comm)), sys::OPAL_SUCCESS);
            drop(Box::from_raw(comm));
        }
    }
}

pub(crate) unsafe fn ibex_comm_is_inter(_: *const ompi_communicator_t) -> c_int {
    0
}

/// A member has the same rank in its job.
pub(crate) unsafe fn ibex_comm_member(_: *const ompi_communicator_t, _: c_int, rank: c_int) -> u64 {
    rank as u64
}

pub(crate) unsafe fn ibex_comm_peer(_: *mut ompi_communicator_t, rank: c_int) -> *mut opal_proc_t {
    PROCESSES.with(|processes| (&raw const processes[rank as usize]).cast_mut())
}

pub(crate) unsafe fn ibex_message_alloc(comm: *mut ompi_communicator_t) -> *mut ompi_message_t {
    if is_refused() {
        return null_mut();
    }
    // SAFETY: a live communicator.
    unsafe { *references(comm) += 1 };
    Box::into_raw(Box::new(ompi_message_t { comm, ..ompi_message_t::blank() }))
}

pub(crate) unsafe fn ibex_message_return(message: *mut ompi_message_t) {
    // SAFETY: `ibex_message_alloc` has leaked it, and it is returned once.
    drop(unsafe { Box::from_raw(message) });
}

pub(crate) unsafe fn ibex_message_null() -> *mut ompi_message_t {
    null_mut()
}

pub(crate) unsafe fn mca_pml_base_bsend_request_alloc_buf(length: usize) -> *mut c_void {
    if is_refused() {
        return null_mut();
    }
    ATTACHED.set(ATTACHED.get() + 1);
    // SAFETY: at least one byte.
    unsafe { libc::malloc(length) }
}

pub(crate) unsafe fn mca_pml_base_bsend_request_free(memory: *mut c_void) -> c_int {
    ATTACHED.set(ATTACHED.get() - 1);
    // SAFETY: `mca_pml_base_bsend_request_alloc_buf` allocated it, and it is freed once.
    unsafe { libc::free(memory) };
    sys::OPAL_SUCCESS
}

/// Nobody has set a variable. Open MPI's own look-up divides by the size of a table that `MPI_Init` makes.
pub(crate) const fn is_set(_: &CStr, _: Option<&CStr>, _: Option<&CStr>) -> bool {
    false
}

pub(crate) unsafe fn opal_progress() {}

pub(crate) unsafe fn ibex_abort(_: c_int) {
    JOB_HAS_ENDED.set(true);
}

pub(crate) unsafe fn ibex_convertor_receive(
    convertor: *mut opal_convertor_t,
    datatype: *const ompi_datatype_t,
    count: usize,
    buffer: *mut c_void,
) -> c_int {
    // SAFETY: storage for a convertor, and the world's datatype.
    unsafe {
        convertor.write(opal_convertor_t::blank());
        (*convertor).pDesc = &raw const (*datatype).super_;
        (*convertor).pBaseBuf = buffer.cast();
        (*convertor).local_size = count * BLOCK;
    }
    if is_refused() { sys::OPAL_ERROR } else { sys::OPAL_SUCCESS }
}

pub(crate) unsafe fn ibex_convertor_send(
    convertor: *mut opal_convertor_t,
    datatype: *const ompi_datatype_t,
    count: usize,
    buffer: *const c_void,
) -> c_int {
    // SAFETY: M4: the PML's storage for a convertor, and the world's datatype.
    unsafe { ibex_convertor_receive(convertor, datatype, count, buffer.cast_mut()) }
}

pub(crate) unsafe fn ibex_convertor_destruct(_: *mut opal_convertor_t) {}

/// Packs the next bytes of a message to a piece, or unpacks them from it. Returns their number.
///
/// # Safety
/// The PML's convertor and piece; P2: the data may be read, or written.
unsafe fn convert(convertor: *mut opal_convertor_t, piece: *mut sys::iovec, is_packing: bool) -> usize {
    // SAFETY: M4: the PML's convertor and piece.
    let (convertor, sys::iovec { iov_base, iov_len }) = unsafe { (&mut *convertor, piece.read()) };
    let (at, left) = (convertor.bConverted, convertor.local_size - convertor.bConverted);
    let is_cut = is_packing && iov_len < left;
    let end = at + if is_cut { iov_len - (at + iov_len) % BLOCK } else { iov_len.min(left) };
    while convertor.bConverted < end {
        let now = convertor.bConverted;
        let run = (BLOCK - now % BLOCK).min(end - now);
        // SAFETY: P2: the data may be read, or written; the run is within a block, and within the piece.
        unsafe {
            let data = convertor.pBaseBuf.add(now / BLOCK * STRIDE + now % BLOCK);
            let piece = iov_base.cast::<u8>().add(now - at);
            let (to, from) = if is_packing { (piece, data) } else { (data, piece) };
            to.copy_from_nonoverlapping(from, run);
        }
        convertor.bConverted += run;
    }
    end - at
}

pub(crate) unsafe fn opal_convertor_pack(
    convertor: *mut opal_convertor_t,
    piece: *mut sys::iovec,
    _: *mut u32,
    length: *mut usize,
) -> c_int {
    // SAFETY: the PML's convertor, piece and count; P2: the data may be read.
    unsafe { length.write(convert(convertor, piece, true)) };
    0
}

pub(crate) unsafe fn opal_convertor_unpack(
    convertor: *mut opal_convertor_t,
    piece: *mut sys::iovec,
    _: *mut u32,
    length: *mut usize,
) -> c_int {
    // SAFETY: the PML's convertor, piece and count; P2: the data may be written.
    unsafe { length.write(convert(convertor, piece, false)) };
    0
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI 5.0, from 5.0.0 on: BTL 3.3.0, PML 2.1.0. `release` explains this file. Same items as in `v4_1.rs`. ibex
//! uses only the part of the BTL interface that 4.1 has, too: its put, get and atomics are its own, not those of
//! `btl_base_am_rdma.c`. It sends no memory of accelerators, so `btl_accelerator_max_send_size` stays 0.

use std::ffi::c_char;

use super::Receiver;
use crate::openmpi::sys;

/// The release series.
pub const SERIES: &str = "5.0";

/// Version of the BTL interface, as the decimal digits of 3.3.0.
pub const BTL_VERSION: u32 = 330;

/// Version of the PML interface, as the decimal digits of 2.1.0. No header defines it as a number.
pub const PML_VERSION: u32 = 210;

/// Flag of a BTL whose puts are complete at the peer when reported. osc/rdma uses put and get only of such a BTL.
pub const REMOTE_COMPLETION: u32 = sys::MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION;

/// Whether osc/rdma performs the atomics of a BTL without atomics by messages of its own (`btl_base_am_rdma.c`).
pub const ATOMICS_BY_MESSAGES: bool = true;

/// Size in bytes of ob1's largest header (`mca_pml_ob1_hdr_t`): the smallest first fragment that ob1 accepts.
pub const LARGEST_OB1_HEADER: usize = 80;

const _: () = assert!(sys::BTL_VERSION == BTL_VERSION, "btl.h has the interface that this file is for");

/// Returns the number that a communicator's messages carry (`ibex_context_of`). It is the same for all members.
///
/// # Safety
/// `comm` is a live communicator whose number is set.
pub unsafe fn context(comm: *const sys::ompi_communicator_t) -> u32 {
    // SAFETY: `comm` is live, as this function requires.
    unsafe { sys::ibex_comm_context(comm) }
}

/// Makes a communicator without a parent in which only its number is set, for tests.
pub fn blank_communicator(number: u32) -> sys::ompi_communicator_t {
    // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
    let mut comm: sys::ompi_communicator_t = unsafe { std::mem::zeroed() };
    comm.c_contextid.cid_base = number.into();
    comm
}

/// Flags in the PML's module table: the PML supports communicators without a parent.
pub const PML_FLAGS: i32 = sys::MCA_PML_BASE_FLAG_SUPPORTS_EXT_CID as i32;

/// Returns the name of a process' host; null if it is unknown. Open MPI owns the text.
///
/// # Safety
/// `process` is a live process record of Open MPI.
pub(in crate::openmpi) unsafe fn host_name(process: *const sys::opal_proc_t) -> *const c_char {
    // SAFETY: Open MPI sets this function pointer at start, and never changes it.
    let Some(name) = (unsafe { (&raw const sys::opal_get_proc_hostname).read() }) else { return std::ptr::null() };
    // SAFETY: `process` is live, as this function requires.
    unsafe { name(process) }
}

pub(super) type Received = sys::mca_btl_base_receive_descriptor_t;

/// Calls the callback of a tag, if one is registered, with a received message. `sender` returns the sender's endpoint.
///
/// # Safety
/// The callback is from the table of Open MPI, which knows the module; only this call uses the message.
#[inline]
pub(super) unsafe fn call(
    callback: sys::mca_btl_active_message_callback_t,
    (btl, tag): (*mut sys::mca_btl_base_module_t, u8),
    received: *mut Received,
    sender: impl FnOnce() -> *mut sys::mca_btl_base_endpoint_t,
) {
    let Some(function) = callback.cbfunc else { return };
    // SAFETY: only this call uses the message, as this function requires.
    let of = unsafe { &mut *received };
    (of.endpoint, of.tag, of.cbdata) = (sender(), tag, callback.cbdata);
    // SAFETY: the callback is from Open MPI's table, and reads the descriptor only during this call (btl.h).
    unsafe { function(btl, received) };
}

/// Returns the function that Open MPI calls with messages for `R`.
pub fn received_by<R: Receiver>() -> sys::mca_btl_base_module_recv_cb_fn_t {
    unsafe extern "C" fn received<R: Receiver>(
        btl: *mut sys::mca_btl_base_module_t,
        descriptor: *const sys::mca_btl_base_receive_descriptor_t,
    ) {
        // SAFETY: the BTL's descriptor is valid during the call (btl.h).
        let of = unsafe { &*descriptor };
        // SAFETY: Open MPI calls this with an open BTL and the segments of a received message.
        unsafe { R::received(btl, of.tag, of.des_segments, of.des_segment_count) };
    }
    Some(received::<R>)
}

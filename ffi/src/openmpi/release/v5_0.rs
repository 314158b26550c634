// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI 5.0, from 5.0.0 on: BTL 3.3.0 and PML 2.1.0. See `release` for what this file is; `v4_1.rs` is its
//! counterpart, with the same items.
//!
//! Of the BTL interface nothing is used that 4.1 does not have: ibex has put, get and atomics of its own, so Open MPI's
//! active-message ones (`btl_base_am_rdma.c`) are not asked for, and it sends no memory of accelerators, so the slot
//! that was `btl_ft_event` (`btl_accelerator_max_send_size`) stays 0.

use std::ffi::c_char;

use super::Receiver;
use crate::openmpi::sys;

/// The release series.
pub const SERIES: &str = "5.0";

/// The version of the BTL interface, hundreds, tens and ones: 3.3.0.
pub const BTL_VERSION: u32 = 330;

/// The same of the PML interface: 2.1.0, which no header says as a number.
pub const PML_VERSION: u32 = 210;

/// The flag of a BTL whose puts are done at the peer when they are reported done: osc/rdma uses no other's put and get.
pub const REMOTE_COMPLETION: u32 = sys::MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION;

/// Whether osc/rdma does the atomics of a BTL that has none by messages of its own (`btl_base_am_rdma.c`).
pub const ATOMICS_BY_MESSAGES: bool = true;

const _: () = assert!(sys::BTL_VERSION == BTL_VERSION, "btl.h has the interface that this file is for");

/// The number that messages in a communicator carry, the same for all its members: not its place in the table of
/// communicators where it has no parent (`ibex_context_of`).
///
/// # Safety
/// A communicator that Open MPI has filled in.
#[must_use]
pub unsafe fn context(comm: *const sys::ompi_communicator_t) -> u32 {
    // SAFETY: the caller says that Open MPI has filled it in.
    unsafe { sys::ibex_comm_context(comm) }
}

/// A communicator in which nothing is set but its number, of one without a parent: for tests.
#[must_use]
pub fn blank_communicator(number: u32) -> sys::ompi_communicator_t {
    // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
    let mut comm: sys::ompi_communicator_t = unsafe { std::mem::zeroed() };
    comm.c_contextid.cid_base = number.into();
    comm
}

/// What the PML's table says of it: communicators without a parent are no difficulty.
pub const PML_FLAGS: i32 = sys::MCA_PML_BASE_FLAG_SUPPORTS_EXT_CID as i32;

/// The name of a process' host; null where it is not known. The text is Open MPI's.
///
/// # Safety
/// A live process of Open MPI's.
pub(in crate::openmpi) unsafe fn host_name(process: *const sys::opal_proc_t) -> *const c_char {
    // SAFETY: a function pointer that Open MPI sets at start and never after.
    let Some(name) = (unsafe { (&raw const sys::opal_get_proc_hostname).read() }) else { return std::ptr::null() };
    // SAFETY: the caller says that it is a live process of Open MPI's.
    unsafe { name(process) }
}

/// Whether the job is started with fault tolerance (`mpirun --with-ft ulfm`).
#[must_use]
pub fn is_fault_tolerant() -> bool {
    // SAFETY: a flag that Open MPI sets from its parameters, before components are initialised.
    unsafe { sys::ibex_is_fault_tolerant() }
}

/// What a callback is shown of a received message.
pub(super) type Received = sys::mca_btl_base_receive_descriptor_t;

/// Calls what is registered for a tag, if anything is, with a received message. `sender` is asked for the endpoint that it
/// came from where a callback is told of that.
///
/// # Safety
/// A callback of Open MPI's table, a module that it knows, and a message that stays as it is until this returns.
#[inline]
pub(super) unsafe fn call(
    callback: sys::mca_btl_active_message_callback_t,
    (btl, tag): (*mut sys::mca_btl_base_module_t, u8),
    received: *mut Received,
    sender: impl FnOnce() -> *mut sys::mca_btl_base_endpoint_t,
) {
    let Some(function) = callback.cbfunc else { return };
    // SAFETY: the caller says that the message stays as it is until this returns: nobody else uses it.
    let of = unsafe { &mut *received };
    (of.endpoint, of.tag, of.cbdata) = (sender(), tag, callback.cbdata);
    // SAFETY: the caller gives a callback of Open MPI's table; it reads the descriptor within this call only (btl.h).
    unsafe { function(btl, received) };
}

/// The function that Open MPI calls with messages for `R`.
#[must_use]
pub fn received_by<R: Receiver>() -> sys::mca_btl_base_module_recv_cb_fn_t {
    unsafe extern "C" fn received<R: Receiver>(
        btl: *mut sys::mca_btl_base_module_t,
        descriptor: *const sys::mca_btl_base_receive_descriptor_t,
    ) {
        // SAFETY: the BTL's descriptor, for the call.
        let of = unsafe { &*descriptor };
        // SAFETY: Open MPI calls this with a BTL that is open, and segments that it has received.
        unsafe { R::received(btl, of.tag, of.des_segments, of.des_segment_count) };
    }
    Some(received::<R>)
}

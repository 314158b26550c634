// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI 5.0, from 5.0.0 on: BTL 3.3.0 and PML 2.1.0. See `release` for what this file is; `v4_1.rs` is its
//! counterpart, with the same items.
//!
//! Of the BTL interface nothing is used that 4.1 does not have: ibex has put, get and atomics of its own, so Open MPI's
//! active-message ones (`btl_base_am_rdma.c`) are not asked for, and it sends no memory of accelerators, so the slot
//! that was `btl_ft_event` (`btl_accelerator_max_send_size`) stays 0.

use std::cell::UnsafeCell;
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

const _: () = assert!(sys::BTL_VERSION == BTL_VERSION, "btl.h has the interface that this file is for");

/// The number that messages in a communicator carry, the same for all its members: not its place in the table of
/// communicators where it has no parent (`ibex_context_of`).
///
/// # Safety
/// A communicator that Open MPI has filled in.
#[must_use]
pub unsafe fn context(comm: *const sys::ompi_communicator_t) -> u32 {
    // SAFETY: this function's rule.
    unsafe { sys::ibex_comm_context(comm) }
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
    // SAFETY: this function's rule.
    unsafe { name(process) }
}

/// Whether the job is started with fault tolerance (`mpirun --with-ft ulfm`).
#[must_use]
pub fn is_fault_tolerant() -> bool {
    // SAFETY: a flag that Open MPI sets from its parameters, before components are initialised.
    unsafe { sys::ibex_is_fault_tolerant() }
}

/// A received message of one segment, as the callback for its tag is shown it. Open MPI reads it within the callback,
/// through pointers to its parts. Hot. Threads: who has it shows one message at a time.
pub struct ReceiveDescriptor {
    base: UnsafeCell<sys::mca_btl_base_receive_descriptor_t>,
    /// The one segment it has.
    segment: UnsafeCell<sys::mca_btl_base_segment_t>,
}

impl ReceiveDescriptor {
    /// One that shows nothing yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "to be settled before it is of use")]
    pub fn new() -> Self {
        // SAFETY: C structures of integers and pointers, for which zero is a value.
        let (base, segment) = unsafe { std::mem::zeroed() };
        ReceiveDescriptor { base: UnsafeCell::new(base), segment: UnsafeCell::new(segment) }
    }

    /// Names its segment, once, where it will stay.
    pub fn settle(&self) {
        // SAFETY: ours alone outside of a callback.
        let base = unsafe { &mut *self.base.get() };
        base.des_segments = self.segment.get();
        base.des_segment_count = 1;
    }

    /// Describes a message of `len` bytes at `addr`. To be settled before.
    #[inline]
    pub fn describe(&self, addr: u64, len: u32) -> &Self {
        // SAFETY: ours alone outside of a callback.
        let segment = unsafe { &mut *self.segment.get() };
        segment.seg_addr.lval = addr;
        segment.seg_len = u64::from(len);
        self
    }

    /// Calls what is registered for the tag of the message that it describes, if anything is. `sender` is the endpoint
    /// it came from; null where that is not known.
    ///
    /// # Safety
    /// A module that Open MPI knows, a tag that its table has a place for, and bytes that are the message's until this
    /// returns.
    #[inline]
    pub unsafe fn show(
        &self,
        btl: *mut sys::mca_btl_base_module_t,
        tag: u8,
        sender: impl FnOnce() -> *mut sys::mca_btl_base_endpoint_t,
    ) {
        let trigger =
            (&raw const sys::mca_btl_base_active_message_trigger).cast::<sys::mca_btl_active_message_callback_t>();
        // SAFETY: this function's rule; written at start, before messages of that tag are sent.
        let callback = unsafe { trigger.add(usize::from(tag)).read() };
        let Some(function) = callback.cbfunc else {
            return;
        };
        // SAFETY: ours alone outside of a callback.
        let base = unsafe { &mut *self.base.get() };
        (base.endpoint, base.tag, base.cbdata) = (sender(), tag, callback.cbdata);
        // SAFETY: the callback registered for the tag, which reads the descriptor within this call only (btl.h).
        unsafe { function(btl, self.base.get()) };
    }
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
        // SAFETY: as Open MPI calls it.
        unsafe { R::received(btl, of.tag, of.des_segments, of.des_segment_count) };
    }
    Some(received::<R>)
}

#[cfg(test)]
pub(in crate::openmpi) fn rows() -> crate::openmpi::layout::Rows {
    crate::openmpi::layout::types! {
        mca_btl_base_receive_descriptor_t { endpoint, des_segments, des_segment_count, tag, cbdata }
    }
    .into_iter()
    .chain(crate::openmpi::layout::fields! {
        mca_btl_base_module_t { btl_accelerator_max_send_size }
        mca_pml_base_module_t { pml_revoke_comm, pml_get_transports }
        ompi_communicator_t { c_contextid, c_index }
    })
    .collect()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The differences between the release series of Open MPI: a file per series, with the same items; the build uses that
//! of the headers. Only this folder, `ffi/openmpi` and the build script depend on the series (ARCHITECTURE.md, "Release
//! series of Open MPI"). Grade: [`ReceiveDescriptor`], [`received_by`] hot; else setup. Threads: each item says.

use std::cell::UnsafeCell;

use super::sys;

#[cfg(openmpi = "4.1")]
#[path = "v4_1.rs"]
mod series;

#[cfg(openmpi = "5.0")]
#[path = "v5_0.rs"]
mod series;

pub use series::{
    ATOMICS_BY_MESSAGES, BTL_VERSION, LARGEST_OB1_HEADER, PML_FLAGS, PML_VERSION, REMOTE_COMPLETION, SERIES,
    blank_communicator, context, received_by,
};

pub(super) use series::host_name;

/// Whether the job was started with fault tolerance (`mpirun --with-ft ulfm`), which 4.1 does not have.
pub fn is_fault_tolerant() -> bool {
    // SAFETY: reads a flag that Open MPI sets from its parameters before it initialises components.
    unsafe { sys::ibex_is_fault_tolerant() }
}

/// Receives messages with a tag of ibex that arrive by one of Open MPI's own BTLs: see [`received_by`].
pub trait Receiver {
    /// Receives a message of `count` segments, which are valid during the call. Called in any thread.
    ///
    /// # Safety
    /// Only Open MPI calls it, with an open BTL and the segments of a received message.
    unsafe fn received(
        btl: *mut sys::mca_btl_base_module_t,
        tag: u8,
        segments: *const sys::mca_btl_base_segment_t,
        count: usize,
    );
}

/// An empty module table, for the functions that the PML lacks.
// SAFETY: a C structure of integers and (nullable) function pointers, for which zero is a value.
pub const PML_MODULE: sys::mca_pml_base_module_t = unsafe { std::mem::zeroed() };

/// A received message of one segment, as the argument of the callback that Open MPI has registered for its tag, which
/// reads it during the call. Its owner, plugin-abi's `runtime/progress/frame.rs`, passes one at a time.
pub struct ReceiveDescriptor {
    base: UnsafeCell<series::Received>,
    segment: UnsafeCell<sys::mca_btl_base_segment_t>,
}

impl ReceiveDescriptor {
    /// Makes a descriptor without a message.
    #[allow(clippy::new_without_default, reason = "to be settled before it is of use")]
    pub fn new() -> Self {
        // SAFETY: C structures of integers and pointers, for which zero is a value.
        let (base, segment) = unsafe { std::mem::zeroed() };
        ReceiveDescriptor { base: UnsafeCell::new(base), segment: UnsafeCell::new(segment) }
    }

    /// Stores the address of its segment. Called once, when the descriptor is where it stays.
    pub fn settle(&self) {
        // SAFETY: outside of a callback only the owner uses the descriptor.
        let base = unsafe { &mut *self.base.get() };
        base.des_segments = self.segment.get();
        base.des_segment_count = 1;
    }

    /// Describes a message of `len` bytes at `addr`. [`Self::settle`] was called before.
    #[inline]
    pub fn describe(&self, addr: u64, len: u32) -> &Self {
        // SAFETY: outside of a callback only the owner uses the descriptor.
        let segment = unsafe { &mut *self.segment.get() };
        segment.seg_addr.lval = addr;
        segment.seg_len = u64::from(len);
        self
    }

    /// Passes the message to the callback of `tag`, if there is one. `sender` returns the sender's endpoint, for 5.0.
    ///
    /// # Safety
    /// Open MPI knows the module, and its table has an entry for the tag. The bytes are the message's during the call.
    #[inline]
    pub unsafe fn show(
        &self,
        btl: *mut sys::mca_btl_base_module_t,
        tag: u8,
        sender: impl FnOnce() -> *mut sys::mca_btl_base_endpoint_t,
    ) {
        let trigger =
            (&raw const sys::mca_btl_base_active_message_trigger).cast::<sys::mca_btl_active_message_callback_t>();
        // SAFETY: the table has an entry for the tag, as this function requires, written before messages of it arrive.
        let callback = unsafe { trigger.add(usize::from(tag)).read() };
        // SAFETY: the callback is the table's, Open MPI knows the module, and only the owner uses the descriptor now.
        unsafe { series::call(callback, (btl, tag), self.base.get(), sender) };
    }
}

/// Registers a callback, which every BTL calls, for a tag that no layer of Open MPI uses. A BTL calls this when it is
/// initialised, since no BML is chosen yet that could register the callback (`ibex_bml_listen`).
///
/// # Safety
/// [`received_by`] returned the function. One thread initialises MPI, and no message of this tag was sent.
pub unsafe fn listen(tag: u8, function: sys::mca_btl_base_module_recv_cb_fn_t) {
    let trigger = (&raw mut sys::mca_btl_base_active_message_trigger).cast::<sys::mca_btl_active_message_callback_t>();
    let callback = sys::mca_btl_active_message_callback_t { cbfunc: function, cbdata: std::ptr::null_mut() };
    // SAFETY: the table has an entry for every tag, and no thread reads it yet, as this function requires.
    unsafe { trigger.add(usize::from(tag)).write(callback) };
}

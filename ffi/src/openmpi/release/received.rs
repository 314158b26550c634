// SPDX-License-Identifier: MIT OR Apache-2.0
//! A received message, as the argument of the callback that Open MPI has registered for its tag. [`Received`] and
//! [`call`] differ between series. Owned by plugin-abi's `runtime/frame.rs`. Grade: hot.

use std::cell::UnsafeCell;

use super::series::{Received, call};
use crate::openmpi::sys;

/// A received message of one segment, which Open MPI reads during the callback. Its owner passes one at a time.
pub struct ReceiveDescriptor {
    base: UnsafeCell<Received>,
    segment: UnsafeCell<sys::mca_btl_base_segment_t>,
}

impl ReceiveDescriptor {
    /// Makes a descriptor without a message.
    #[must_use]
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
        unsafe { call(callback, (btl, tag), self.base.get(), sender) };
    }
}

/// Registers a callback, which every BTL calls, for a tag that no layer of Open MPI uses. For a BTL that is being
/// initialised: no BML is chosen yet that could register it (`ibex_bml_listen`).
///
/// # Safety
/// [`super::received_by`] returned the function. One thread initialises MPI, and no message of this tag was sent.
pub unsafe fn listen(tag: u8, function: sys::mca_btl_base_module_recv_cb_fn_t) {
    let trigger = (&raw mut sys::mca_btl_base_active_message_trigger).cast::<sys::mca_btl_active_message_callback_t>();
    let callback = sys::mca_btl_active_message_callback_t { cbfunc: function, cbdata: std::ptr::null_mut() };
    // SAFETY: the table has an entry for every tag, and no thread reads it yet, as this function requires.
    unsafe { trigger.add(usize::from(tag)).write(callback) };
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A received message, as the argument of the callback that Open MPI has registered for its tag.
//!
//! The arguments and the call differ between series: [`Received`] and [`call`]. Owned by plugin-abi's
//! `runtime/frame.rs`. Grade: hot. Threads: its owner passes one message at a time.

use std::cell::UnsafeCell;

use super::series::{Received, call};
use crate::openmpi::sys;

/// A received message of one segment, as the callback for its tag is shown it. Open MPI reads it within the callback,
/// through pointers to its parts. Hot. Threads: who has it shows one message at a time.
pub struct ReceiveDescriptor {
    base: UnsafeCell<Received>,
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

    /// Calls what is registered for the tag of the message that it describes, if anything is. `sender` is asked for the
    /// endpoint it came from where a callback is told of that.
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
        // SAFETY: the table has a place for it, as the caller says; written at start, before messages of it come.
        let callback = unsafe { trigger.add(usize::from(tag)).read() };
        // SAFETY: the table's callback, the caller's module; outside of a callback the descriptor is ours alone.
        unsafe { call(callback, (btl, tag), self.base.get(), sender) };
    }
}

/// Registers a callback for a tag that no layer of Open MPI uses: every BTL calls it. For a BTL that initialises, when no
/// BML is chosen yet that could be asked (`ibex_bml_listen`).
///
/// # Safety
/// A function that [`super::received_by`] gave; while MPI is initialised, in one thread, before a message of that tag is
/// sent.
pub unsafe fn listen(tag: u8, function: sys::mca_btl_base_module_recv_cb_fn_t) {
    let trigger = (&raw mut sys::mca_btl_base_active_message_trigger).cast::<sys::mca_btl_active_message_callback_t>();
    let callback = sys::mca_btl_active_message_callback_t { cbfunc: function, cbdata: std::ptr::null_mut() };
    // SAFETY: before anybody reads it, as the caller says; the table has a place for each tag of Open MPI's.
    unsafe { trigger.add(usize::from(tag)).write(callback) };
}

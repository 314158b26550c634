// SPDX-License-Identifier: MIT OR Apache-2.0
//! The differences between the release series of Open MPI: a file per series, with the same items; the build uses that
//! of the headers. Only this folder, `ffi/openmpi` and the build script depend on the series (ARCHITECTURE.md, "Release
//! series of Open MPI"). Grade: [`ReceiveDescriptor`], [`received_by`] hot; else setup. Threads: each item says.

use super::sys;

#[cfg(openmpi = "4.1")]
#[path = "release/v4_1.rs"]
mod series;

#[cfg(openmpi = "5.0")]
#[path = "release/v5_0.rs"]
mod series;

mod received;

pub use received::{ReceiveDescriptor, listen};
pub use series::{
    ATOMICS_BY_MESSAGES, BTL_VERSION, LARGEST_OB1_HEADER, PML_FLAGS, PML_VERSION, REMOTE_COMPLETION, SERIES,
    blank_communicator, context, is_fault_tolerant, received_by,
};

pub(super) use series::host_name;

/// Receives messages with a tag of ibex that arrive by a BTL of Open MPI's: see [`received_by`].
pub trait Receiver {
    /// A message has come, in so many segments; they are the BTL's when this returns. Any thread.
    ///
    /// # Safety
    /// Open MPI calls it: a BTL that is open, and segments with bytes that it has received.
    unsafe fn received(
        btl: *mut sys::mca_btl_base_module_t,
        tag: u8,
        segments: *const sys::mca_btl_base_segment_t,
        count: usize,
    );
}

/// A PML's table of functions with nothing in it: what the PML does not name stays so.
// SAFETY: a C structure of integers and (nullable) function pointers, for which zero is a value.
pub const PML_MODULE: sys::mca_pml_base_module_t = unsafe { std::mem::zeroed() };

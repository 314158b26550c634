// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversions between the kernel's structures and those of verbs, which librdmacm asks for. They are reached only
//! after the kernel's connection manager has answered, and the emulated adapter has no kernel part: they do nothing.
//! Grade: setup. Threads: any.

use std::ffi::c_void;

/// Called by librdmacm only.
pub(crate) extern "C" fn ibv_copy_ah_attr_from_kern(_to: *mut c_void, _from: *mut c_void) {}

/// Called by librdmacm only.
pub(crate) extern "C" fn ibv_copy_qp_attr_from_kern(_to: *mut c_void, _from: *mut c_void) {}

/// Called by librdmacm only.
pub(crate) extern "C" fn ibv_copy_path_rec_from_kern(_to: *mut c_void, _from: *mut c_void) {}

/// Called by librdmacm only.
pub(crate) extern "C" fn ibv_copy_path_rec_to_kern(_to: *mut c_void, _from: *mut c_void) {}

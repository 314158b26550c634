// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands behind an exported symbol that is not emulated. One function for each way in which verbs report an
//! error, whatever the arguments were: the calling conventions of C on 64-bit Linux let a callee ignore them. Grade:
//! setup. Threads: any.

use std::ffi::{c_int, c_void};

use crate::verbs::error::set_errno;

/// For verbs that return an error number: `EOPNOTSUPP`, also in `errno`.
pub(crate) extern "C" fn not_supported() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// For verbs that return an object: null, with `errno` `EOPNOTSUPP`.
pub(crate) extern "C" fn no_object() -> *mut c_void {
    set_errno(libc::EOPNOTSUPP);
    std::ptr::null_mut()
}

/// For verbs that return a GUID, or promise nothing: zero.
pub(crate) extern "C" fn zero() -> u64 {
    0
}

/// For functions that return a length or -1: -1, with `errno` `ENOENT`.
pub(crate) extern "C" fn minus_one() -> c_int {
    set_errno(libc::ENOENT);
    -1
}

/// For functions that return nothing, and the conversions between the kernel's structures and those of verbs: librdmacm
/// asks for these only once the kernel's connection manager has answered, which knows no emulated adapter.
pub(crate) extern "C" fn nothing() {}

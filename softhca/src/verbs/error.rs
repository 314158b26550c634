// SPDX-License-Identifier: MIT OR Apache-2.0
//! How verbs report errors: by an error number as the return value, or by null or -1 and `errno`.
//! Grade: called on failure only. Threads: any; `errno` is the calling thread's.

use std::ffi::c_int;

use crate::engine::Result;

#[cold]
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: libc gives the calling thread's own errno, valid while the thread runs.
    unsafe { *libc::__errno_location() = number };
}

/// For verbs that return 0 or an error number; `errno` is set too, as the real library does.
pub(crate) fn number(result: Result<()>) -> c_int {
    result.inspect_err(|errno| set_errno(errno.0)).map_or_else(|errno| errno.0, |()| 0)
}

/// For verbs that return a pointer: null with `errno`, which an error without a number leaves as it was.
pub(crate) fn pointer<T>(result: Result<*mut T>) -> *mut T {
    result.unwrap_or_else(|errno| {
        if errno.0 != 0 {
            set_errno(errno.0);
        }
        std::ptr::null_mut()
    })
}

/// For verbs that return 0 or -1 with `errno`.
pub(crate) fn minus_one(result: Result<()>) -> c_int {
    if number(result) == 0 { 0 } else { -1 }
}

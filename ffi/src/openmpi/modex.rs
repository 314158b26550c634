// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modex: bytes that each process publishes at start and every other one may fetch. Called by plugin-abi's `modex`.
//! The bytes, not the key, carry a version, so that different builds of ibex see each other. Grade: setup ([`fetch`]
//! may wait for another host's data). Threads: any, `PMIx` takes its own lock.

use std::ffi::CStr;

use super::process::Name;
use super::sys;

/// Publishes `bytes` under `key` to every process of the job.
///
/// # Errors
/// The OPAL code (negative) with which `PMIx` refused.
pub fn publish(key: &CStr, bytes: &[u8]) -> Result<(), i32> {
    // SAFETY: the key and the bytes are only read, and copied before the call returns.
    match unsafe { sys::ibex_modex_put(key.as_ptr(), bytes.as_ptr().cast(), bytes.len()) } {
        sys::OPAL_SUCCESS => Ok(()),
        code => Err(code),
    }
}

/// What `name` published under `key`, or `None` where it published nothing.
#[must_use]
pub fn fetch(key: &CStr, name: Name) -> Option<Vec<u8>> {
    let name = name.to_c();
    let mut bytes = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: all four pointers are to live locals; the callee writes the last two.
    let code = unsafe { sys::ibex_modex_get(key.as_ptr(), &raw const name, &raw mut bytes, &raw mut size) };
    if code != sys::OPAL_SUCCESS || bytes.is_null() {
        return None;
    }
    // SAFETY: on success `bytes` is a malloc()ed block of `size` bytes that is now ours alone.
    let copy = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) }.to_vec();
    // SAFETY: a block of malloc()'s that is ours alone, and not used after.
    unsafe { libc::free(bytes) };
    Some(copy)
}

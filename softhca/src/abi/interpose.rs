// SPDX-License-Identifier: MIT OR Apache-2.0
//! `access` and `stat`, for programs that look for an adapter's device file before they call verbs: UCX takes a device
//! only if `/dev/infiniband/<dev_name>` is a character device that it may read and write. They take effect when the
//! library is preloaded (`softhca run` does that); all other paths go straight to the kernel. The symbols carry no
//! version: with one of libibverbs they would not replace libc's. Grade: setup. Threads: any.

use std::ffi::{CStr, c_char, c_int, c_long};

use crate::verbs::device::list::DEV_NAME_PREFIX;

/// # Safety
/// `path` is null or a C string.
unsafe fn is_emulated(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: not null, and a C string by the caller's word.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    path.strip_prefix(b"/dev/infiniband/").is_some_and(|name| name.starts_with(DEV_NAME_PREFIX.as_bytes()))
}

/// `access(2)`: an emulated device file may be read and written.
/// # Safety
/// As for `access(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller gives a C string, as `access` demands.
    if unsafe { is_emulated(path) } {
        return 0;
    }
    // SAFETY: the system call that `access` is; the kernel checks the pointer.
    let result = unsafe { libc::syscall(libc::SYS_faccessat, c_long::from(libc::AT_FDCWD), path, c_long::from(mode)) };
    result as c_int
}

/// `stat(2)`: an emulated device file is a character device, that of `/dev/null`.
/// # Safety
/// As for `stat(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stat(path: *const c_char, buffer: *mut libc::stat) -> c_int {
    // SAFETY: the caller gives a C string, as `stat` demands.
    let path = if unsafe { is_emulated(path) } { c"/dev/null".as_ptr() } else { path };
    // SAFETY: the system call that `stat` is; on 64-bit Linux the kernel's structure is libc's; it checks the pointers.
    let result =
        unsafe { libc::syscall(libc::SYS_newfstatat, c_long::from(libc::AT_FDCWD), path, buffer, c_long::from(0)) };
    result as c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_device_file_is_a_character_device_and_other_paths_are_themselves() {
        // SAFETY: an all-zero stat is a value of its type.
        let mut answer: libc::stat = unsafe { std::mem::zeroed() };
        let device = std::ffi::CString::new(format!("/dev/infiniband/{DEV_NAME_PREFIX}0")).unwrap();
        // SAFETY: C strings and a buffer of the right type.
        unsafe {
            assert_eq!(stat(device.as_ptr(), &raw mut answer), 0);
            assert_eq!(answer.st_mode & libc::S_IFMT, libc::S_IFCHR);
            assert_eq!(access(device.as_ptr(), libc::R_OK | libc::W_OK), 0);
            assert_eq!(stat(c"/proc/self".as_ptr(), &raw mut answer), 0);
            assert_eq!(answer.st_mode & libc::S_IFMT, libc::S_IFDIR);
            assert_eq!(access(c"/dev/infiniband/no-such-device".as_ptr(), libc::R_OK), -1);
        }
    }
}

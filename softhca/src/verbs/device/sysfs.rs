// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_get_sysfs_path` and `ibv_read_sysfs_file`: where the emulated sysfs is (`engine::fabric::sysfs`), and the
//! reading of a file below any such path. Grade: setup. Threads: any.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use super::list::library;
use crate::engine::fabric::sysfs::root;
use crate::verbs::error::set_errno;

/// The root of the emulated tree; `/sys` where the fabric cannot be joined. The string lives for ever.
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| {
        library()
            .ok()
            .and_then(|library| CString::new(root(library.folder()).as_os_str().as_bytes()).ok())
            .unwrap_or_else(|| c"/sys".to_owned())
    })
    .as_ptr()
}

/// Reads `directory/file` into `buffer`, without the newline at its end. Returns the length, or -1 with `errno`.
///
/// # Safety
/// `directory` and `file` are C strings; `buffer` is writable for `size` bytes.
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: C strings by the caller's word.
    let (directory, file) = unsafe { (CStr::from_ptr(directory), CStr::from_ptr(file)) };
    let path =
        Path::new(std::ffi::OsStr::from_bytes(directory.to_bytes())).join(std::ffi::OsStr::from_bytes(file.to_bytes()));
    let mut content = Vec::new();
    if let Err(error) = fs::File::open(path).and_then(|file| file.take(size as u64).read_to_end(&mut content)) {
        set_errno(error.raw_os_error().unwrap_or(libc::EIO));
        return -1;
    }
    if content.last() == Some(&b'\n') {
        content.pop();
    } else if content.len() == size {
        content.pop(); // the terminating zero needs a place
    }
    if size > 0 {
        // SAFETY: at most `size - 1` bytes of content and the zero; the caller's buffer has `size`.
        unsafe {
            std::ptr::copy_nonoverlapping(content.as_ptr(), buffer.cast::<u8>(), content.len());
            buffer.add(content.len()).write(0);
        }
    }
    content.len() as c_int
}

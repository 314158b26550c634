// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices before and after they are opened: the list of them (`list`), their attributes (`attr`) and ports (`port`),
//! and what of them stands in sysfs (`sysfs`).

pub(crate) mod attr;
pub(crate) mod list;
pub(crate) mod port;
pub(crate) mod sysfs;

/// Writes a structure into a place of `size` bytes: as much of it as there is room for, and zeros behind it, where a newer
/// program's structure has further fields.
///
/// # Safety
/// `out` is writable for `size` bytes.
unsafe fn write_sized<T>(out: *mut u8, size: usize, what: &T) {
    // SAFETY: at most `size` bytes of `out`, which the caller says are writable.
    unsafe {
        out.write_bytes(0, size);
        std::ptr::from_ref(what).cast::<u8>().copy_to_nonoverlapping(out, size.min(size_of::<T>()));
    }
}

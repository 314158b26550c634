// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one file that all processes of a fabric map whole, and the words that every structure in it is made of. Owns the
//! mapping, which stays until the process ends, so references into it are `'static`. Called by: every shared structure.
//! Grade: setup, but for the words, `at` and `bytes`, which are hot. Thread rule: any thread of any process. Rules:
//! (M1) A structure of the region consists of words only, so references to it may be shared.
//! (M2) Plain bytes (requests, payloads) are read and written through raw pointers only, by the thread to which the
//! structure's own rule gives them: a lock, or an index published after the write.
//! (M3) Offsets between processes come from this engine alone: the folder is private to the user, who can break only
//! his own fabric there. Whatever an offset is, `at`, `bytes` and `clear` reach nothing outside of the mapping.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::engine::memory::layout::REGION_BYTES;
use crate::engine::{Errno, Result};

/// A structure that may lie in the region.
/// # Safety
/// `repr(C)`, made of words and of such structures only (M1), valid when all zero, at most 64-byte aligned.
pub(crate) unsafe trait Shared {}

// SAFETY: both are one atomic word.
unsafe impl Shared for W32 {}
// SAFETY: one atomic word.
unsafe impl Shared for W64 {}

pub(crate) struct Region {
    base: *mut u8,
    file: File,
    /// Excludes other threads, as the kernel's lock of the file excludes other processes.
    gate: Mutex<()>,
}

// SAFETY: the mapping is shared among processes anyway; what lies in it is words, or guarded as M2 says.
unsafe impl Send for Region {}
// SAFETY: the mapping is shared among processes anyway; what lies in it is words, or guarded as M2 says.
unsafe impl Sync for Region {}

impl Region {
    /// Opens or makes the file in `folder` and maps it.
    pub(crate) fn open(folder: &Path) -> Result<Region> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join("region"))?;
        match file.metadata()?.len() {
            0 => file.set_len(REGION_BYTES)?,
            REGION_BYTES => {}
            // Access behind the end of the file would kill the process.
            _ => return Err(Errno(libc::EPROTO)),
        }
        Ok(Region { base: map(&file, REGION_BYTES as usize)?.cast(), file, gate: Mutex::new(()) })
    }

    /// Runs `f` while no other process joins: under the kernel's lock of the file, which the dead do not hold.
    pub(crate) fn exclusively<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        while let Err(error) = self.file.lock() {
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error.into());
            }
        }
        let result = f();
        self.file.unlock()?;
        result
    }

    #[inline]
    pub(crate) fn at<T: Shared>(&self, offset: u64) -> &'static T {
        let last = const { REGION_BYTES - size_of::<T>() as u64 };
        assert!(offset <= last && offset.is_multiple_of(align_of::<T>() as u64), "{offset:#x} is not in the region");
        // SAFETY: inside the mapping, which stays, and aligned; words may have any content and be shared (M1).
        unsafe { &*self.base.add(offset as usize).cast::<T>() }
    }

    /// Plain bytes at `offset` (rule M2).
    #[inline]
    pub(crate) fn bytes(&self, offset: u64) -> *mut u8 {
        assert!(offset < REGION_BYTES, "{offset:#x} is not in the region");
        // SAFETY: inside the mapping.
        unsafe { self.base.add(offset as usize) }
    }

    pub(crate) fn offset_of<T: Shared>(&self, object: &T) -> u64 {
        std::ptr::from_ref(object) as u64 - self.base as u64
    }

    /// Gives pages back and makes the bytes zero.
    /// # Safety
    /// The caller owns the bytes (M2): nobody else reads or writes them meanwhile.
    pub(crate) unsafe fn clear(&self, offset: u64, len: u64) {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= REGION_BYTES);
        assert!(is_inside, "{len:#x} bytes at {offset:#x} are not in the region");
        let zero = |(from, to): (u64, u64)| {
            if from < to {
                // SAFETY: a part of the range, which is inside the mapping, and which the caller owns (M2).
                unsafe { std::ptr::write_bytes(self.bytes(from), 0, (to - from) as usize) };
            }
        };
        let first = offset.next_multiple_of(4096);
        let last = (offset + len) & !4095;
        if len >= 64 << 10 && last > first {
            // SAFETY: the range lies inside the mapping and holds an object that its owner is giving back.
            let done = unsafe { libc::madvise(self.bytes(first).cast(), (last - first) as usize, libc::MADV_REMOVE) };
            if done == 0 {
                return [(offset, first), (last, offset + len)].into_iter().for_each(zero);
            }
        }
        zero((offset, offset + len));
    }
}

macro_rules! word {
    ($name:ident, $atomic:ident, $plain:ident) => {
        #[repr(transparent)]
        #[derive(Default)]
        pub(crate) struct $name($atomic);

        #[allow(dead_code, reason = "both widths offer the same calls")]
        impl $name {
            pub(crate) fn get(&self) -> $plain {
                self.0.load(Ordering::Relaxed)
            }
            pub(crate) fn set(&self, value: $plain) {
                self.0.store(value, Ordering::Relaxed);
            }
            pub(crate) fn seen(&self) -> $plain {
                self.0.load(Ordering::Acquire)
            }
            pub(crate) fn publish(&self, value: $plain) {
                self.0.store(value, Ordering::Release);
            }
            pub(crate) fn add(&self, value: $plain) -> $plain {
                self.0.fetch_add(value, Ordering::AcqRel)
            }
            pub(crate) fn replace(&self, old: $plain, new: $plain) -> bool {
                self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            }
            pub(crate) fn raise(&self, least: $plain) {
                self.0.fetch_max(least, Ordering::AcqRel);
            }
            pub(crate) fn swap(&self, value: $plain) -> $plain {
                self.0.swap(value, Ordering::AcqRel)
            }
        }
    };
}

word!(W32, AtomicU32, u32);
word!(W64, AtomicU64, u64);

/// Maps the first `bytes` of a file, shared, at an address that nothing else has. Nobody unmaps it.
pub(crate) fn map(file: &File, bytes: usize) -> std::io::Result<*mut libc::c_void> {
    let (rights, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, how, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(base) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A region of a test, whose file is gone.
    pub(in crate::engine::memory) fn region(name: &str) -> Region {
        let folder = std::env::temp_dir().join(format!("softhca-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let region = Region::open(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        region
    }

    #[test]
    fn an_offset_outside_of_the_region_reaches_nothing() {
        let region = region("offsets");
        for offset in [REGION_BYTES, REGION_BYTES - 4, u64::MAX, u64::MAX - 7, 4] {
            let reached = catch_unwind(AssertUnwindSafe(|| region.at::<W64>(offset).get()));
            assert!(reached.is_err(), "{offset:#x}");
        }
        assert!(catch_unwind(AssertUnwindSafe(|| region.bytes(REGION_BYTES))).is_err());
        for (offset, len) in [(REGION_BYTES, 1), (REGION_BYTES - 64, 65), (u64::MAX, 2), (64, u64::MAX)] {
            // SAFETY: nobody uses the region.
            let cleared = catch_unwind(AssertUnwindSafe(|| unsafe { region.clear(offset, len) }));
            assert!(cleared.is_err(), "{len:#x} bytes at {offset:#x}");
        }
    }

    #[test]
    fn cleared_memory_is_zero_and_the_memory_beside_it_stays() {
        let region = region("cleared");
        for word in 0..512 {
            region.at::<W64>(word * 8).set(word + 1);
        }
        // SAFETY: nobody else uses the region.
        unsafe { region.clear(64, 128) };
        for word in 0..512 {
            let wanted = if (8..24).contains(&word) { 0 } else { word + 1 };
            assert_eq!(region.at::<W64>(word * 8).get(), wanted);
        }
    }
}

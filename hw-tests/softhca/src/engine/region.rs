// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one file that all processes of a fabric map whole, and where in it the fixed tables lie.
//!
//! Owns the mapping, which stays until the process ends: so references into it are `'static`. Called by: fabric, and
//! through it every shared object. Grade: setup, but for `at`, which is hot. Memory rules: (M1) a structure of the
//! region consists of words (`words`) only, so references to it may be shared; (M2) plain bytes (requests, payloads)
//! are read and written through raw pointers only, by whoever the structure's own rule (a lock, or an index published
//! after the write) says; (M3) offsets between processes come from this engine alone: the folder is private to the
//! user, and what he breaks there he breaks for himself. Whatever an offset is, `at`, `bytes` and `clear` reach nothing
//! outside of the mapping. Tests: at the end of the file, under Miri too.

use std::{
    fs::{File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::Path,
    sync::{Mutex, PoisonError},
};

use super::{
    Errno, Result,
    alloc::Heap,
    counters::Counts,
    lock::SharedLock,
    words::{W32, W64},
    xrc::OpenDomain,
};

/// Bytes of the file, which is sparse.
pub(crate) const REGION_BYTES: u64 = 4 << 30;
/// Changes whenever a shared structure does.
const MAGIC: u64 = 0x736f_6674_6863_0003;

/// Processes at a time.
pub(crate) const MAX_PROCESSES: u32 = 1024;
/// Queue pairs at a time, in the whole fabric.
pub(crate) const MAX_QPS: u32 = 1 << 16;
/// Memory regions at a time, in the whole fabric.
pub(crate) const MAX_MRS: u32 = 1 << 18;
/// Adapters, and ports of each.
pub(crate) const MAX_DEVICES: usize = 4;
pub(crate) const MAX_PORTS: usize = 2;
/// Rules for faults.
pub(crate) const MAX_RULES: usize = 64;
/// Multicast groups at a time, and members of each.
pub(crate) const MAX_GROUPS: usize = 64;
pub(crate) const MAX_MEMBERS: usize = 32;
/// Shared receive queues of XRC, and domains opened by a file, at a time.
pub(crate) const MAX_XRC_QUEUES: u32 = 1024;
pub(crate) const MAX_DOMAINS: usize = 256;

const SLOTS_AT: u64 = 64 << 10;
const XRC_QUEUES_AT: u64 = 256 << 10;
const MRS_AT: u64 = 1 << 20;
const QPS_AT: u64 = 32 << 20;
/// Bytes of a queue pair's place.
pub(crate) const QP_BYTES: u64 = 1 << 10;
/// The heap follows the tables.
pub(crate) const HEAP_AT: u64 = QPS_AT + MAX_QPS as u64 * QP_BYTES;

/// A structure that may lie in the region.
/// # Safety
/// `repr(C)`, made of words (`words`) and of such structures only (rule M1), valid when all zero, at most 64-byte
/// aligned.
pub(crate) unsafe trait Shared {}

// SAFETY: both are one atomic word.
unsafe impl Shared for W32 {}
// SAFETY: as above.
unsafe impl Shared for W64 {}

/// A multicast group: its address and the indices of its queue pairs plus one.
#[repr(C)]
pub(crate) struct Group {
    pub(crate) gid: [W64; 2],
    pub(crate) members: [W32; MAX_MEMBERS],
}

/// The start of the file.
#[repr(C, align(64))]
pub(crate) struct Header {
    magic: W64,
    /// `CLOCK_MONOTONIC` nanoseconds when the fabric began.
    pub(crate) began_ns: W64,
    /// Guards the tables: process slots, free queue pairs, groups.
    pub(crate) tables: SharedLock,
    /// Numbers for domains, channels, queues.
    pub(crate) next_id: W32,
    /// Queue pair places ever used.
    pub(crate) qps_used: W32,
    /// First and last of the free ones (index plus one), oldest first.
    pub(crate) qps_free: W32,
    pub(crate) qps_free_last: W32,
    /// Queue pairs of each adapter.
    pub(crate) qps_of: [W32; MAX_DEVICES],
    /// Packets seen by the rules for faults, per rule.
    pub(crate) fault_counts: [W32; MAX_RULES],
    pub(crate) port_state: [[W32; MAX_PORTS]; MAX_DEVICES],
    /// Until when the model's link is taken, in nanoseconds.
    pub(crate) port_busy: [[W64; MAX_PORTS]; MAX_DEVICES],
    pub(crate) counts: Counts,
    pub(crate) heap: Heap,
    /// Makes emulated atomics atomic among each other, as `IBV_ATOMIC_HCA` says.
    pub(crate) atomics: AtomicsLock,
    pub(crate) groups: [Group; MAX_GROUPS],
    pub(crate) domains: [OpenDomain; MAX_DOMAINS],
}

/// On a cache line of its own.
#[repr(C, align(64))]
pub(crate) struct AtomicsLock(pub(crate) SharedLock);

// SAFETY: words only; repr(C); zero is the empty state of each.
unsafe impl Shared for Header {}

/// The mapping.
pub(crate) struct Region {
    base: *mut u8,
    file: File,
    /// The kernel's lock of the file tells processes apart, this one threads.
    gate: Mutex<()>,
}

// SAFETY: the mapping is shared among processes anyway; what lies in it is words, or guarded as M2 says.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Opens or makes the file in `folder` and maps it.
    pub(crate) fn open(folder: &Path) -> Result<Region> {
        let os = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join("region"))
            .map_err(os)?;
        match file.metadata().map_err(os)?.len() {
            0 => file.set_len(REGION_BYTES).map_err(os)?,
            REGION_BYTES => {}
            // A touch behind its end would kill the process.
            _ => return Err(Errno(libc::EPROTO)),
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                REGION_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(os(std::io::Error::last_os_error()));
        }
        Ok(Region { base: base.cast(), file, gate: Mutex::new(()) })
    }

    /// Runs `f` while no other process joins: under the kernel's lock of the file, which the dead do not hold.
    pub(crate) fn exclusively<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the descriptor is open; flock touches no memory.
        while unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            if error != libc::EINTR {
                return Err(Errno(error));
            }
        }
        let result = f();
        // SAFETY: as above.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        result
    }

    /// Makes the tables if nobody has; EPROTO if another version of this engine did.
    pub(crate) fn begin(&self, now_ns: u64, init: impl FnOnce(&Header)) -> Result<()> {
        let mut start = [0_u8; 8];
        self.file.read_exact_at(&mut start, 0).map_err(|_| Errno(libc::EPROTO))?;
        match u64::from_ne_bytes(start) {
            0 => {
                let header = self.header();
                header.began_ns.set(now_ns);
                header.heap.begin();
                init(header);
                header.magic.publish(MAGIC);
                Ok(())
            }
            MAGIC => Ok(()),
            _ => Err(Errno(libc::EPROTO)),
        }
    }

    #[inline]
    pub(crate) fn header(&self) -> &'static Header {
        self.at(0)
    }

    /// The structure at `offset`.
    #[inline]
    pub(crate) fn at<T: Shared>(&self, offset: u64) -> &'static T {
        let last = const { REGION_BYTES - size_of::<T>() as u64 };
        assert!(offset <= last && offset.is_multiple_of(align_of::<T>() as u64), "{offset:#x} is not in the region");
        // SAFETY: inside the mapping and aligned; `Shared` types are words, for which any content is valid and sharing
        // is sound (M1); the mapping is never unmapped.
        unsafe { &*self.base.add(offset as usize).cast::<T>() }
    }

    /// Plain bytes at `offset` (rule M2).
    #[inline]
    pub(crate) fn bytes(&self, offset: u64) -> *mut u8 {
        assert!(offset < REGION_BYTES, "{offset:#x} is not in the region");
        // SAFETY: inside the mapping.
        unsafe { self.base.add(offset as usize) }
    }

    /// Where `object` lies.
    pub(crate) fn offset_of<T: Shared>(&self, object: &T) -> u64 {
        std::ptr::from_ref(object) as u64 - self.base as u64
    }

    /// Gives pages back and makes the bytes zero.
    ///
    /// # Safety
    /// The caller owns the bytes (M2): nobody else reads or writes them meanwhile.
    pub(crate) unsafe fn clear(&self, offset: u64, len: u64) {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= REGION_BYTES);
        assert!(is_inside, "{len:#x} bytes at {offset:#x} are not in the region");
        let first = offset.next_multiple_of(4096);
        let last = (offset + len) & !4095;
        if len >= 64 << 10 && last > first {
            // SAFETY: the range lies inside the mapping and holds an object that its owner is giving back.
            let done = unsafe { libc::madvise(self.bytes(first).cast(), (last - first) as usize, libc::MADV_REMOVE) };
            if done == 0 {
                // SAFETY: this function's rule, of parts of the range.
                unsafe { self.zero(offset, first - offset) };
                // SAFETY: as above.
                return unsafe { self.zero(last, offset + len - last) };
            }
        }
        // SAFETY: this function's rule.
        unsafe { self.zero(offset, len) };
    }

    /// # Safety
    /// As for [`Self::clear`], which has also seen that the range is inside.
    unsafe fn zero(&self, offset: u64, len: u64) {
        if len > 0 {
            // SAFETY: this function's rule.
            unsafe { std::ptr::write_bytes(self.bytes(offset), 0, len as usize) };
        }
    }
}

/// Where a process slot lies.
pub(crate) fn slot_at(index: u32) -> u64 {
    SLOTS_AT + u64::from(index) * 64
}

/// Where the entry of a memory region lies.
#[inline]
pub(crate) fn mr_at(index: u32) -> u64 {
    MRS_AT + u64::from(index) * 64
}

/// Where the entry of a shared receive queue of XRC lies.
pub(crate) fn xrc_queue_at(index: u32) -> u64 {
    XRC_QUEUES_AT + u64::from(index) * 64
}

/// Where a queue pair lies.
#[inline]
pub(crate) fn qp_at(index: u32) -> u64 {
    QPS_AT + u64::from(index) * QP_BYTES
}

const _: () = assert!(size_of::<Header>() as u64 <= SLOTS_AT);
const _: () = assert!(SLOTS_AT + MAX_PROCESSES as u64 * 64 <= XRC_QUEUES_AT);
const _: () = assert!(XRC_QUEUES_AT + MAX_XRC_QUEUES as u64 * 64 <= MRS_AT);
const _: () = assert!(MRS_AT + MAX_MRS as u64 * 64 <= QPS_AT);

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Bytes of a region of which only the start is there.
    const THERE: usize = 4096;

    /// A region, and its words.
    struct Made(Region, *mut [W64]);

    impl Made {
        fn new() -> Made {
            let words: Box<[W64]> = (0..THERE / 8).map(|_| W64::default()).collect();
            let words = Box::into_raw(words);
            let file = File::open("/dev/null").expect("it is always there");
            Made(Region { base: words.cast(), file, gate: Mutex::new(()) }, words)
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            // SAFETY: made by `Box::into_raw`, freed once; the tests keep no structure of it.
            drop(unsafe { Box::from_raw(self.1) });
        }
    }

    #[test]
    fn an_offset_outside_of_the_region_reaches_nothing() {
        let made = Made::new();
        for offset in [REGION_BYTES, REGION_BYTES - 4, u64::MAX, u64::MAX - 7, 4] {
            let reached = catch_unwind(AssertUnwindSafe(|| made.0.at::<W64>(offset).get()));
            assert!(reached.is_err(), "{offset:#x}");
        }
        assert!(catch_unwind(AssertUnwindSafe(|| made.0.bytes(REGION_BYTES))).is_err());
        for (offset, len) in [(REGION_BYTES, 1), (REGION_BYTES - 64, 65), (u64::MAX, 2), (64, u64::MAX)] {
            // SAFETY: nobody uses the region.
            let cleared = catch_unwind(AssertUnwindSafe(|| unsafe { made.0.clear(offset, len) }));
            assert!(cleared.is_err(), "{len:#x} bytes at {offset:#x}");
        }
    }

    #[test]
    fn what_is_cleared_is_zero_and_what_is_beside_it_stays() {
        let made = Made::new();
        for word in 0..THERE as u64 / 8 {
            made.0.at::<W64>(word * 8).set(word + 1);
        }
        // SAFETY: nobody else uses the region.
        unsafe { made.0.clear(64, 128) };
        for word in 0..THERE as u64 / 8 {
            let wanted = if (8..24).contains(&word) { 0 } else { word + 1 };
            assert_eq!(made.0.at::<W64>(word * 8).get(), wanted);
        }
    }
}

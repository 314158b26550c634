// SPDX-License-Identifier: MIT OR Apache-2.0
//! The endpoint "pointers" that Open MPI holds for the peers of a module. Open MPI never dereferences one, but compares
//! it with those of other modules and BTLs: ob1 does so to find the BTLs that may read and write (`pml_ob1_rdma.c`),
//! and `btl/self` has `(void *)1`. So each module reserves a range of addresses, in which nothing else of the process
//! can lie, and endpoint n is byte n+1 of it. The range is mapped without access, so dereferencing one is a fault.
//! Called by the other files of the folder. Grade: hot (arithmetic); [`EndpointRange::new`] setup. Threads: any. Tests:
//! below.

use std::io;
use std::ptr::null_mut;

use engine::transport::EndpointId;
use ibex_ffi::openmpi::sys;

/// Length and alignment of a range, in bytes: an immediate has room for as many endpoints.
const LENGTH: usize = 1 << 24;

pub(crate) struct EndpointRange {
    /// Address of the first byte.
    start: usize,
}

impl EndpointRange {
    /// Reserves a range. The error is `ENOMEM` if the process may have no more addresses (`ulimit -v`).
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at an address that the kernel chooses, touches no existing one.
        let mapped = unsafe { libc::mmap(null_mut(), 2 * LENGTH, libc::PROT_NONE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = mapped.expose_provenance().next_multiple_of(LENGTH);
        let skipped = start - mapped.addr();
        // SAFETY: whole pages of the new mapping, before and behind the range, which nobody uses.
        unsafe {
            libc::munmap(mapped, skipped);
            libc::munmap(mapped.wrapping_byte_add(skipped + LENGTH), LENGTH - skipped);
        }
        Ok(EndpointRange { start })
    }

    #[inline]
    pub(crate) fn pointer(&self, id: EndpointId) -> *mut sys::mca_btl_base_endpoint_t {
        std::ptr::without_provenance_mut(self.start.wrapping_add((id.index() as usize + 1) % LENGTH))
    }
}

impl Drop for EndpointRange {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped it, and nobody reads or writes it.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.start), LENGTH) };
    }
}

/// Returns the engine's number of an endpoint of any module; for null, one that the engine refuses.
#[inline]
pub(crate) fn endpoint(pointer: *mut sys::mca_btl_base_endpoint_t) -> EndpointId {
    EndpointId::from_index(((pointer.addr() % LENGTH) as u32).wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mappings() -> String {
        std::fs::read_to_string("/proc/self/maps").expect("the kernel lists the mappings")
    }

    /// One test, because a range that is freed may be mapped by another.
    #[test]
    fn pointers_name_their_endpoints_at_reserved_addresses_which_a_dropped_range_releases() {
        let ranges = [EndpointRange::new().expect("addresses"), EndpointRange::new().expect("addresses")];
        let range = &ranges[0];
        for index in [0, 1, 70_000, (1 << 24) - 2] {
            let pointer = range.pointer(EndpointId::from_index(index));
            assert!(!pointer.is_null());
            assert_eq!(endpoint(pointer), EndpointId::from_index(index));
        }
        assert_eq!(endpoint(null_mut()), EndpointId::from_index(u32::MAX));
        let maps = mappings();
        for range in &ranges {
            let start = range.start;
            let holds = |line: &&str| {
                let (from, to) = line.split(' ').next().and_then(|both| both.split_once('-')).expect("two addresses");
                let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).expect("hexadecimal"));
                from <= start && start + LENGTH <= to
            };
            let line = maps.lines().find(holds).expect("it is mapped");
            assert_eq!(line.split(' ').nth(1), Some("---p"), "{line}");
        }
        let first = EndpointId::from_index(0);
        assert_ne!(ranges[0].pointer(first), ranges[1].pointer(first));
        assert!(ranges[0].pointer(first).addr() > 1 << 16, "unlike the small numbers that other BTLs use");
        drop(ranges);
        let start = EndpointRange::new().expect("addresses").start;
        let wanted = format!("{start:x}-{:x} ---p", start + LENGTH);
        assert!(!mappings().contains(&wanted), "{wanted}");
    }
}

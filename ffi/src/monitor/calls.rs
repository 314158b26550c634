// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages that calls of the C library replace or unmap (docs/registered-memory.md). Called by the hooks of these
//! functions before the call: `hooks.rs` here, and `openmpi/hooks.rs`. `tell` gets the first byte and the number of
//! bytes. Grade: setup. Threads: any; malloc may call a hook with its lock held, so nothing allocates, except in
//! [`by_shmdt`], which malloc does not call. Tests: below, and in `mod.rs`.

use std::ffi::{c_int, c_void};

/// Advice that replaces the pages of a range (Linux to 6.17); an adapter keeps the old pages.
const DROPPING: [c_int; 5] =
    [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE, MADV_DONTNEED_LOCKED, MADV_GUARD_INSTALL];
/// Linux 5.18.
const MADV_DONTNEED_LOCKED: c_int = 24;
/// Linux 6.13.
const MADV_GUARD_INSTALL: c_int = 102;

/// Size of the smallest page.
pub(crate) const PAGE: usize = 4096;

/// `mmap`: the range that a mapping at a fixed address covers.
pub(crate) fn by_mmap(start: *mut c_void, size: usize, flags: c_int, tell: impl Fn(*mut c_void, usize)) {
    // Other mappings take addresses that are free.
    if flags & libc::MAP_FIXED != 0 {
        tell(start, size);
    }
}

/// `mremap`: the range that moves or shrinks, and the one that it covers at a fixed address. Without `MREMAP_FIXED`
/// callers omit the target, so it is garbage.
pub(crate) fn by_mremap(
    (old, old_size): (*mut c_void, usize),
    new_size: usize,
    (flags, target): (c_int, *mut c_void),
    tell: impl Fn(*mut c_void, usize),
) {
    // The kernel refuses a new size of 0. With an old size of 0 it maps the pages a second time, and keeps the first.
    if old_size > 0 && new_size > 0 {
        tell(old, old_size);
    }
    if flags & libc::MREMAP_FIXED != 0 && new_size > 0 {
        tell(target, new_size);
    }
}

/// `madvise`.
pub(crate) fn by_madvise(start: *mut c_void, size: usize, advice: c_int, tell: impl Fn(*mut c_void, usize)) {
    if DROPPING.contains(&advice) {
        tell(start, size);
    }
}

/// `shmat` with `SHM_REMAP`: the range that the segment covers.
pub(crate) fn by_shmat(segment: c_int, start: *const c_void, flags: c_int, tell: impl Fn(*mut c_void, usize)) {
    if flags & libc::SHM_REMAP == 0 {
        return;
    }
    // SAFETY: a structure of integers, for which zero is a value.
    let mut of: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to a live structure of its type.
    if unsafe { libc::shmctl(segment, libc::IPC_STAT, &raw mut of) } == 0 {
        tell(start.cast_mut(), of.shm_segsz);
    }
}

/// `shmdt`: all parts of the segment that is attached at this address, several where some have been unmapped or have
/// other rights.
pub(crate) fn by_shmdt(segment: *const c_void, tell: impl Fn(*mut c_void, usize)) {
    // No segment begins within a page; probes of the hook pass such an address.
    if !segment.addr().is_multiple_of(PAGE) {
        return;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, end) in maps.lines().filter_map(|line| part(line, segment.addr())) {
        tell(segment.with_addr(start).cast_mut(), end - start);
    }
}

/// Returns the range of a line of `/proc/self/maps` if it is part of the segment attached at `segment`: by its offset.
fn part(line: &str, segment: usize) -> Option<(usize, usize)> {
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end, place) = (number(start)?, number(end)?, number(words.nth(1)?)?);
    let is_of_it = words.nth(2)?.starts_with("/SYSV") && start.checked_sub(place) == Some(segment);
    (is_of_it && start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_finds_each_part_of_a_segment_by_its_offset_and_no_other_range() {
        let first = "7f0000000000-7f0000001000 r--s 00000000 00:01 5                          /SYSV00000000 (deleted)";
        let later = "7f0000003000-7f0000008000 rw-s 00003000 00:01 5                          /SYSV00000000 (deleted)";
        assert_eq!(part(first, 0x7f00_0000_0000), Some((0x7f00_0000_0000, 0x7f00_0000_1000)));
        assert_eq!(part(later, 0x7f00_0000_0000), Some((0x7f00_0000_3000, 0x7f00_0000_8000)));
        assert_eq!(part(later, 0x7f00_0000_3000), None);
        for line in [
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ",
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [heap]",
            "7f0000000000-7f0000001000 r--s 00000000 fe:00 77                         /usr/lib/libc.so.6",
            "7f0000000000 r--s",
            "",
        ] {
            assert_eq!(part(line, 0x7f00_0000_0000), None, "{line}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hooks for unmapped pages that Open MPI's hooks do not report, so that its caches would keep stale registrations: the
//! target of `mremap` (`MREMAP_FIXED`), some advice of `madvise`, and all but the first part of a shared memory segment
//! in several parts (`shmdt`). A patch hides the earlier patches of a function, Open MPI's too, so these hooks report
//! all that Open MPI's would (docs/registered-memory.md). Called by `unmapped`. Grade: setup. Threads: any; malloc may
//! call a hook with its lock held, so nothing allocates, except in `shmdt`, which malloc does not call. Hooks stay as
//! long as Open MPI's; their library is never unmapped. Tests: below; `hw-tests/mpi/freed_memory.c`.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{sys, unmapped};

/// Advice that replaces the pages of a range (Linux to 6.17); an adapter keeps the old pages.
const DROPPING: [c_int; 5] =
    [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE, MADV_DONTNEED_LOCKED, MADV_GUARD_INSTALL];
/// Linux 5.18.
const MADV_DONTNEED_LOCKED: c_int = 24;
/// Linux 6.13.
const MADV_GUARD_INSTALL: c_int = 102;

/// Size of the smallest page.
const PAGE: usize = 4096;

struct Hook {
    name: &'static CStr,
    /// The function to call instead, of the same type.
    instead: *const c_void,
    /// Calls the function without effect.
    probe: fn(),
    counts: &'static Counts,
}

struct Counts {
    seen: AtomicUsize,
    patched: AtomicUsize,
}

/// Largest number of times that a function is patched: a preloaded library may keep calls from reaching the hook.
const TIMES: usize = 1024;

static MREMAP: Counts = Counts::new();
static MADVISE: Counts = Counts::new();
static SHMDT: Counts = Counts::new();

impl Counts {
    const fn new() -> Self {
        Self { seen: AtomicUsize::new(0), patched: AtomicUsize::new(0) }
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }

    fn see(&self) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }
}

fn all() -> [Hook; 3] {
    [
        Hook { name: c"mremap", instead: mremap as *const c_void, probe: probe_mremap, counts: &MREMAP },
        Hook { name: c"madvise", instead: madvise as *const c_void, probe: probe_madvise, counts: &MADVISE },
        Hook { name: c"shmdt", instead: shmdt as *const c_void, probe: probe_shmdt, counts: &SHMDT },
    ]
}

/// Patches each function whose calls do not reach its hook: the first time, and after other libraries have patched it.
/// If Open MPI patches nothing (cache off, or no hooks on this processor), this patches nothing either.
pub(super) fn put_in_place() {
    for hook in all() {
        let before = hook.counts.seen();
        (hook.probe)();
        let is_hidden = hook.counts.seen() == before;
        if is_hidden && hook.counts.patched.fetch_add(1, Ordering::Relaxed) < TIMES {
            // SAFETY: the hook has the type of the function of this name, and is never unmapped.
            let _ = unsafe { sys::ibex_patch(hook.name.as_ptr(), hook.instead) };
        }
    }
}

fn probe_mremap() {
    // UCX may report the range to its caches: a page that is never mapped; an empty range would mean all memory.
    // SAFETY: the kernel refuses a new size of 0.
    let _ = unsafe { libc::mremap(null_mut(), PAGE, 0, 0) };
}

fn probe_madvise() {
    // SAFETY: a call on no bytes has no effect.
    let _ = unsafe { libc::madvise(null_mut(), 0, libc::MADV_NORMAL) };
}

fn probe_shmdt() {
    // SAFETY: no segment begins within a page, so the kernel refuses the call.
    let _ = unsafe { libc::shmdt(null::<c_void>().wrapping_byte_add(1)) };
}

/// Called instead of `mremap`. Without `MREMAP_FIXED` callers omit the target, so it is garbage.
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_size: usize,
    new_size: usize,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    MREMAP.see();
    // The kernel refuses a new size of 0. With an old size of 0 it maps the pages a second time, and keeps the first.
    if old_size > 0 && new_size > 0 {
        unmapped::tell(old, old_size);
    }
    if flags & libc::MREMAP_FIXED != 0 && new_size > 0 {
        unmapped::tell(target, new_size);
    }
    // SAFETY: the call that the caller made.
    unsafe { libc::syscall(libc::SYS_mremap, old, old_size, new_size, flags, target) as *mut c_void }
}

unsafe extern "C" fn madvise(start: *mut c_void, size: usize, advice: c_int) -> c_int {
    MADVISE.see();
    if DROPPING.contains(&advice) {
        unmapped::tell(start, size);
    }
    // SAFETY: the call that the caller made.
    unsafe { libc::syscall(libc::SYS_madvise, start, size, advice) as c_int }
}

unsafe extern "C" fn shmdt(segment: *const c_void) -> c_int {
    SHMDT.see();
    // No segment begins within a page; `probe_shmdt` passes such an address.
    let is_one = segment.addr().is_multiple_of(PAGE);
    let maps = if is_one { std::fs::read_to_string("/proc/self/maps") } else { Ok(String::new()) };
    for (start, end) in maps.unwrap_or_default().lines().filter_map(|line| part(line, segment.addr())) {
        unmapped::tell(segment.with_addr(start).cast_mut(), end - start);
    }
    // SAFETY: the call that the caller made.
    unsafe { libc::syscall(libc::SYS_shmdt, segment) as c_int }
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

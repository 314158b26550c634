// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of every kind from this machine's kernel. Tests that need explicit huge pages add them to the host's pool
//! where they may, and remove them again; elsewhere they say why they do not run.

use super::*;
use std::fs::File;

/// The size of the pool. Locked while a test depends on it, against other tests and other processes that run them.
const SIZE: &str = "/proc/sys/vm/nr_hugepages";

/// A pool with some pages that are available; it has its former size again when dropped.
struct Lent {
    before: usize,
    _lock: File,
}

impl Lent {
    /// `None`, with a message, if this process may not change it, or the host has fewer left.
    fn with(pages: usize) -> Option<Lent> {
        let lock = locked()?;
        let before: usize = fs::read_to_string(SIZE).ok()?.trim().parse().ok()?;
        let outcome = fs::write(SIZE, (before + pages).to_string());
        let lent = outcome.is_ok().then_some(Lent { before, _lock: lock });
        if lent.is_some() && Pool::now().is_some_and(|pool| pool.available >= pages) {
            return lent;
        }
        println!("\nskip needs {pages} explicit huge pages, and cannot have them here ({SIZE}: {outcome:?})");
        None
    }
}

fn locked() -> Option<File> {
    let file = File::open(SIZE).ok()?;
    file.lock().is_ok().then_some(file)
}

impl Drop for Lent {
    fn drop(&mut self) {
        fs::write(SIZE, self.before.to_string()).expect("it could be written before");
    }
}

fn is_in_a_child(pages: &Pages) -> bool {
    // SAFETY: the child calls nothing but `msync` and `_exit`, which are safe in the child of a process with threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: `msync` looks whether the range is mapped, and changes nothing of anonymous memory.
        let answer = unsafe { libc::msync(pages.base.as_ptr().cast(), HUGE.min(pages.bytes), libc::MS_ASYNC) };
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(answer == 0)) };
    }
    let mut status = 0;
    // SAFETY: the status is a place of this function's; the child is this process'.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "status {status}");
    libc::WEXITSTATUS(status) == 1
}

fn use_all(pages: &Pages) {
    for place in [0, pages.bytes - 1] {
        // SAFETY: inside the pages, which nobody else uses.
        let byte = unsafe { pages.base.add(place) };
        // SAFETY: inside the pages, which nobody else uses.
        assert_eq!(unsafe { byte.read() }, 0);
        // SAFETY: inside the pages, which nobody else uses.
        unsafe { byte.write(1) };
    }
}

#[test]
fn memory_gets_huge_pages_if_it_fills_seven_eighths_of_them() {
    assert_eq!(filled(HUGE), Some(HUGE));
    assert_eq!(filled(1024 * (32_768 + 64)), Some(17 * HUGE), "receive slots of a port");
    assert_eq!(filled(64 * (32_768 + 64)), None, "64 slots to send long messages from take little more than one page");
    assert_eq!(filled(64 * 448), None);
    assert_eq!(filled(16 * HUGE - HUGE + 1), Some(16 * HUGE));
    assert_eq!(filled(0), None);
    assert_eq!(filled(usize::MAX), None);
}

/// Pages that are left of a pool when these processes, one after the other, have taken 17 each if the pool spares them.
fn left(mut pool: Pool, processes: u32) -> usize {
    for _ in 0..processes {
        pool.available -= if pool.spares(17, processes) { 17 } else { 0 };
    }
    pool.available
}

#[test]
fn all_processes_of_a_job_or_none_take_pages_and_at_most_half_of_the_pool() {
    for processes in [1, 2, 64, 128] {
        let half = 17 * processes as usize;
        assert_eq!(left(Pool { pages: 2 * half, available: 2 * half }, processes), half);
        assert_eq!(left(Pool { pages: 2 * half - 1, available: 2 * half - 1 }, processes), 2 * half - 1);
    }
    assert!(Pool { pages: 2, available: 2 }.spares(1, 0), "a job has a process");
    assert!(!Pool { pages: usize::MAX, available: usize::MAX }.spares(usize::MAX / 2, 4));
}

#[test]
fn a_job_leaves_a_quarter_of_the_pool_free_if_others_have_taken_pages() {
    assert_eq!(left(Pool { pages: 400, available: 160 }, 8), 109);
    assert_eq!(left(Pool { pages: 400, available: 0 }, 8), 0);
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn memory_without_huge_pages_has_ordinary_pages() {
    let pages = Pages::new(10_000, HugePages::Explicit).expect("memory");
    assert_eq!((pages.kind(), pages.bytes()), (PageKind::Ordinary, 10_000));
    use_all(&pages);
    assert!(!is_in_a_child(&pages));
    let pages = Pages::new(3 * HUGE, HugePages::No).expect("memory");
    assert_eq!(pages.kind(), PageKind::Ordinary);
    use_all(&pages);
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn memory_for_transparent_huge_pages_starts_at_a_multiple_of_their_size() {
    let pages = Pages::new(3 * HUGE + 5000, HugePages::Transparent).expect("memory");
    let is_there = has_transparent();
    assert_eq!(pages.kind(), if is_there { PageKind::Transparent } else { PageKind::Ordinary });
    assert!(!is_there || pages.base.addr().get().is_multiple_of(HUGE));
    use_all(&pages);
    assert!(!is_in_a_child(&pages));
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn a_pool_without_pages_gives_none() {
    let _lock = locked();
    let nowhere_near = usize::MAX / 4 / HUGE * HUGE;
    assert!(Pages::explicit(nowhere_near, HugePages::Explicit).is_none());
    assert!(Pages::explicit(nowhere_near, HugePages::Shared { processes: 1 }).is_none());
    if Pool::now().is_some_and(|pool| pool.available == 0) {
        assert!(Pages::explicit(16 * HUGE, HugePages::Explicit).is_none());
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn explicit_huge_pages_come_from_the_pool_and_go_back_to_it() {
    let Some(_pool) = Lent::with(16) else { return };
    let before = Pool::now().map(|pool| pool.available).expect("a pool");
    for wanted in [HugePages::No, HugePages::Transparent] {
        assert!(Pages::explicit(4 * HUGE, wanted).is_none(), "{wanted:?}");
    }
    let pages = Pages::explicit(4 * HUGE - 1000, HugePages::Explicit).expect("pages of the pool");
    assert_eq!((pages.kind(), pages.bytes()), (PageKind::Explicit, 4 * HUGE));
    assert_eq!(Pool::now().map(|pool| pool.available), Some(before - 4), "they are there from the start");
    use_all(&pages);
    assert!(!is_in_a_child(&pages));
    drop(pages);
    assert_eq!(Pool::now().map(|pool| pool.available), Some(before));
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn a_process_takes_its_share_of_the_pool_and_no_more() {
    let Some(_pool) = Lent::with(16) else { return };
    let half = (Pool::now().map(|pool| pool.available).expect("a pool") / 2) * HUGE;
    assert!(Pages::explicit(half, HugePages::Shared { processes: 1 }).is_some());
    assert!(Pages::explicit(half + HUGE, HugePages::Shared { processes: 1 }).is_none());
    assert!(Pages::explicit(half, HugePages::Shared { processes: 2 }).is_none());
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock of a domain. A thread that holds it is *inside*, and only that thread uses the endpoints and queues of the
//! domain ([`Guarded`]). So a call takes one lock, however many objects it uses. It takes none if the program promises
//! that only one thread at a time calls (`FI_THREAD_DOMAIN`).
//!
//! A program that breaks this promise crashes or loses messages. A check finds it: debug builds, and others if the
//! environment variable `FI_IBEX_CHECK_THREADS` is set, take the lock nevertheless. A thread that finds another one
//! inside prints that, and waits; so the program goes on.
//!
//! Each call enters once ([`Lock::enter`]), and what it calls is inside. Called by all objects of a domain. Grade: hot.
//! Threads: any. Tests: below, and `hw-tests/libfabric/fi_threads.c`.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::{log, sys};

#[derive(Debug)]
pub(crate) struct Lock {
    /// `None`: the program has promised to call from one thread at a time, and nobody checks it.
    mutex: Option<Mutex<()>>,
    /// Whether the program has promised to call from one thread at a time. If there is a mutex, it only checks that.
    is_promised: bool,
    /// Whether a thread had to wait nevertheless.
    is_broken: AtomicBool,
}

/// A thread is inside until this is dropped.
pub(crate) struct Inside<'a> {
    _lock: Option<MutexGuard<'a, ()>>,
}

/// A value that a thread uses only inside its domain.
#[derive(Debug, Default)]
pub(crate) struct Guarded<T>(UnsafeCell<T>);

// SAFETY: D1: one thread at a time uses the value, which may move between threads.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl Lock {
    /// Makes a lock. `is_serial`: the program lets one thread at a time call; `is_checked`: whether it does is checked.
    pub(super) fn new(is_serial: bool, is_checked: bool) -> Self {
        let mutex = (!is_serial || is_checked).then(Mutex::default);
        Lock { mutex, is_promised: is_serial, is_broken: AtomicBool::default() }
    }

    /// Whether the program has promised to call from one thread at a time.
    pub(super) fn is_promised(&self) -> bool {
        self.is_promised
    }

    /// Waits until no other thread is inside, and enters. A thread that is inside must not enter again.
    #[inline(always)]
    pub(super) fn enter(&self) -> Inside<'_> {
        let lock = |mutex| if self.is_promised { self.lock_promised(mutex) } else { mutex.lock() };
        Inside { _lock: self.mutex.as_ref().map(lock) }
    }

    /// Locks, and says so the first time that this thread has to wait.
    #[cold]
    #[inline(never)]
    fn lock_promised<'a>(&self, mutex: &'a Mutex<()>) -> MutexGuard<'a, ()> {
        mutex.try_lock().unwrap_or_else(|| {
            if !self.is_broken.swap(true, Ordering::Relaxed) {
                let text = "two threads are inside a domain at once, although the program has asked for \
                            FI_THREAD_DOMAIN: without the check it may crash, or lose messages";
                log::line(sys::FI_LOG_WARN, sys::FI_LOG_DOMAIN, text);
                eprintln!("ibex: {text}");
            }
            mutex.lock()
        })
    }
}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Guarded(UnsafeCell::new(value))
    }

    /// # Safety
    /// D1: this thread is inside the value's domain, and no other reference to the value is used as long as this one.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the caller promises that it is the only one")]
    pub(crate) unsafe fn get(&self) -> &mut T {
        // SAFETY: D1.
        unsafe { &mut *self.0.get() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns() {
        const ROUNDS: usize = 20_000;
        let (lock, count) = (Lock::new(false, false), Guarded::new(0_usize));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let _inside = lock.enter();
                        // SAFETY: D1.
                        unsafe { *count.get() += 1 };
                    }
                });
            }
        });
        assert_eq!(count.0.into_inner(), 4 * ROUNDS);
    }

    #[test]
    fn a_program_with_one_thread_at_a_time_takes_no_lock() {
        let (serial, other) = (Lock::new(true, false), Lock::new(false, true));
        let _inside = (serial.enter(), other.enter());
        assert!(serial.mutex.is_none() && other.mutex.as_ref().is_some_and(Mutex::is_locked));
    }

    #[test]
    fn a_thread_that_finds_another_inside_against_the_promise_says_so_and_waits() {
        let lock = Lock::new(true, true);
        let is_broken = || lock.is_broken.load(Ordering::Relaxed);
        drop(lock.enter());
        drop(lock.enter());
        assert!(!is_broken(), "one after the other");
        let has_entered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let inside = lock.enter();
            scope.spawn(|| {
                let _inside = lock.enter();
                has_entered.store(true, Ordering::Relaxed);
            });
            while !is_broken() {
                std::thread::yield_now();
            }
            assert!(!has_entered.load(Ordering::Relaxed));
            drop(inside);
        });
        assert!(has_entered.into_inner());
    }
}

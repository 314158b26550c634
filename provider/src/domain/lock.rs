// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock of a domain: one thread at a time is inside, and only that one uses the endpoints and queues of the domain
//! ([`Guarded`]). So a call takes one lock, however many objects it uses; and none if the program lets only one thread
//! at a time call (`FI_THREAD_DOMAIN`).
//!
//! Each call enters once ([`Lock::enter`]), and what it calls is inside. Called by all objects of a domain. Grade: hot.
//! Threads: any. Tests: below, and `hw-tests/libfabric/fi_threads.c`.

use std::cell::UnsafeCell;

use parking_lot::{Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct Lock {
    /// Absent: the program lets one thread at a time call.
    mutex: Option<Mutex<()>>,
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
    /// Makes a lock. `is_serial`: the program lets one thread at a time call.
    pub(super) fn new(is_serial: bool) -> Self {
        Lock { mutex: (!is_serial).then(Mutex::default) }
    }

    /// Waits until no other thread is inside, and enters. A thread that is inside must not enter again.
    #[inline(always)]
    pub(super) fn enter(&self) -> Inside<'_> {
        Inside { _lock: self.mutex.as_ref().map(Mutex::lock) }
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
        let (lock, count) = (Lock::new(false), Guarded::new(0_usize));
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
        let (serial, other) = (Lock::new(true), Lock::new(false));
        let _inside = (serial.enter(), other.enter());
        assert!(serial.mutex.is_none() && other.mutex.as_ref().is_some_and(Mutex::is_locked));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! One caller at a time, at no cost where only one thread calls.
//!
//! [`Exclusive`] owns what must be reached by one caller at a time (a port and its descriptors). With `MPI_THREAD_MULTIPLE`
//! it takes a lock; otherwise a flag suffices. Either way the owner of the right cannot enter a second time: the caller is
//! told, instead of two `&mut` existing. Callbacks to Open MPI run outside, so that they may call ibex again.
//! Grade: hot (single-threaded: one load, one store each way). Threads: any.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A value that one caller at a time may use.
pub(crate) struct Exclusive<T> {
    /// Present where several threads may call.
    lock: Option<Lock>,
    /// Single-threaded: whether the value is in use, further up the same stack.
    entered: Cell<bool>,
    value: UnsafeCell<T>,
}

struct Lock {
    mutex: Mutex<()>,
    /// The thread inside, as [`thread`] names it; 0: none.
    owner: AtomicUsize,
}

// SAFETY: with a lock, the value is reached by one thread at a time and may move between them (T: Send). Without one, Open
// MPI has promised that one thread at a time calls (btl_init's enable_mpi_threads is false); `entered` is then never raced.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// The right to use the value; given back when dropped.
pub(crate) struct Entered<'a, T> {
    exclusive: &'a Exclusive<T>,
    /// Held for its drop.
    _lock: Option<MutexGuard<'a, ()>>,
}

impl<T> Exclusive<T> {
    /// `threads`: several threads may call at the same time.
    pub(crate) fn new(value: T, threads: bool) -> Self {
        let lock = threads.then(|| Lock { mutex: Mutex::new(()), owner: AtomicUsize::new(0) });
        Exclusive { lock, entered: Cell::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for other threads. `None`: this thread is inside already.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, T>> {
        match &self.lock {
            None => self.enter_alone(),
            Some(lock) => self.enter_locked(lock, true),
        }
    }

    /// Does not wait. `None`: another thread, or this one, is inside.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Entered<'_, T>> {
        match &self.lock {
            None => self.enter_alone(),
            Some(lock) => self.enter_locked(lock, false),
        }
    }

    #[inline]
    fn enter_alone(&self) -> Option<Entered<'_, T>> {
        if self.entered.replace(true) {
            return None;
        }
        Some(Entered { exclusive: self, _lock: None })
    }

    fn enter_locked<'a>(&'a self, lock: &'a Lock, wait: bool) -> Option<Entered<'a, T>> {
        // Relaxed: only this thread ever stores its own name, so it reads its own store or somebody else's.
        if lock.owner.load(Ordering::Relaxed) == thread() {
            return None;
        }
        // A panic inside has been fenced and reported; the lock itself is sound.
        let held = match lock.mutex.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if wait => lock.mutex.lock().unwrap_or_else(PoisonError::into_inner),
            Err(TryLockError::WouldBlock) => return None,
        };
        lock.owner.store(thread(), Ordering::Relaxed);
        Some(Entered { exclusive: self, _lock: Some(held) })
    }
}

impl<T> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match &self.exclusive.lock {
            None => self.exclusive.entered.set(false),
            // The field with the mutex guard is dropped after this.
            Some(lock) => lock.owner.store(0, Ordering::Relaxed),
        }
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: an `Entered` exists once at a time (`entered`, or the mutex), so nothing else uses the value.
        unsafe { &*self.exclusive.value.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as `deref`, and this `Entered` is borrowed mutably.
        unsafe { &mut *self.exclusive.value.get() }
    }
}

/// A number that no other living thread has, and that is not 0: the address of a thread-local.
fn thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_cannot_enter_twice() {
        for threads in [false, true] {
            let exclusive = Exclusive::new(0, threads);
            let inside = exclusive.enter().expect("nobody is inside");
            assert!(exclusive.enter().is_none());
            assert!(exclusive.try_enter().is_none());
            drop(inside);
            assert!(exclusive.enter().is_some());
        }
    }

    #[test]
    fn threads_take_turns() {
        const ROUNDS: usize = 20_000;
        let exclusive = Exclusive::new(0_usize, true);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        *exclusive.enter().expect("this thread is not inside") += 1;
                    }
                });
            }
        });
        assert_eq!(*exclusive.enter().expect("all threads have ended"), 4 * ROUNDS);
    }

    #[test]
    fn a_panic_inside_gives_the_right_back() {
        for threads in [false, true] {
            let exclusive = Exclusive::new(0, threads);
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _inside = exclusive.enter();
                panic!("as the test wants it");
            }));
            assert!(panicked.is_err());
            assert!(exclusive.enter().is_some());
        }
    }
}

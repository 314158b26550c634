// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to a value by one caller at a time, without cost in a single-threaded process. [`Exclusive`] owns such a
//! value (a port, or the state of the PML). With `MPI_THREAD_MULTIPLE` it takes a lock; otherwise a flag suffices. A
//! thread that is inside cannot enter again: [`Exclusive::enter`] returns `None`, so there is never a second `&mut`.
//! Callbacks to Open MPI run outside, so they may call ibex again; those of a call that must be made inside get the
//! value that its caller lends ([`Exclusive::within`]). Called by `port` and `pml/instance.rs`. Grade: hot
//! (single-threaded: one load and one store to enter, and to leave). Threads: any. Tests: below.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use ibex_ffi::thread::number;
use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

/// Values of the gate: no caller is inside; one further up the stack is inside; the lock decides.
const FREE: u8 = 0;
const ENTERED: u8 = 1;
const LOCKED: u8 = 2;

#[repr(C)]
pub(crate) struct Exclusive<T> {
    /// First, so that the value has the address of the `Exclusive`.
    value: UnsafeCell<T>,
    /// Single-threaded: `FREE` or `ENTERED`. Otherwise `LOCKED`, for good.
    gate: Cell<u8>,
    lock: RawMutex,
    /// Thread that holds the lock, as [`number`] names it; 0: none.
    owner: AtomicUsize,
    /// The value, while a caller that is inside lends it; else null.
    lent: AtomicPtr<T>,
}

// SAFETY: with the lock one thread at a time reaches the value, which may move between threads (`T: Send`), and the
// gate is only read. Without the lock the creator has promised (`unlocked`) that one thread at a time uses both.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// The right to use the value; ends when dropped. It stays on its thread, because only the owner may release a lock,
/// and is not shared with other threads, because the value need not be `Sync`.
pub(crate) struct Entered<'a, T> {
    exclusive: &'a Exclusive<T>,
    of_this_thread: PhantomData<*mut ()>,
}

/// Ends what [`Exclusive::lend`] began when dropped, also by a panic.
struct Lent<'a, T> {
    by: &'a Exclusive<T>,
    before: *mut T,
}

impl<T> Drop for Lent<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.by.lent.store(self.before, Ordering::Relaxed);
    }
}

impl<T> Exclusive<T> {
    pub(crate) const fn locked(value: T) -> Self {
        Exclusive::new(value, LOCKED)
    }

    /// # Safety
    /// If two threads use the value, one's use happens before the other's.
    pub(crate) const unsafe fn unlocked(value: T) -> Self {
        Exclusive::new(value, FREE)
    }

    const fn new(value: T, gate: u8) -> Self {
        let value = UnsafeCell::new(value);
        let (owner, lent) = (AtomicUsize::new(0), AtomicPtr::new(null_mut()));
        Exclusive { gate: Cell::new(gate), lock: RawMutex::INIT, owner, lent, value }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Enters; waits for other threads. `None`: this thread is inside already.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, T>> {
        self.pass(true)
    }

    /// Enters without waiting. `None`: this or another thread is inside.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Entered<'_, T>> {
        self.pass(false)
    }

    #[inline]
    fn pass(&self, wait: bool) -> Option<Entered<'_, T>> {
        if self.gate.get() == FREE {
            self.gate.set(ENTERED);
        } else if !self.pass_locked(wait) {
            return None;
        }
        Some(Entered { exclusive: self, of_this_thread: PhantomData })
    }

    /// Takes the lock. Returns false if this thread holds it already, or if another one does and `wait` is false.
    #[cold]
    #[inline(never)]
    fn pass_locked(&self, wait: bool) -> bool {
        // Relaxed: only this thread stores its own number, so it reads either its own store or another thread's.
        if self.gate.get() == ENTERED || self.owner.load(Ordering::Relaxed) == number() {
            return false;
        }
        if wait {
            self.lock.lock();
        } else if !self.lock.try_lock() {
            return false;
        }
        self.owner.store(number(), Ordering::Relaxed);
        true
    }

    /// Runs `call`, which may call [`Self::with`] on this thread, and lends it the entered value.
    #[inline]
    pub(crate) fn within<R>(&self, entered: &mut T, call: impl FnOnce() -> R) -> R {
        debug_assert!(std::ptr::eq(entered, self.value.get()), "this value");
        let _lent = self.lend(entered);
        call()
    }

    /// Lends the value, or with null nothing, until the result is dropped.
    #[inline]
    fn lend(&self, value: *mut T) -> Lent<'_, T> {
        // Relaxed: another thread that reads it finds the lock taken, and does not use it.
        let before = self.lent.load(Ordering::Relaxed);
        self.lent.store(value, Ordering::Relaxed);
        Lent { by: self, before }
    }

    /// Runs `deal` on the value from a callback, which comes either from a call in [`Self::within`] or from elsewhere;
    /// then this enters.
    ///
    /// # Panics
    /// If the thread is inside, and lends nothing.
    #[inline]
    pub(crate) fn with(&self, deal: impl FnOnce(&mut T)) {
        let lent = self.lent.load(Ordering::Relaxed);
        if self.gate.get() == ENTERED && !lent.is_null() {
            let _taken = self.lend(null_mut());
            // SAFETY: one thread: this runs in `within`, whose caller does not use its reference meanwhile; and a
            // callback of `deal` finds nothing lent.
            return deal(unsafe { &mut *lent });
        }
        if let Some(mut entered) = self.enter() {
            deal(&mut entered);
        } else {
            let lent = self.lent.load(Ordering::Relaxed);
            let _taken = self.lend(null_mut());
            // SAFETY: this thread is inside, so it is in its own call in `within`, whose caller does not use its
            // reference meanwhile; and a callback of `deal` finds nothing lent.
            let lent = unsafe { lent.as_mut() };
            deal(lent.expect("a thread that is inside is called back only in `within`"));
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock(&self) {
        self.owner.store(0, Ordering::Relaxed);
        // SAFETY: called by the drop of an `Entered` that `pass_locked` made, on its thread (it is not `Send`), once.
        unsafe { self.lock.unlock() };
    }
}

impl<T> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.exclusive.gate.get() == ENTERED {
            self.exclusive.gate.set(FREE);
        } else {
            self.exclusive.unlock();
        }
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: an `Entered` exists once at a time (the gate, or the lock), so nothing else uses the value.
        unsafe { &*self.exclusive.value.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: an `Entered` exists once at a time (the gate, or the lock), and this one is borrowed mutably.
        unsafe { &mut *self.exclusive.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> [Exclusive<i32>; 2] {
        // SAFETY: one thread uses it.
        [Exclusive::locked(0), unsafe { Exclusive::unlocked(0) }]
    }

    /// Fails to compile if `Entered` is `Send` or `Sync`: then `IsOne<_>` has two candidates.
    #[allow(dead_code, reason = "it is compiled, and that is the test")]
    fn an_entered_value_stays_on_its_thread() {
        trait IsOne<Which> {
            fn check() {}
        }
        struct IfAny;
        struct IfSend;
        struct IfSync;
        impl<T> IsOne<IfAny> for T {}
        impl<T: Send> IsOne<IfSend> for T {}
        impl<T: Sync> IsOne<IfSync> for T {}
        <Entered<'static, i32> as IsOne<_>>::check();
    }

    #[test]
    fn the_owner_cannot_enter_twice() {
        for exclusive in both() {
            let inside = exclusive.enter().expect("nobody is inside");
            assert!(exclusive.enter().is_none());
            assert!(exclusive.try_enter().is_none());
            drop(inside);
            assert!(exclusive.enter().is_some());
        }
    }

    #[test]
    fn a_callback_gets_the_value_that_the_call_above_it_lends() {
        for exclusive in both() {
            let mut inside = exclusive.enter().expect("nobody is inside");
            exclusive.within(&mut inside, || exclusive.with(|value| *value += 1));
            drop(inside);
            exclusive.with(|value| *value += 1);
            assert_eq!(exclusive.enter().map(|value| *value), Some(2));
        }
    }

    #[test]
    #[should_panic(expected = "called back only in `within`")]
    fn a_callback_panics_rather_than_drop_a_message_if_nothing_was_lent() {
        let [_, exclusive] = both();
        let _inside = exclusive.enter().expect("nobody is inside");
        exclusive.with(|_| ());
    }

    #[test]
    fn a_callback_of_a_callback_gets_the_value_only_if_that_lends_it_too() {
        for exclusive in both() {
            let mut inside = exclusive.enter().expect("nobody is inside");
            let again = |value: &mut i32| exclusive.within(value, || exclusive.with(|value| *value += 1));
            exclusive.within(&mut inside, || exclusive.with(again));
            assert_eq!(*inside, 1);
            let twice = || exclusive.with(|_| exclusive.with(|_| ()));
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                exclusive.within(&mut inside, twice);
            }));
            assert!(panicked.is_err() && exclusive.lent.load(Ordering::Relaxed).is_null());
        }
    }

    #[test]
    fn threads_take_turns() {
        const ROUNDS: usize = 20_000;
        let exclusive = Exclusive::locked(0_usize);
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
    fn a_panic_inside_lets_the_next_caller_enter() {
        for exclusive in both() {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _inside = exclusive.enter();
                panic!("as the test wants it");
            }));
            assert!(panicked.is_err());
            assert!(exclusive.enter().is_some());
        }
    }
}

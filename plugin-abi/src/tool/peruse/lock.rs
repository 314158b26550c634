// SPDX-License-Identifier: MIT OR Apache-2.0
//! `PERUSE_Lock` and `PERUSE_Unlock`: one lock for a tool's own data, held by a thread (5.2.16, 5.2.17).
//!
//! A thread that has it and asks again is refused, as is one that gives back what it does not have. Within a callback nobody waits:
//! where the lock is not free it is not grantable, then and for the rest of that callback. Grade: setup; within a callback it is
//! one try. Threads: any. Tests: at the end of the file.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// This thread has it already.
    Mine,
    /// This thread does not have it.
    NotMine,
    /// Not within this callback.
    NotGrantable,
}

/// The owner: the address of its mark, or 0.
static OWNER: Mutex<usize> = Mutex::new(0);
static FREE: Condvar = Condvar::new();

#[derive(Clone, Copy, PartialEq, Eq)]
enum Upcall {
    No,
    Yes,
    /// Within one in which the lock could not be granted.
    Refused,
}

thread_local! {
    static UPCALL: Cell<Upcall> = const { Cell::new(Upcall::No) };
}

/// A number that no other living thread has.
fn me() -> usize {
    UPCALL.with(|mark| std::ptr::from_ref(mark).addr())
}

fn owner() -> MutexGuard<'static, usize> {
    OWNER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A callback is running, until this is dropped.
pub(super) struct InUpcall(Upcall);

impl InUpcall {
    pub(super) fn new() -> InUpcall {
        InUpcall(UPCALL.replace(Upcall::Yes))
    }
}

impl Drop for InUpcall {
    fn drop(&mut self) {
        UPCALL.set(self.0);
    }
}

/// Takes the lock; outside of a callback it waits for it.
pub(super) fn lock() -> Result<(), Refused> {
    let me = me();
    let mut owner = owner();
    if *owner == me {
        return Err(Refused::Mine);
    }
    if UPCALL.get() != Upcall::No && (*owner != 0 || UPCALL.get() == Upcall::Refused) {
        UPCALL.set(Upcall::Refused);
        return Err(Refused::NotGrantable);
    }
    while *owner != 0 {
        owner = FREE.wait(owner).unwrap_or_else(PoisonError::into_inner);
    }
    *owner = me;
    Ok(())
}

/// Gives the lock back.
pub(super) fn unlock() -> Result<(), Refused> {
    let mut owner = owner();
    if *owner != me() {
        return Err(Refused::NotMine);
    }
    *owner = 0;
    FREE.notify_one();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_lock_is_a_threads_own_and_is_not_waited_for_within_a_callback() {
        assert_eq!(unlock(), Err(Refused::NotMine));
        assert_eq!(lock(), Ok(()));
        assert_eq!(lock(), Err(Refused::Mine));
        let (ready, wait) = channel();
        let other = std::thread::spawn(move || {
            assert_eq!(unlock(), Err(Refused::NotMine));
            {
                let _upcall = InUpcall::new();
                assert_eq!(lock(), Err(Refused::NotGrantable));
                ready.send(()).expect("the other end waits");
            }
            // Outside it waits until the first gives it back.
            assert_eq!(lock(), Ok(()));
            let _upcall = InUpcall::new();
            assert_eq!(unlock(), Ok(()));
            assert_eq!(lock(), Ok(()));
            assert_eq!(unlock(), Ok(()));
        });
        wait.recv().expect("the other thread is at it");
        assert_eq!(unlock(), Ok(()));
        other.join().expect("no panic");
        let _upcall = InUpcall::new();
        UPCALL.set(Upcall::Refused);
        assert_eq!(lock(), Err(Refused::NotGrantable), "for the rest of the callback, also once it is free");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `PERUSE_Lock` and `PERUSE_Unlock`: one lock for a tool's own data, held by a thread (5.2.16, 5.2.17). A thread waits
//! until no other thread holds the lock, even within a callback, because the holder calls nothing of MPI. It is an
//! error to take a lock that this thread holds, or to release one that it does not hold. Within a callback that has
//! interrupted the lock's holder the lock is not grantable. Grade: setup. Threads: any. Tests: below.

use std::cell::Cell;

use parking_lot::{Condvar, Mutex};

use super::Code;
use crate::runtime::listeners;

static TAKEN: Mutex<bool> = Mutex::new(false);
static FREE: Condvar = Condvar::new();

#[derive(Clone, Copy, PartialEq, Eq)]
enum Upcall {
    No,
    Yes,
    /// Within a callback whose thread held the lock before.
    NotGrantable,
}

thread_local! {
    static UPCALL: Cell<Upcall> = const { Cell::new(Upcall::No) };
    static HAS_IT: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as inside a callback, until this is dropped.
pub(super) struct InUpcall(Upcall);

impl InUpcall {
    pub(super) fn new() -> InUpcall {
        let has_it = HAS_IT.get();
        InUpcall(UPCALL.replace(if has_it { Upcall::NotGrantable } else { Upcall::Yes }))
    }
}

impl Drop for InUpcall {
    fn drop(&mut self) {
        UPCALL.set(self.0);
    }
}

/// Returns whether this thread may wait for callbacks in other threads: not from within a callback, and not while it
/// holds the lock, for which they may be waiting.
pub(super) fn may_wait_for_callbacks() -> bool {
    UPCALL.get() == Upcall::No && !HAS_IT.get()
}

/// Takes the lock; waits for other threads.
pub(super) fn lock() -> Result<(), Code> {
    if UPCALL.get() == Upcall::NotGrantable {
        return Err(Code::LockNotGrantable);
    }
    if HAS_IT.get() {
        return Err(Code::Lock);
    }
    let mut taken = TAKEN.lock();
    FREE.wait_while(&mut taken, |taken| *taken);
    *taken = true;
    listeners::set_locked(true);
    HAS_IT.set(true);
    Ok(())
}

pub(super) fn unlock() -> Result<(), Code> {
    if !HAS_IT.replace(false) {
        return Err(Code::Lock);
    }
    let mut taken = TAKEN.lock();
    *taken = false;
    listeners::set_locked(false);
    drop(taken);
    FREE.notify_one();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    use crate::tool::tests::held_up;

    #[test]
    fn the_lock_is_a_threads_own_and_others_wait_for_it_within_a_callback_as_well() {
        assert_eq!(unlock(), Err(Code::Lock));
        assert_eq!(lock(), Ok(()));
        assert_eq!(lock(), Err(Code::Lock));
        let (sender, receiver) = channel();
        let other = held_up::begin(move || {
            assert_eq!(unlock(), Err(Code::Lock));
            assert!(may_wait_for_callbacks());
            let _upcall = InUpcall::new();
            assert!(!may_wait_for_callbacks());
            assert_eq!(lock(), Ok(()));
            sender.send(()).expect("the other end waits");
            assert_eq!(lock(), Err(Code::Lock));
            assert_eq!(unlock(), Ok(()));
        });
        assert!(receiver.try_recv().is_err(), "it has it while this one has");
        assert_eq!(unlock(), Ok(()));
        receiver.recv().expect("it is the other thread's");
        other.join().expect("no panic");
        callbacks_of_the_thread_that_has_it();
    }

    /// Called by one test, because there is only one lock.
    fn callbacks_of_the_thread_that_has_it() {
        assert_eq!(lock(), Ok(()));
        assert!(!may_wait_for_callbacks());
        {
            let _upcall = InUpcall::new();
            assert_eq!(lock(), Err(Code::LockNotGrantable));
            assert_eq!(unlock(), Ok(()));
            assert_eq!(lock(), Err(Code::LockNotGrantable), "for the rest of the callback, also once it is free");
        }
        assert_eq!(unlock(), Err(Code::Lock));
        let _upcall = InUpcall::new();
        assert_eq!(lock(), Ok(()));
        assert_eq!(unlock(), Ok(()));
    }
}

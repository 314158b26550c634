// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and stops the threads of this tool, and takes locks even if a thread has panicked while it held them. Called
//! by `listening` and `intervals`. Grade: setup; a thread sleeps by [`Stop::sleep`]. Threads: any. Tests: the callers'.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::mpi;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports that a started thread is about to sleep for the first time.
pub(crate) struct Ready(SyncSender<()>);

impl Ready {
    pub(crate) fn tell(self) {
        // The receiver is gone if the start has been given up.
        let _ = self.0.try_send(());
    }
}

/// Starts a thread with all signals blocked. Returns once it reports that it is ready; `None`: it never becomes ready.
///
/// Before it is ready, the thread allocates its heap with `mmap` and `munmap`. Open MPI patches hooks into these when
/// it first registers memory, and a thread that returned from `munmap` just then would execute half a hook.
pub(crate) fn start(name: &str, run: impl FnOnce(Ready) + Send + 'static) -> Option<JoinHandle<()>> {
    let before = mpi::block_signals();
    let (ready, is_ready) = sync_channel(1);
    let thread = Builder::new().name(name.to_owned()).spawn(move || run(Ready(ready)));
    mpi::restore_signals(&before);
    let thread = thread.ok()?;
    is_ready.recv().ok().map(|()| thread)
}

/// Request to a thread to end.
#[derive(Default)]
pub(crate) struct Stop {
    is_set: Mutex<bool>,
    told: Condvar,
}

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        *lock(&self.is_set)
    }

    pub(crate) fn set(&self) {
        *lock(&self.is_set) = true;
        self.told.notify_all();
    }

    /// Sleeps for `duration`. Returns true if the thread is to end.
    pub(crate) fn sleep(&self, duration: Duration) -> bool {
        let slept = self.told.wait_timeout_while(lock(&self.is_set), duration, |is_set| !*is_set);
        *slept.unwrap_or_else(PoisonError::into_inner).0
    }
}

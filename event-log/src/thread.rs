// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and stops the threads of this tool, and takes locks that a panic in another one does not close.
//!
//! Called by `session`, `recording` and `intervals`. Grade: setup; a thread sleeps by [`Stop::sleep`]. Threads: any.
//! Tests: by those who call it.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::mpi;

/// The content of a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A started thread is about to sleep for the first time.
pub(crate) struct Ready(SyncSender<()>);

impl Ready {
    /// Says so.
    pub(crate) fn tell(self) {
        // Nobody waits where the start has been given up.
        let _ = self.0.try_send(());
    }
}

/// Starts a thread of that name, which takes no signal. Returns when it says that it is ready; `None`: the system gives
/// none, or it ended before.
///
/// Until it is ready it gets its heap, by `mmap` and `munmap`, over which Open MPI writes hooks when it first registers
/// memory. A thread that comes back from `munmap` at that moment executes half a hook.
pub(crate) fn start(name: &str, run: impl FnOnce(Ready) + Send + 'static) -> Option<JoinHandle<()>> {
    let before = mpi::block_signals();
    let (ready, is_ready) = sync_channel(1);
    let thread = Builder::new().name(name.to_owned()).spawn(move || run(Ready(ready)));
    mpi::restore_signals(&before);
    let thread = thread.ok()?;
    is_ready.recv().ok().map(|()| thread)
}

/// That a thread is to end.
#[derive(Default)]
pub(crate) struct Stop {
    is_set: Mutex<bool>,
    told: Condvar,
}

impl Stop {
    /// Whether it is.
    pub(crate) fn is_set(&self) -> bool {
        *lock(&self.is_set)
    }

    /// Says so, also to who sleeps.
    pub(crate) fn set(&self) {
        *lock(&self.is_set) = true;
        self.told.notify_all();
    }

    /// Sleeps so long; true: it is to end.
    pub(crate) fn sleep(&self, duration: Duration) -> bool {
        let slept = self.told.wait_timeout_while(lock(&self.is_set), duration, |is_set| !*is_set);
        *slept.unwrap_or_else(PoisonError::into_inner).0
    }
}

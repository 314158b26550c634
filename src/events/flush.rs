// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivering all that waits, where a tool itself has called and nothing of MPI is on the stack: the only places where callbacks that
//! may do anything can be called.
//!
//! Each buffer is emptied of what is in it now: a callback that communicates raises events of its own, which wait for the next time.
//! Grade: setup. Threads: any; buffers are emptied by one at a time. Tests: `tests/flush.rs`.

use super::attention::{self, RINGS};
use super::deliver::{self, Emptying};
use super::registry::{self, Entry};
use super::row::Safety;
use super::thread::{self, Inside};

/// Whether a callback runs in this thread.
#[must_use]
pub fn is_delivering() -> bool {
    thread::with(&mut (), |thread, ()| thread.is_busy())
}

/// Delivers what waits now: in this thread, in the ports as far as its turn has come, in all buffers. Where another thread empties
/// these, they are left to it. From within a callback it does nothing. `context` says what callbacks must be fit for here.
pub fn serve(context: Safety) {
    if attention::is_work() {
        deliver_waiting(context);
    }
}

/// As [`serve`], of all that has happened before: waits until the turn of what ports hold has come ([`deliver::catch_up`] says how
/// long at most) and for a thread that empties buffers, so the caller holds nothing that a callback may want. False, and nothing
/// is done, from within a callback.
#[must_use]
pub fn flush(context: Safety) -> bool {
    if is_delivering() {
        return false;
    }
    deliver::catch_up(context);
    while !deliver_waiting(context) {
        std::thread::yield_now();
    }
    true
}

/// Returns whether no other thread was emptying buffers.
#[cold]
fn deliver_waiting(context: Safety) -> bool {
    thread::with(&mut (), |thread, ()| {
        if thread.is_busy() {
            return true;
        }
        let emptied = {
            let mut inside = Inside::new(thread);
            inside.run_staged();
            deliver::pump(&mut inside, context);
            empty_all(&mut inside, context)
        };
        deliver::settle_in(thread, context);
        emptied
    })
}

/// Empties all buffers of what is in them now; false where another thread is at it.
fn empty_all(inside: &mut Inside<'_>, context: Safety) -> bool {
    let Some(_emptying) = Emptying::try_new() else { return false };
    if attention::unflag(RINGS) {
        let all = registry::everything();
        let waiting: Vec<usize> = all.iter().map(|entry| entry.handle.waiting() as usize).collect();
        for (entry, waiting) in all.iter().zip(waiting) {
            empty(inside, entry, waiting, context);
        }
    }
    true
}

/// Delivers so many events of a buffer, by the callbacks there are when each is, and tells what was lost.
fn empty(inside: &mut Inside<'_>, entry: &Entry, waiting: usize, context: Safety) {
    let (mut left, id) = (waiting, entry.handle.id);
    let mut delivered = deliver::drain(inside, entry, context, left);
    // Fewer than asked for where a callback has changed the callbacks.
    while delivered > 0 && delivered < left {
        left -= delivered;
        let all = registry::everything();
        let Some(changed) = all.iter().find(|entry| entry.handle.id == id) else { return };
        delivered = deliver::drain(inside, changed, context, left);
    }
}

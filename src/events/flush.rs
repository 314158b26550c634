// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivering all that waits, where a tool itself has called and nothing of MPI is on the stack: the only places where
//! callbacks that may do anything can be called.
//!
//! Each buffer is emptied of what is in it now: a callback that communicates raises events of its own, which wait for
//! the next time. Grade: setup. Threads: any; buffers are emptied by one at a time. Tests: `tests/flush.rs`.

use super::deliver;
use super::drain::{Emptying, drain};
use super::event_type::Safety;
use super::free::finish_freed_in;
use super::interest_mask::{self, BUFFERS};
use super::registry::{self, Entry};
use super::thread::{self, Delivery};

/// Whether a callback runs in this thread.
#[must_use]
pub fn is_delivering() -> bool {
    thread::with(&mut (), |thread, ()| thread.is_delivering())
}

/// Delivers what waits now: in this thread, in the ports as far as its turn has come, in all buffers. Where another
/// thread empties these, they are left to it. From within a callback it does nothing. `safety` says what callbacks must
/// be fit for here.
pub fn deliver_pending(safety: Safety) {
    if interest_mask::has_pending() {
        deliver_now(safety);
    }
}

/// As [`deliver_pending`], of all that has happened before: waits until the turn of what ports hold has come (a matter
/// of milliseconds) and for threads that deliver, so the caller holds nothing that a callback may want. False,
/// and nothing is done, from within a callback.
#[must_use]
pub fn flush(safety: Safety) -> bool {
    if is_delivering() {
        return false;
    }
    deliver::catch_up_wholly(safety);
    // What they have taken from a port is delivered then.
    deliver::wait_for_callbacks();
    while !deliver_now(safety) {
        std::thread::yield_now();
    }
    true
}

/// Returns whether no other thread was emptying buffers.
#[cold]
fn deliver_now(safety: Safety) -> bool {
    thread::with(&mut (), |thread, ()| {
        if thread.is_delivering() {
            return true;
        }
        let emptied = {
            let mut delivery = Delivery::new(thread);
            delivery.deliver_staged();
            deliver::deliver_ports(&mut delivery, safety);
            empty_all(&mut delivery, safety)
        };
        finish_freed_in(thread, safety);
        emptied
    })
}

/// Empties all buffers of what is in them now; false where another thread is at it.
fn empty_all(delivery: &mut Delivery<'_>, safety: Safety) -> bool {
    let Some(_emptying) = Emptying::try_new() else { return false };
    if interest_mask::clear_pending(BUFFERS) {
        let all = registry::all_entries();
        let waiting: Vec<usize> = all.iter().map(|entry| entry.registration.waiting() as usize).collect();
        for (entry, waiting) in all.iter().zip(waiting) {
            empty(delivery, entry, waiting, safety);
        }
    }
    true
}

/// Delivers so many events of a buffer, by the callbacks there are when each is, and tells what was lost.
fn empty(delivery: &mut Delivery<'_>, entry: &Entry, waiting: usize, safety: Safety) {
    let (mut left, id) = (waiting, entry.registration.id);
    let mut delivered = drain(delivery, entry, safety, left);
    // Fewer than asked for where a callback has changed the callbacks.
    while delivered > 0 && delivered < left {
        left -= delivered;
        let all = registry::all_entries();
        let Some(changed) = all.iter().find(|entry| entry.registration.id == id) else { return };
        delivered = drain(delivery, changed, safety, left);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers all waiting events where a tool itself has called and no MPI call is on the stack: the only place for
//! callbacks of the level [`Safety::None`](super::Safety). New events that such a callback raises wait for the next
//! call. Path: setup. Threads: any; one at a time empties buffers. Tests: `tests/flush.rs`.

use super::deliver;
use super::drain::{Emptying, Until};
use super::event_type::Safety;
use super::interest_mask::{self, BUFFERS};
use super::thread::{self, Delivery};

/// Whether a callback runs in this thread.
#[must_use]
pub fn is_delivering() -> bool {
    thread::with(&mut (), |thread, ()| thread.is_delivering())
}

/// Delivers the staged events of this thread, the due events of the ports, and all buffers, unless another thread is
/// emptying them. Does nothing within a callback. `safety` is the level that callbacks must have here.
pub fn deliver_pending(safety: Safety) {
    if interest_mask::has_pending() {
        deliver_now(safety);
    }
}

/// Like [`deliver_pending`], for all earlier events: waits until the ports' events are due (some milliseconds) and for
/// delivering threads, so the caller must hold no lock that a callback may take. Returns false within a callback.
#[must_use]
pub fn flush(safety: Safety) -> bool {
    if is_delivering() {
        return false;
    }
    deliver::catch_up_wholly(safety);
    // Then the events that these threads have taken from a port are delivered.
    deliver::wait_for_callbacks();
    while !deliver_now(safety) {
        std::thread::yield_now();
    }
    true
}

#[cold]
fn deliver_now(safety: Safety) -> bool {
    deliver::deliver_with(safety, |delivery| empty_all(delivery, safety)).unwrap_or(true)
}

/// Delivers the events that are in buffers now. False if another thread does, or has not finished adding one.
fn empty_all(delivery: &mut Delivery<'_>, safety: Safety) -> bool {
    let Some(mut emptying) = Emptying::try_new() else { return false };
    if !interest_mask::is_pending(BUFFERS) {
        return true;
    }
    let (_, is_unfinished) = emptying.empty(delivery, usize::MAX, Until::now(), safety, None);
    !is_unfinished
}

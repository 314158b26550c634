// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers events from registrations' buffers, and reports dropped events.
//!
//! Buffers are emptied by one thread at a time ([`Emptying`]), so that callbacks that are not thread-safe may run.
//! Called by `deliver.rs` (from progress), `flush.rs` (from a tool's call) and `free.rs` (for the last time). Path: hot
//! where events flow: no allocation; no lock is held while a callback runs. Threads: any. Tests: `tests/buffers.rs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::event_type::Safety;
use super::interest_mask::{self, BUFFERS};
use super::registration::Registration;
use super::registry::{self, Entry};
use super::source::BufferedDeliveries;
use super::thread::{self, Delivery};

/// Whether a thread empties buffers.
static EMPTYING: AtomicBool = AtomicBool::new(false);

/// The registration to begin with, so that none is always last.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// The right to empty buffers; given back also when a callback panics.
pub(super) struct Emptying;

impl Emptying {
    pub(super) fn try_new() -> Option<Emptying> {
        // Constructed only by the thread that has the right, because its drop returns the right.
        if EMPTYING.swap(true, Ordering::SeqCst) { None } else { Some(Emptying) }
    }
}

impl Drop for Emptying {
    fn drop(&mut self) {
        EMPTYING.store(false, Ordering::SeqCst);
    }
}

/// Empties buffers, up to so many events.
pub(super) fn empty(delivery: &mut Delivery<'_>, budget: usize, safety: Safety) -> usize {
    let Some(_emptying) = Emptying::try_new() else { return 0 };
    if !interest_mask::is_pending(BUFFERS) || thread::is_first_thread_in_callback() {
        return 0;
    }
    interest_mask::clear_pending(BUFFERS);
    let all = registry::all_entries();
    let (mut left, first) = (budget, FIRST.fetch_add(1, Ordering::Relaxed));
    for index in 0..all.len() {
        left -= drain(delivery, &all[(first + index) % all.len()], safety, left);
    }
    budget - left
}

/// The right to take from a registration's buffer.
struct Draining<'a>(&'a Registration);

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.0.draining.store(false, Ordering::SeqCst);
    }
}

/// Delivers up to `budget` events from one buffer, and tells what was lost. Returns how many.
pub(super) fn drain(delivery: &mut Delivery<'_>, entry: &Entry, safety: Safety, budget: usize) -> usize {
    let registration = &*entry.registration;
    if registration.ring.is_empty() && !registration.has_unreported_drops() {
        return 0;
    }
    if registration.draining.swap(true, Ordering::SeqCst) {
        return 0;
    }
    let draining = Draining(registration);
    let revision = registration.revision.load(Ordering::SeqCst);
    let mut run = BufferedDeliveries::new();
    let mut count = 0;
    if let Some(callback) = entry.calls.fit(safety) {
        while count < budget && registration.revision.load(Ordering::Relaxed) == revision {
            let Some(instance) = registration.ring.pop(|_| registration.used) else { break };
            // A loss is told before what its source raised after it.
            if entry.calls.must_report_drops(registration) {
                entry.calls.report_drops(registration, safety);
            }
            run.count(instance.source);
            count += 1;
            callback(&instance, registration, safety);
            // What the callback raised; for this registration it waits behind what is in the buffer.
            delivery.deliver_staged();
        }
    }
    drop(run);
    if entry.calls.must_report_drops(registration) {
        entry.calls.report_drops(registration, safety);
        delivery.deliver_staged();
    }
    drop(draining);
    // Here no callback may be fit for it; elsewhere one may.
    if !registration.ring.is_empty() && !entry.calls.is_empty() {
        interest_mask::set_pending(BUFFERS);
    }
    count
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deferred delivery: first the events that this thread has staged and those of the ports' sources, then those in
//! buffers (`drain.rs`); at last it finishes freed registrations. Called from progress, where no lock is held
//! ([`progress`]). Grade: hot where events flow: no allocation; it holds the registry's lock for a moment, never while
//! a callback runs. Threads: any. Tests: `tests/delivery/`, `tests/sources/ports.rs`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::drain::{self, Emptying};
use super::thread::{self, Delivery};
use crate::events::interest_mask::{self, BUFFERS, CLOCKS, NEARLY_FULL, PORTS};
use crate::events::registrations::free::finish_freed_in;
use crate::events::registrations::registration::Recipients;
use crate::events::registrations::registry;
use crate::events::sources::port_source::{LONGEST_BATCH_NS, PortSource, tracked_clocks};
use crate::events::sources::source;
use crate::events::{HostClock, PolledBatch, Safety, SourceId};

/// The ports' sources that hold events, a bit each.
static HOLDING: AtomicU64 = AtomicU64::new(0);

/// Longest time for which a port holds its events, with a margin.
const LONGEST_HELD_NS: u64 = 5 * LONGEST_BATCH_NS;

/// Longest time that [`catch_up`] takes: a port holds an event for less if it knows of no earlier one to come.
const CATCH_UP_NS: u64 = 200_000;

const SAMPLING_INTERVAL: usize = 16;

/// Number of calls of [`progress`] with pending work, each after polls of all ports; concurrent calls may count as one.
static CALLS: AtomicUsize = AtomicUsize::new(0);

const BUDGET: usize = 1024;

#[inline]
pub(in crate::events) fn set_port_pending(source: SourceId, is_nearly_full: bool) {
    HOLDING.fetch_or(1 << source.index(), Ordering::SeqCst);
    interest_mask::set_pending(PORTS);
    if is_nearly_full {
        interest_mask::set_pending(NEARLY_FULL);
    }
}

/// Delivers the waiting events, if any. Callbacks run here, so the caller must hold no lock that an ibex call within a
/// callback could need. `safety` is the level that callbacks must have.
#[inline]
pub fn progress(safety: Safety) {
    if interest_mask::has_pending() && (is_sampling_call() || interest_mask::is_urgent()) {
        deliver(BUDGET, safety);
    }
}

/// Delivers staged events and the due events of ports, as [`progress`] does, but none from buffers. Called before a
/// poll, so that the caller of the last poll continues before the delivery of its events.
#[inline]
pub fn deliver_due(safety: Safety) {
    if interest_mask::holds_events() {
        deliver_with(safety, |_| ());
    }
}

/// Whether this call, one in [`SAMPLING_INTERVAL`], samples the ports' clocks even if there is nothing else to do.
fn is_sampling_call() -> bool {
    let calls = CALLS.load(Ordering::Relaxed).wrapping_add(1);
    CALLS.store(calls, Ordering::Relaxed);
    calls.is_multiple_of(SAMPLING_INTERVAL)
}

/// Delivers all staged events, the due events of the ports, and up to `budget` events from buffers. Does nothing within
/// a callback. Otherwise like [`progress`].
#[cold]
pub fn deliver(budget: usize, safety: Safety) {
    deliver_counted(budget, safety);
}

pub(in crate::events) fn deliver_counted(budget: usize, safety: Safety) -> usize {
    deliver_with(safety, |delivery| drain::empty(delivery, budget, safety)).unwrap_or(0)
}

/// Delivers all waiting events of this thread and of the ports, then calls `empty` for those in buffers, and finishes
/// freed registrations. Within a callback it does nothing, and returns `None`.
#[cold]
#[inline(never)]
fn deliver_with<R>(safety: Safety, empty: impl Fn(&mut Delivery<'_>) -> R) -> Option<R> {
    thread::with(&mut (), |thread, ()| {
        if thread.is_delivering() {
            return None;
        }
        let emptied = {
            let mut delivery = Delivery::new(thread);
            delivery.deliver_all_staged();
            deliver_ports(&mut delivery, safety);
            empty(&mut delivery)
        };
        finish_freed_in(thread, safety);
        Some(emptied)
    })
}

/// Begins a batch: this thread has polled completions of a port and has yet to raise their events. Later events wait
/// until [`end_batch`]. Call it before another thread polls the same queue. `None` if `source` is not a port's.
#[inline]
#[must_use]
pub fn begin_batch(source: SourceId) -> Option<PolledBatch> {
    source.source().port().map(PortSource::begin_batch)
}

/// Ends a batch: all its events are raised.
#[inline]
pub fn end_batch(source: SourceId, batch: PolledBatch) {
    if let Some(port) = source.source().port() {
        port.end_batch(batch);
    }
}

/// Delivers the staged events and those of the ports, for a caller that is about to stop listening. Waits until they
/// are due and other threads have delivered theirs, at most a fifth of a millisecond. Not within a callback.
pub fn catch_up(safety: Safety) {
    catch_up_within(safety, CATCH_UP_NS);
}

fn ports() -> impl Iterator<Item = &'static PortSource> {
    (0..source::count()).filter_map(|index| SourceId(index as u16).source().port())
}

#[cold]
fn catch_up_within(safety: Safety, nanoseconds: u64) {
    let clock = HostClock::get();
    let limit = clock.now() + clock.ticks(nanoseconds);
    loop {
        // Read before the delivery, so that a thread that waited for a processor still delivers the events due by now.
        let is_last = clock.now() >= limit;
        deliver(0, safety);
        let more_is_held = interest_mask::is_pending(PORTS) || ports().any(PortSource::is_delivered);
        if is_last || !more_is_held || thread::is_delivering() {
            return;
        }
        std::hint::spin_loop();
    }
}

/// Like [`catch_up`], and also delivers the events that other threads polled: all earlier events, unless new ones
/// arrive without end. Waits for callbacks in other threads, so the caller must hold no lock that one of them may take.
#[cold]
pub fn catch_up_all(safety: Safety) {
    let clock = HostClock::get();
    let limit = clock.now() + clock.ticks(CATCH_UP_NS);
    // Two rounds after the limit: a thread that was already delivering may have looked for events too early.
    let mut rounds = 0;
    while rounds < 2 && !thread::is_delivering() {
        let is_held = thread::have_ended_threads_events() || ports().any(PortSource::holds_events);
        if is_held {
            rounds += u32::from(clock.now() >= limit);
            deliver(0, safety);
        }
        wait_for_callbacks();
        if !is_held {
            return;
        }
    }
}

/// Waits until each thread that is delivering now has finished. Does nothing within a callback. Like [`catch_up_all`].
#[cold]
pub fn wait_for_callbacks() {
    if !thread::is_delivering() {
        let mut others = registry::DELIVERING.grace_period();
        while !others.is_over() {
            std::thread::yield_now();
        }
    }
}

/// Delivers the due events of the ports' sources. Events for callbacks that may do anything go into buffers even if
/// such a callback could run now, because earlier events may wait there.
fn deliver_ports(delivery: &mut Delivery<'_>, safety: Safety) {
    let safety = safety.max(Safety::MpiRestricted);
    if !interest_mask::is_pending(PORTS | CLOCKS) {
        return;
    }
    interest_mask::clear_pending(PORTS | NEARLY_FULL);
    let tracked = tracked_clocks();
    let due = Some((HostClock::get().now(), CALLS.load(Ordering::Relaxed)));
    let mut holding = HOLDING.swap(0, Ordering::SeqCst) | tracked;
    while holding != 0 {
        let id = SourceId(holding.trailing_zeros() as u16);
        holding &= holding - 1;
        let Some(port) = id.source().port() else { continue };
        if port.deliver(due, |instance| delivery.dispatch(instance, safety, Recipients::Ordered)) {
            set_port_pending(id, false);
        }
    }
}

/// Delivers all events of a port's source, due or not; an earlier one that comes later is late. Not within a callback.
pub(in crate::events) fn deliver_port_all(source: SourceId, safety: Safety) {
    thread::with(&mut (), |thread, ()| {
        if let Some(port) = source.source().port()
            && !thread.is_delivering()
        {
            let mut delivery = Delivery::new(thread);
            port.deliver(None, |instance| delivery.dispatch(instance, safety, Recipients::Ordered));
        }
    });
}

/// Delivers the staged events of this thread, the due events of the ports, and all buffers, unless another thread is
/// emptying them. Called within a tool's own call, with no MPI call on the stack: only there may callbacks of the level
/// [`Safety::None`] run. New events that such a callback raises wait for the next call. Does nothing within a callback.
/// `safety` is the level that callbacks must have here. Setup.
pub fn deliver_pending(safety: Safety) {
    if interest_mask::has_pending() {
        deliver_now(safety);
    }
}

/// Like [`deliver_pending`], for all earlier events: waits until the ports' events are due (some milliseconds) and for
/// delivering threads, so the caller must hold no lock that a callback may take. Returns false within a callback.
#[must_use]
pub fn flush(safety: Safety) -> bool {
    if thread::is_delivering() {
        return false;
    }
    catch_up_within(safety, LONGEST_HELD_NS);
    // Other threads may have taken events from a port: this waits until they have delivered them.
    wait_for_callbacks();
    while !deliver_now(safety) {
        std::thread::yield_now();
    }
    true
}

#[cold]
fn deliver_now(safety: Safety) -> bool {
    deliver_with(safety, |delivery| empty_all(delivery, safety)).unwrap_or(true)
}

/// Delivers the events that are in buffers now. False if another thread does so, or has not finished adding one.
fn empty_all(delivery: &mut Delivery<'_>, safety: Safety) -> bool {
    let Some(mut emptying) = Emptying::try_new() else { return false };
    if !interest_mask::is_pending(BUFFERS) {
        return true;
    }
    let (_, is_unfinished) = emptying.empty(delivery, usize::MAX, safety, None);
    !is_unfinished
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matching events: the PML, which raises them, calls the tool's callback itself. It knows its listeners, and one
//! thread at a time enters it. So an event whose callback may run in place needs no delivery (`thread.rs`): [`call`]
//! runs the callback, and marks this thread as within it. Meanwhile the engine delivers no other event in this thread
//! and finishes no freed registration. An event whose callback may not run in place goes to its registration's buffer
//! ([`keep`]). Matching events occur one after the other, so their own source ([`matching_source`]) is ordered.
//!
//! Grade: hot while a tool listens; [`keep`] as `registrations/ring.rs`. Threads: [`call`], [`keep`] and [`stamp`] one
//! at a time; else any. Tests: `tests/delivery/direct.rs`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use ibex_ffi::clock::counter;
use ibex_ffi::thread;

use crate::events::registrations::ring::Head;
use crate::events::sources::source::MATCHING;
use crate::events::types::matching_table;
use crate::events::{EventInstance, HostClock, MatchingEvent, Registration, interest_mask, matching_source};

/// Number of the thread that is in a callback now; 0: none.
static WITHIN: AtomicUsize = AtomicUsize::new(0);

/// 1 once several threads raise events, so that callbacks may overlap.
static THREADS: AtomicU8 = AtomicU8::new(0);

static LAST: AtomicU64 = AtomicU64::new(0);

/// Whether the host's clock is known to be the processor's counter, in one load.
static HAS_COUNTER: AtomicBool = AtomicBool::new(false);

/// Reads the host's clock for a matching event. Never less than the last timestamp.
#[inline]
pub fn stamp() -> u64 {
    stamp_by_counter().unwrap_or_else(|| after_last(ask_clock()))
}

/// Like [`stamp`], without a call; `None` if the host's clock is not known to be the processor's counter.
#[inline(always)]
pub fn stamp_by_counter() -> Option<u64> {
    HAS_COUNTER.load(Ordering::Relaxed).then(|| after_last(counter()))
}

#[inline(always)]
fn after_last(now: u64) -> u64 {
    let now = now.max(LAST.load(Ordering::Relaxed));
    LAST.store(now, Ordering::Relaxed);
    now
}

#[cold]
#[inline(never)]
fn ask_clock() -> u64 {
    let clock = HostClock::get();
    HAS_COUNTER.store(clock.is_counter(), Ordering::Relaxed);
    clock.now()
}

/// Notes that several threads raise events from now on.
pub fn set_threads() {
    THREADS.store(1, Ordering::Relaxed);
}

/// Whether several threads raise events, so that a callback that runs in place must be thread-safe.
#[inline]
pub fn has_threads() -> bool {
    raising_threads() != 0
}

/// [`has_threads`] as a number, 0 or 1, to compare it with an earlier value.
#[inline(always)]
pub fn raising_threads() -> u8 {
    THREADS.load(Ordering::Relaxed)
}

#[inline(always)]
fn add(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Counts an event that goes to a buffer. Returns its number.
#[inline(always)]
fn next_number() -> u64 {
    let number = MATCHING[2].load(Ordering::Relaxed).wrapping_add(1);
    // Release: a thread that sees this number sees the earlier events in their buffers.
    MATCHING[2].store(number, Ordering::Release);
    number
}

pub(super) fn last_number() -> u64 {
    MATCHING[2].load(Ordering::Acquire)
}

/// Counts the delivery of an event to a further listener.
#[inline(always)]
pub fn count_further_delivery() {
    add(&MATCHING[1]);
}

/// Runs a callback, and marks this thread as within it.
#[inline(always)]
pub fn call(callback: impl FnOnce()) {
    add(&MATCHING[0]);
    // Release: a thread that finds none within a callback sees the effects of the last one.
    WITHIN.store(thread::number(), Ordering::Release);
    callback();
    WITHIN.store(0, Ordering::Release);
}

/// Whether this thread is within a callback that [`call`] runs.
#[inline]
pub fn is_within() -> bool {
    let within = WITHIN.load(Ordering::Acquire);
    within != 0 && within == thread::number()
}

pub(in crate::events) fn is_any_within() -> bool {
    WITHIN.load(Ordering::Acquire) != 0
}

/// Puts an event into a registration's buffer. A later delivery calls the callback, at a place where it may run.
#[inline]
pub fn keep(registration: &Registration, instance: &EventInstance) {
    if !registration.is_live() {
        return;
    }
    if registration.ring.push(instance, next_number(), registration.used).is_err() {
        let source = instance.source.source();
        source.count(&source.dropped);
        registration.count_dropped(instance.source, 1);
    }
    interest_mask::set_pending(interest_mask::BUFFERS);
}

/// Like [`keep`], for an event at `timestamp`, if the last look found room ([`Registration::look_for_room`]): claims
/// the room and then calls `event`. Returns false if the event was not kept.
#[inline(always)]
#[must_use]
pub fn keep_quickly(registration: &Registration, timestamp: u64, event: impl FnOnce() -> MatchingEvent) -> bool {
    let words = || event().words();
    let is_kept = registration.ring.push_alone::<{ matching_table::USED }>(timestamp, next_number, words);
    if is_kept {
        interest_mask::set_pending(interest_mask::BUFFERS);
    }
    is_kept
}

impl Registration {
    /// Looks how much room there is for [`keep_quickly`]. Returns true if half of the buffer, or more, is in use.
    pub fn look_for_room(&self) -> bool {
        self.ring.look_for_room(Head::new(self.event_type, matching_source()))
    }

    /// Whether the next event has nothing to wait for: no events in the buffer and no unreported losses.
    #[inline]
    pub fn is_direct(&self) -> bool {
        !self.must_buffer() && !self.has_unreported_drops()
    }
}

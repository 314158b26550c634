// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state with which a thread raises and delivers events: its source, its [`DeliveryCounter`], the lists of
//! registrations that it has seen, and its *staged* events, which it has raised and not yet delivered.
//!
//! A thread delivers one event at a time. It stages events that are raised within a callback, or while the caller holds
//! a lock (`stage` in `raise.rs`), and delivers them afterwards, in order. So a source stays ordered, callbacks do not
//! nest, and none runs under a lock of ibex. Another thread delivers those of a thread that ends ([`EndedThread`]).
//!
//! Grade: hot while a tool listens: no allocation, one locked instruction (for buffered events one more, and one per
//! buffer); the registry's lock at a thread's first event and after a change of registrations. Threads: each its own.
//! Tests: `tests/raise.rs`, `tests/threads.rs`.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::direct;
use super::quiescence::{DeliveryCounter, GracePeriod};
use crate::events::registrations::registration::Recipients;
use crate::events::registrations::registry::{self, DELIVERING, LIST_VERSIONS, Snapshot};
use crate::events::sources::source;
use crate::events::sync::Arc;
use crate::events::types::table::COUNT;
use crate::events::{EventInstance, HostTimestamp, Registration, Safety, SourceId, TypeId, interest_mask};

/// Most events that a thread stages, and the room for them from the start.
const STAGED: usize = 4096;
const ROOM: usize = 256;

/// Whether more than one thread raises events, so that callbacks may run at the same time.
static MULTITHREADED: AtomicBool = AtomicBool::new(false);

/// The last number given to a buffered event; matching events have their own (`direct.rs`).
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Returns the last number given. A thread that reads it sees all events buffered before that number was given.
pub(super) fn last_number() -> u64 {
    LAST_NUMBER.load(Ordering::Acquire)
}

fn next_number() -> u64 {
    LAST_NUMBER.fetch_add(1, Ordering::AcqRel) + 1
}

/// Grace period of the first thread: it may be in a callback that is not thread-safe when a second thread raises.
static FIRST_THREAD: Mutex<Option<GracePeriod>> = Mutex::new(None);

fn lone() -> MutexGuard<'static, Option<GracePeriod>> {
    FIRST_THREAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the first thread may still be in a callback that it ran in place because it was the only thread. Until it
/// has left, no other thread may run a callback that is not thread-safe.
pub(super) fn is_first_thread_in_callback() -> bool {
    let mut alone = lone();
    if alone.as_mut().is_some_and(GracePeriod::is_over) {
        *alone = None;
    }
    alone.is_some()
}

pub(super) type Staged = (EventInstance, Safety, Recipients);

thread_local! {
    static THREAD: Thread = Thread::new();
}

pub(in crate::events) struct Thread {
    counter: Arc<DeliveryCounter>,
    source: SourceId,
    shared: bool,
    last: Cell<u64>,
    delivering: Cell<bool>,
    staged: RefCell<VecDeque<Staged>>,
    /// The lists that the thread saw last. Borrowed during a walk; a thread walks one list at a time (`delivering`).
    snapshots: [RefCell<Option<Snapshot>>; COUNT],
}

/// Runs `run` with this thread's state. A thread that is ending gets a temporary one.
#[inline]
pub(in crate::events) fn with<A: ?Sized, R>(argument: &mut A, run: impl Fn(&Thread, &mut A) -> R) -> R {
    match THREAD.try_with(|thread| run(thread, argument)) {
        Ok(result) => result,
        Err(_) => run(&Thread::new(), argument),
    }
}

/// The number of this thread's source.
pub fn this_thread() -> u32 {
    with(&mut (), |thread, ()| thread.source.index() as u32)
}

/// Whether a callback runs in this thread.
pub fn is_delivering() -> bool {
    with(&mut (), |thread, ()| thread.is_delivering())
}

impl Thread {
    #[cold]
    fn new() -> Thread {
        let counter = Arc::new(DeliveryCounter::new());
        if DELIVERING.add(&counter) > 1 {
            // Locked before the flag is set, so that the next thread that delivers sees the grace period.
            let mut alone = lone();
            direct::set_threads();
            if !MULTITHREADED.swap(true, Ordering::SeqCst) {
                *alone = Some(DELIVERING.grace_period());
            }
        }
        let (source, floor) = source::assign_to_thread();
        Thread {
            counter,
            source,
            shared: source::is_shared(source),
            last: Cell::new(floor),
            delivering: Cell::new(false),
            staged: RefCell::new(VecDeque::with_capacity(ROOM)),
            snapshots: [const { RefCell::new(None) }; COUNT],
        }
    }

    /// Whether the thread is within a callback, also one that the PML calls itself ([`direct::call`]).
    pub(in crate::events) fn is_delivering(&self) -> bool {
        self.delivering.get() || direct::is_within()
    }

    #[inline]
    pub(in crate::events) fn stamp(&self, instance: &mut EventInstance, host: HostTimestamp) {
        let timestamp = host.0.max(self.last.get());
        self.last.set(timestamp);
        let source = self.source.source();
        source.count(&source.raised);
        instance.source = self.source;
        instance.timestamp = timestamp;
    }

    /// Delivers events now, or after those that are staged. False if this thread is delivering already: it stages them.
    #[inline]
    pub(in crate::events) fn raise(&self, instances: &[EventInstance], safety: Safety, recipients: Recipients) -> bool {
        if self.is_delivering() {
            for instance in instances {
                self.stage(instance, safety, recipients);
            }
            return false;
        }
        let mut delivery = Delivery::new(self);
        // Events that callbacks raise meanwhile come after all of these.
        let waits = self.has_staged();
        for instance in instances {
            if waits {
                self.stage(instance, safety, recipients);
            } else {
                delivery.dispatch(instance, safety, recipients);
            }
        }
        delivery.deliver_staged();
        true
    }

    fn has_staged(&self) -> bool {
        // A signal handler may have interrupted a borrow; it leaves the staged events alone.
        self.staged.try_borrow().is_ok_and(|staged| !staged.is_empty())
    }

    #[cold]
    pub(in crate::events) fn stage(&self, instance: &EventInstance, safety: Safety, recipients: Recipients) {
        let kept = self.staged.try_borrow_mut().is_ok_and(|mut staged| {
            if staged.is_empty() {
                interest_mask::add_staging_thread();
            }
            let room = staged.len() < STAGED;
            if room {
                staged.push_back((*instance, safety, recipients));
            }
            room
        });
        if !kept {
            drop_instance(instance, recipients);
        }
    }

    fn pop_staged(&self) -> Option<Staged> {
        let mut staged = self.staged.try_borrow_mut().ok()?;
        let first = staged.pop_front()?;
        if staged.is_empty() {
            interest_mask::remove_staging_thread();
        }
        Some(first)
    }

    /// The current list of a type, cached in the thread. `None`: no listener, or a signal handler interrupted a borrow.
    #[inline]
    fn snapshot(&self, event_type: TypeId) -> Option<Ref<'_, Option<Snapshot>>> {
        let version = LIST_VERSIONS[event_type.index()].load(Ordering::SeqCst);
        let known = self.snapshots[event_type.index()].try_borrow().ok()?;
        match &*known {
            Some(snapshot) if snapshot.version == version => Some(known),
            _ => {
                drop(known);
                self.refresh_snapshot(event_type)
            }
        }
    }

    #[cold]
    fn refresh_snapshot(&self, event_type: TypeId) -> Option<Ref<'_, Option<Snapshot>>> {
        let new = registry::snapshot(event_type);
        // Dropped after the borrow, because dropping a tool's callback may run any code.
        let old = std::mem::replace(&mut *self.snapshots[event_type.index()].try_borrow_mut().ok()?, new);
        drop(old);
        self.snapshots[event_type.index()].try_borrow().ok()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        DELIVERING.remove(&self.counter);
        let (staged, source) = (self.staged.take(), (!self.shared).then_some((self.source, self.last.get())));
        let ended = EndedThread { staged, source };
        if !ended.staged.is_empty() {
            ended_threads().push_back(ended);
        }
    }
}

/// A thread's delivery. It ends when this is dropped, even if a callback panics.
pub(in crate::events) struct Delivery<'a>(&'a Thread);

impl<'a> Delivery<'a> {
    #[inline]
    pub(in crate::events) fn new(thread: &'a Thread) -> Delivery<'a> {
        thread.delivering.set(true);
        thread.counter.enter();
        Delivery(thread)
    }

    /// Hands an event to every registration that wants it: calls its callback here, or fills its buffer.
    #[inline]
    pub(super) fn dispatch(&mut self, instance: &EventInstance, safety: Safety, recipients: Recipients) {
        let thread = self.0;
        let known = thread.snapshot(instance.event_type);
        let Some(Some(snapshot)) = known.as_deref() else { return };
        // Read after the thread entered its delivery: this sees the flag, or the thread that sets it sees the delivery.
        let needed = if MULTITHREADED.load(Ordering::SeqCst) { safety.max(Safety::ThreadSafe) } else { safety };
        let source = instance.source.source();
        let mut number = None;
        for entry in snapshot.list.iter() {
            let registration = &*entry.registration;
            if !registration.wants(instance, recipients) {
                continue;
            }
            if !registration.must_buffer()
                && !entry.calls.must_report_drops(registration)
                && let Some(callback) = entry.calls.fit(needed)
            {
                source.count(&source.delivered);
                callback(instance, registration, needed);
            } else {
                put_into_buffer(registration, instance, *number.get_or_insert_with(next_number));
            }
        }
    }

    #[inline]
    pub(in crate::events) fn deliver_staged(&mut self) {
        while interest_mask::has_staging_thread()
            && let Some((instance, safety, recipients)) = self.0.pop_staged()
        {
            self.dispatch(&instance, safety, recipients);
        }
    }

    pub(super) fn deliver_all_staged(&mut self) {
        self.deliver_staged();
        if !interest_mask::has_staging_thread() {
            return;
        }
        while let Some(mut ended) = take_ended_thread() {
            interest_mask::remove_staging_thread();
            while let Some((instance, safety, recipients)) = ended.staged.pop_front() {
                self.dispatch(&instance, safety, recipients);
                self.deliver_staged();
            }
        }
    }
}

impl Drop for Delivery<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.counter.leave();
        self.0.delivering.set(false);
    }
}

/// Events that were still staged when their thread ended. That thread must not deliver them, because the tool's
/// thread-local values may be gone. The next thread that delivers takes them, in each thread's order. Only then may a
/// new thread reuse the source.
struct EndedThread {
    /// At least one event.
    staged: VecDeque<Staged>,
    /// Source and last timestamp of the thread, freed after the events; `None` if it shared its source.
    source: Option<(SourceId, u64)>,
}

static ENDED: Mutex<VecDeque<EndedThread>> = Mutex::new(VecDeque::new());

fn ended_threads() -> MutexGuard<'static, VecDeque<EndedThread>> {
    ENDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the events of the thread that ended first. The caller delivers them; dropping the result frees the source.
fn take_ended_thread() -> Option<EndedThread> {
    ended_threads().pop_front()
}

pub(super) fn have_ended_threads_events() -> bool {
    !ended_threads().is_empty()
}

impl Drop for EndedThread {
    fn drop(&mut self) {
        if let Some((source, last)) = self.source {
            source::release(source, last);
        }
    }
}

/// Puts an event into a registration's buffer, or counts it as lost if that is full. Called by the control flow of the
/// event's source, within a delivery. `number` is the same in all buffers, given before the event enters the first.
#[inline]
fn put_into_buffer(registration: &Registration, instance: &EventInstance, number: u64) {
    let source = instance.source.source();
    if registration.ring.push(instance, number, registration.used).is_ok() {
        source.count(&source.buffered);
    } else {
        source.count(&source.dropped);
        registration.count_dropped(instance.source, 1);
    }
    interest_mask::set_pending(interest_mask::BUFFERS);
}

#[cold]
pub(in crate::events) fn drop_instance(instance: &EventInstance, recipients: Recipients) {
    let Some(Snapshot { list, .. }) = registry::snapshot(instance.event_type) else { return };
    let registrations = list.iter().map(|entry| &entry.registration);
    for registration in registrations.filter(|registration| registration.wants(instance, recipients)) {
        instance.source.source().count_dropped_later(1);
        registration.count_dropped(instance.source, 1);
        interest_mask::set_pending(interest_mask::BUFFERS);
    }
}

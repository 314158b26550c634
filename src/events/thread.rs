// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that raises and delivers events.
//!
//! A thread has its own state: its source, its [`Presence`], the lists it has seen, and the events it has raised and not yet
//! delivered. One delivers at a time: what is raised from within a callback, or while the caller holds a lock
//! (`stage` in `raise.rs`), waits in the thread and is delivered after, in order, so that a source stays ordered, callbacks do not nest and
//! none runs under a lock of ibex.
//!
//! Path: hot, behind the branch of a site: no allocation, no lock, one locked instruction (and one per buffer it goes to). The first event of a
//! thread, and the first after a change of registrations, take the registry's lock for a moment. Threads: each its own.
//! Tests: `tests/raise.rs`, `tests/threads.rs`.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::attention;
use super::deliver;
use super::handle::Audience;
use super::presence::{Grace, Presence};
use super::raise::Moment;
use super::record::Record;
use super::registry::{self, DELIVERING, EDITIONS, Snapshot};
use super::row::{Safety, TypeId};
use super::source::{self, SourceId};
use super::sync::Arc;
use super::table::COUNT;

/// How many events may wait in a thread; and for how many it has room from the start.
const STAGED: usize = 4096;
const ROOM: usize = 256;

/// Whether more than one thread raises: callbacks may then run at the same time.
static THREADED: AtomicBool = AtomicBool::new(false);

/// Who was delivering when a second thread came: within a callback that need not be thread-safe, maybe.
static ALONE: Mutex<Option<Grace>> = Mutex::new(None);

fn lone() -> MutexGuard<'static, Option<Grace>> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a thread may still be in a callback that it runs where the event happened because it was the only thread. Until it is not,
/// no other may run one that is not thread-safe.
pub(super) fn is_one_alone() -> bool {
    let mut alone = lone();
    if alone.as_mut().is_some_and(Grace::is_over) {
        *alone = None;
    }
    alone.is_some()
}

thread_local! {
    static THREAD: Thread = Thread::new();
}

/// What a thread needs to raise and deliver.
pub(super) struct Thread {
    presence: Arc<Presence>,
    source: SourceId,
    shared: bool,
    /// The timestamp of its last event.
    last: Cell<u64>,
    /// Whether it delivers now.
    busy: Cell<bool>,
    staged: RefCell<VecDeque<(Record, Safety, Audience)>>,
    /// The lists it saw last. Borrowed while one is gone through; a thread goes through one at a time (`busy`).
    snapshots: [RefCell<Option<Snapshot>>; COUNT],
}

/// Runs with this thread's state. A thread that is just ending gets one for the moment.
#[inline]
pub(super) fn with<A: ?Sized, R>(argument: &mut A, run: impl Fn(&Thread, &mut A) -> R) -> R {
    match THREAD.try_with(|thread| run(thread, argument)) {
        Ok(result) => result,
        Err(_) => run(&Thread::new(), argument),
    }
}

/// Whether this thread delivers now.
pub(super) fn is_busy() -> bool {
    with(&mut (), |thread, ()| thread.is_busy())
}

impl Thread {
    #[cold]
    fn new() -> Thread {
        let presence = Arc::new(Presence::new());
        if DELIVERING.join(&presence) > 1 {
            // Locked before: who delivers next sees who was alone.
            let mut alone = lone();
            if !THREADED.swap(true, Ordering::SeqCst) {
                *alone = Some(DELIVERING.grace());
            }
        }
        let (source, floor) = source::take_for_thread();
        Thread {
            presence,
            source,
            shared: source::is_shared(source),
            last: Cell::new(floor),
            busy: Cell::new(false),
            staged: RefCell::new(VecDeque::with_capacity(ROOM)),
            snapshots: [const { RefCell::new(None) }; COUNT],
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.get()
    }

    /// Stamps an event of this moment, on the thread's source.
    #[inline]
    pub(super) fn stamp(&self, record: &mut Record, moment: Moment) {
        let timestamp = moment.0.max(self.last.get());
        self.last.set(timestamp);
        self.source.source().count_raised();
        record.source = self.source;
        record.timestamp = timestamp;
    }

    /// Delivers events now, or after what waits.
    #[inline]
    pub(super) fn raise(&self, records: &[Record], context: Safety, audience: Audience) {
        if self.busy.get() {
            for record in records {
                self.stage(record, context, audience);
            }
            return;
        }
        let mut inside = Inside::new(self);
        // What callbacks raise meanwhile is later than all of these.
        let waits = self.has_staged();
        for record in records {
            if waits {
                self.stage(record, context, audience);
            } else {
                inside.dispatch(record, context, audience);
            }
        }
        inside.run_staged();
        drop(inside);
        // They may have freed registrations, too.
        if attention::is_leaving() {
            deliver::settle_in(self, context);
        }
    }

    fn has_staged(&self) -> bool {
        // A signal handler may have come in between; then what is staged is not its business.
        self.staged.try_borrow().is_ok_and(|staged| !staged.is_empty())
    }

    /// Lets an event wait in the thread.
    #[cold]
    pub(super) fn stage(&self, record: &Record, context: Safety, audience: Audience) {
        let kept = self.staged.try_borrow_mut().is_ok_and(|mut staged| {
            if staged.is_empty() {
                attention::count_staging();
            }
            let room = staged.len() < STAGED;
            if room {
                staged.push_back((*record, context, audience));
            }
            room
        });
        if !kept {
            lose(record, audience);
        }
    }

    fn unstage(&self) -> Option<(Record, Safety, Audience)> {
        let mut staged = self.staged.try_borrow_mut().ok()?;
        let first = staged.pop_front()?;
        if staged.is_empty() {
            attention::count_staged();
        }
        Some(first)
    }

    /// The list of a type as of now, kept in the thread from one event to the next. `None` when nobody listens, or from within a
    /// signal handler that came while this looked.
    #[inline]
    fn snapshot(&self, kind: TypeId) -> Option<Ref<'_, Option<Snapshot>>> {
        let edition = EDITIONS[kind.index()].load(Ordering::SeqCst);
        let known = self.snapshots[kind.index()].try_borrow().ok()?;
        match &*known {
            Some(snapshot) if snapshot.edition == edition => Some(known),
            _ => {
                drop(known);
                self.renewed(kind)
            }
        }
    }

    #[cold]
    fn renewed(&self, kind: TypeId) -> Option<Ref<'_, Option<Snapshot>>> {
        let new = registry::snapshot(kind);
        // What the old one held may be a tool's, and do anything when it is dropped: after the borrow.
        let old = std::mem::replace(&mut *self.snapshots[kind.index()].try_borrow_mut().ok()?, new);
        drop(old);
        self.snapshots[kind.index()].try_borrow().ok()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        while let Some((record, _, audience)) = self.unstage() {
            lose(&record, audience);
        }
        DELIVERING.part(&self.presence);
        if !self.shared {
            source::leave(self.source, self.last.get());
        }
    }
}

/// A thread that delivers; until it is dropped, also by a callback's panic.
pub(super) struct Inside<'a>(&'a Thread);

impl<'a> Inside<'a> {
    #[inline]
    pub(super) fn new(thread: &'a Thread) -> Inside<'a> {
        thread.busy.set(true);
        thread.presence.enter();
        Inside(thread)
    }

    /// Hands an event to every registration that wants it: by its callback here, or into its buffer.
    #[inline]
    pub(super) fn dispatch(&mut self, record: &Record, context: Safety, audience: Audience) {
        let thread = self.0;
        let known = thread.snapshot(record.kind);
        let Some(Some(snapshot)) = known.as_deref() else { return };
        // After this thread's entry: who sets it sees that, or is seen.
        let needed = if THREADED.load(Ordering::SeqCst) { context.max(Safety::ThreadSafe) } else { context };
        let source = record.source.source();
        for entry in snapshot.list.iter() {
            let handle = &*entry.handle;
            if !handle.wants(record, audience) {
                continue;
            }
            if !handle.must_wait()
                && !entry.calls.must_tell(handle)
                && let Some(callback) = entry.calls.fit(needed)
            {
                source.count_delivered();
                callback(record, handle, needed);
            } else if handle.ring.push(record, handle.used).is_ok() {
                source.count_buffered();
                attention::flag(attention::RINGS);
            } else {
                source.count_dropped();
                handle.lose(record.source, 1);
                attention::flag(attention::RINGS);
            }
        }
    }

    /// Delivers what waits in the thread.
    #[inline]
    pub(super) fn run_staged(&mut self) {
        while self.0.has_staged() {
            let Some((record, context, audience)) = self.0.unstage() else { return };
            self.dispatch(&record, context, audience);
        }
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.presence.leave();
        self.0.busy.set(false);
    }
}

/// All who want the event lose it.
#[cold]
pub(super) fn lose(record: &Record, audience: Audience) {
    let Some(snapshot) = registry::snapshot(record.kind) else { return };
    for entry in snapshot.list.iter().filter(|entry| entry.handle.wants(record, audience)) {
        record.source.source().count_dropped_later(1);
        entry.handle.lose(record.source, 1);
    }
    attention::flag(attention::RINGS);
}

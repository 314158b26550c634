// SPDX-License-Identifier: MIT OR Apache-2.0
//! A registration: one tool's interest in one event type, with its callbacks, its buffer and its losses.
//!
//! [`Registration`] is shared by all threads; `registry.rs` replaces its [`Callbacks`] as a whole on every change, so
//! that delivering threads read them without a lock. `registry.rs` creates and frees registrations; `thread.rs` fills
//! their buffers, `drain.rs` empties them.
//!
//! Path: hot, behind the branch of a site. Threads: any. Tests: `tests/registrations.rs`, `tests/free.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::event_type::{Safety, TypeId};
use super::instance::EventInstance;
use super::ring::Ring;
use super::source_info::{SOURCES, SourceId};

/// Names a registration; never given twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegistrationId(pub u64);

/// What is called for an event: the event, the registration, what the callback must be fit for here (at most its
/// level).
pub type Callback = Arc<dyn Fn(&EventInstance, &Registration, Safety) + Send + Sync>;

/// What is called when events were lost: how many of which source since it was last called, the registration, what it
/// must be fit for here. Where no callback of the registration is fit it is not called, unless the registration ends.
pub type DroppedCallback = Arc<dyn Fn(u64, SourceId, &Registration, Safety) + Send + Sync>;

/// What is called once a freed registration calls nothing any more: the registration, what it must be fit for here.
pub type FreeCallback = Box<dyn FnOnce(&Registration, Safety) + Send>;

/// How a registration is to be.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Only events of the object of this number; `None`: all.
    pub object: Option<u64>,
    /// Whether events wait in the buffer until progress delivers them, rather than being delivered where they happen.
    pub buffered: bool,
    /// Whether what the adapter stamps is taken too where this process sees it, on the thread's source and by the
    /// host's clock, in the order in which it is seen; else by the adapter's stamp, in the order of the port's source.
    pub immediate: bool,
    /// How many events the buffer holds; rounded up to a power of two. One that is delivered at once has a buffer, too:
    /// for what happens where no callback of it may run.
    pub room: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { object: None, buffered: false, immediate: false, room: 64 }
    }
}

/// Which of the registrations of its type an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipients {
    /// It happened in a thread and has that thread's stamp: for all.
    All,
    /// The adapter has stamped it, and this is its telling in the thread that sees it: for those that take it as it
    /// happens.
    Immediate,
    /// The same by the adapter's stamp: for all others.
    Ordered,
}

impl Recipients {
    #[inline]
    fn has(self, registration: &Registration) -> bool {
        match self {
            Recipients::All => true,
            Recipients::Immediate => registration.immediate,
            Recipients::Ordered => !registration.immediate,
        }
    }
}

const LIVE: u8 = 0;
const CLOSING: u8 = 1;
const FREED: u8 = 2;

/// What a registration has lost of each source, and how much of that its callback was told.
struct DropCounts {
    lost: [AtomicU64; SOURCES],
    told: [AtomicU64; SOURCES],
}

/// A registration.
pub struct Registration {
    /// Its name.
    pub id: RegistrationId,
    /// The type of its events.
    pub event_type: TypeId,
    /// The object of its events; `None`: all.
    pub object: Option<u64>,
    pub(super) immediate: bool,
    pub(super) ring: Ring,
    pub(super) used: usize,
    buffered: AtomicBool,
    state: AtomicU8,
    /// Whether a thread takes from the buffer now.
    pub(super) draining: AtomicBool,
    /// Changes with its callbacks.
    pub(super) revision: AtomicU64,
    /// Whether there may be losses nobody was told of.
    pub(super) unreported_drops: AtomicBool,
    drop_counts: Box<DropCounts>,
}

impl Registration {
    pub(super) fn new(id: RegistrationId, event_type: TypeId, options: Options) -> Registration {
        let zeros = || [const { AtomicU64::new(0) }; SOURCES];
        Registration {
            id,
            event_type,
            object: options.object,
            immediate: options.immediate,
            ring: Ring::new(options.room),
            used: event_type.row().extent.div_ceil(8),
            buffered: AtomicBool::new(options.buffered),
            state: AtomicU8::new(LIVE),
            draining: AtomicBool::new(false),
            revision: AtomicU64::new(0),
            unreported_drops: AtomicBool::new(false),
            drop_counts: Box::new(DropCounts { lost: zeros(), told: zeros() }),
        }
    }

    /// Whether events wait in its buffer until progress delivers them.
    #[must_use]
    #[inline]
    pub fn is_buffered(&self) -> bool {
        self.buffered.load(Ordering::Relaxed)
    }

    /// From now on events wait, or do not. Those that wait already are delivered first.
    pub fn set_buffered(&self, buffered: bool) {
        self.buffered.store(buffered, Ordering::Relaxed);
    }

    /// How many events its buffer holds.
    #[must_use]
    pub fn room(&self) -> usize {
        self.ring.capacity()
    }

    /// How many events wait in its buffer.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.ring.len()
    }

    /// How many events it has lost so far, of all sources.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drop_counts.lost.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Whether it takes events. Sequentially consistent with `quiescence.rs`.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.state.load(Ordering::SeqCst) == LIVE
    }

    /// It is freed: takes no events from now on. False where it was already.
    pub(super) fn begin_closing(&self) -> bool {
        self.state.compare_exchange(LIVE, CLOSING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    pub(super) fn set_freed(&self) {
        self.state.store(FREED, Ordering::SeqCst);
    }

    /// Whether an event is this registration's.
    #[inline]
    pub(super) fn wants(&self, instance: &EventInstance, recipients: Recipients) -> bool {
        recipients.has(self) && self.is_live() && self.object.is_none_or(|object| instance.belongs_to(object))
    }

    /// Whether something waits in its buffer, or is being delivered from there: what comes now must wait behind it. The
    /// buffer is looked at first: who empties it has said so before (`draining`) and says so until its last callback
    /// has returned.
    #[inline]
    pub(super) fn must_buffer(&self) -> bool {
        self.is_buffered() || !self.ring.is_empty() || self.draining.load(Ordering::SeqCst)
    }

    /// Whether there may be losses nobody was told of.
    #[inline]
    pub(super) fn has_unreported_drops(&self) -> bool {
        self.unreported_drops.load(Ordering::SeqCst)
    }

    /// It loses events of a source. From any thread.
    #[cold]
    pub(super) fn count_dropped(&self, source: SourceId, events: u64) {
        self.drop_counts.lost[source.index() % SOURCES].fetch_add(events, Ordering::Relaxed);
        self.unreported_drops.store(true, Ordering::SeqCst);
    }

    /// Takes what was lost and nobody was told of, per source. By who drains it.
    fn take_unreported(&self, mut tell: impl FnMut(SourceId, u64)) {
        if !self.unreported_drops.swap(false, Ordering::SeqCst) {
            return;
        }
        for (index, (lost, told)) in self.drop_counts.lost.iter().zip(&self.drop_counts.told).enumerate() {
            let (lost, before) = (lost.load(Ordering::Relaxed), told.load(Ordering::Relaxed));
            if lost != before {
                told.store(lost, Ordering::Relaxed);
                tell(SourceId(index as u16), lost - before);
            }
        }
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "registration {} of {}", self.id.0, self.event_type.row().name)
    }
}

/// What a registration calls.
#[derive(Clone, Default)]
pub(super) struct Callbacks {
    events: [Option<Callback>; 4],
    /// For each level that a place asks: the least level that is fit for it and has a callback.
    least: [Option<Safety>; 4],
    pub(super) dropped: Option<DroppedCallback>,
}

impl Callbacks {
    /// Sets the callback of a level; returns the former.
    pub(super) fn set(&mut self, level: Safety, callback: Option<Callback>) -> Option<Callback> {
        let old = std::mem::replace(&mut self.events[level.index()], callback);
        for needed in Safety::ALL {
            let mut fit = Safety::ALL.into_iter().filter(|level| *level >= needed);
            self.least[needed.index()] = fit.find(|level| self.has(*level));
        }
        old
    }

    /// Whether there is one of exactly this level.
    pub(super) fn has(&self, level: Safety) -> bool {
        self.events[level.index()].is_some()
    }

    /// The callback of the least level that is fit for a place that asks `needed`.
    #[inline]
    pub(super) fn fit(&self, needed: Safety) -> Option<&Callback> {
        self.events[self.least[needed.index()]?.index()].as_ref()
    }

    /// Whether a loss is to be told before anything else is.
    #[inline]
    pub(super) fn must_report_drops(&self, registration: &Registration) -> bool {
        registration.has_unreported_drops() && self.dropped.is_some()
    }

    /// Tells losses, where a callback is fit for the place: elsewhere one may be. By who drains the registration.
    pub(super) fn report_drops(&self, registration: &Registration, safety: Safety) {
        if self.fit(safety).is_some() {
            self.report_drops_finally(registration, safety);
        }
    }

    /// Tells losses; there will be no other place.
    pub(super) fn report_drops_finally(&self, registration: &Registration, safety: Safety) {
        if let Some(dropped) = &self.dropped {
            registration.take_unreported(|source, lost| dropped(lost, source, registration, safety));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.iter().all(Option::is_none)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A registration: one tool's interest in one event type, with its callbacks, its buffer and its losses. `registry.rs`
//! creates and frees it, and replaces its [`Callbacks`] as a whole on every change, so that delivering threads read
//! them without a lock. `delivery/thread.rs` fills its buffer, `delivery/drain.rs` empties it. Grade: hot while a tool
//! listens. Threads: any. Tests: `tests/registrations.rs`, `tests/free.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::ring::Ring;
use crate::events::{EventInstance, SOURCES, Safety, SourceId, TypeId};

/// Name of a registration; never given twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegistrationId(pub u64);

/// Callback for an event. It gets the event, the registration, and the level that the place requires (at most its own).
pub type Callback = Arc<dyn Fn(&EventInstance, &Registration, Safety) + Send + Sync>;

/// Callback for lost events. It gets their number since its last call, their source, the registration, and the level
/// that the place requires. Called where a callback of the registration is fit, or when the registration ends.
pub type DroppedCallback = Arc<dyn Fn(u64, SourceId, &Registration, Safety) + Send + Sync>;

/// Callback after the last one of a freed registration. It gets the registration and the level that the place requires.
pub type FreeCallback = Box<dyn FnOnce(&Registration, Safety) + Send>;

/// The properties of a new registration.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of the object whose events it gets; `None`: all events.
    pub object: Option<u64>,
    /// Whether events wait in the buffer until progress delivers them, rather than being delivered where they happen.
    pub buffered: bool,
    /// Whether it gets adapter-stamped events when this process polls them, stamped by the host's clock on the polling
    /// thread's source. Otherwise they have the adapter's stamp, in the order of the port's source.
    pub immediate: bool,
    /// Number of events that the buffer holds, rounded up to a power of two. An unbuffered registration needs it too,
    /// for events that happen where none of its callbacks may run.
    pub room: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { object: None, buffered: false, immediate: false, room: 64 }
    }
}

/// The registrations of an event's type that get the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::events) enum Recipients {
    /// All: the event happened in a thread and has that thread's stamp.
    All,
    /// Those for immediate delivery: the adapter stamped the event, but here it has the stamp of the polling thread.
    Immediate,
    /// The others: the same event with the adapter's stamp.
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

struct DropCounts {
    lost: [AtomicU64; SOURCES],
    reported: [AtomicU64; SOURCES],
}

/// A registration.
pub struct Registration {
    /// Name of the registration.
    pub id: RegistrationId,
    /// The type of its events.
    pub event_type: TypeId,
    /// Number of the object whose events it gets; `None`: all events.
    pub object: Option<u64>,
    pub(super) immediate: bool,
    pub(in crate::events) ring: Ring,
    pub(in crate::events) used: usize,
    buffered: AtomicBool,
    live: AtomicBool,
    /// Whether a thread is taking events from the buffer.
    pub(in crate::events) draining: AtomicBool,
    pub(in crate::events) revision: AtomicU64,
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
            live: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            revision: AtomicU64::new(0),
            unreported_drops: AtomicBool::new(false),
            drop_counts: Box::new(DropCounts { lost: zeros(), reported: zeros() }),
        }
    }

    /// Whether events wait in the buffer until progress delivers them.
    #[inline]
    pub fn is_buffered(&self) -> bool {
        self.buffered.load(Ordering::Relaxed)
    }

    /// Switches buffering on or off. Events in the buffer are delivered first.
    pub fn set_buffered(&self, buffered: bool) {
        self.buffered.store(buffered, Ordering::Relaxed);
    }

    /// Capacity of the buffer, in events.
    pub fn room(&self) -> usize {
        self.ring.capacity()
    }

    /// Number of events in the buffer.
    pub fn waiting(&self) -> u64 {
        self.ring.len()
    }

    /// Number of events lost so far, of all sources.
    pub fn dropped(&self) -> u64 {
        self.drop_counts.lost.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Whether it accepts events. Sequentially consistent with `delivery/quiescence.rs`.
    #[inline]
    pub(in crate::events) fn is_live(&self) -> bool {
        self.live.load(Ordering::SeqCst)
    }

    /// Stops accepting events, because it is freed.
    pub(super) fn close(&self) {
        self.live.store(false, Ordering::SeqCst);
    }

    #[inline]
    pub(in crate::events) fn wants(&self, instance: &EventInstance, recipients: Recipients) -> bool {
        recipients.has(self) && self.is_live() && self.object.is_none_or(|object| instance.belongs_to(object))
    }

    /// Whether the next event must be buffered. Checks the buffer before `draining`: a thread sets `draining` before it
    /// empties the buffer, and clears it after the last callback has returned.
    #[inline]
    pub(in crate::events) fn must_buffer(&self) -> bool {
        self.is_buffered() || !self.ring.is_empty() || self.draining.load(Ordering::SeqCst)
    }

    #[inline]
    pub(in crate::events) fn has_unreported_drops(&self) -> bool {
        self.unreported_drops.load(Ordering::SeqCst)
    }

    #[cold]
    pub(in crate::events) fn count_dropped(&self, source: SourceId, events: u64) {
        self.drop_counts.lost[source.index() % SOURCES].fetch_add(events, Ordering::Relaxed);
        self.unreported_drops.store(true, Ordering::SeqCst);
    }

    /// Passes the unreported losses per source to `report`. Called by the thread that drains the registration.
    fn take_unreported(&self, mut report: impl FnMut(SourceId, u64)) {
        if !self.unreported_drops.swap(false, Ordering::SeqCst) {
            return;
        }
        for (index, (lost, reported)) in self.drop_counts.lost.iter().zip(&self.drop_counts.reported).enumerate() {
            let (lost, before) = (lost.load(Ordering::Relaxed), reported.load(Ordering::Relaxed));
            if lost != before {
                reported.store(lost, Ordering::Relaxed);
                report(SourceId(index as u16), lost - before);
            }
        }
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "registration {} of {}", self.id.0, self.event_type.row().name)
    }
}

#[derive(Clone, Default)]
pub(in crate::events) struct Callbacks {
    events: [Option<Callback>; 4],
    /// Per level that a place requires: the lowest sufficient level with a callback.
    least: [Option<Safety>; 4],
    pub(super) dropped: Option<DroppedCallback>,
}

impl Callbacks {
    pub(in crate::events) fn set(&mut self, level: Safety, callback: Option<Callback>) -> Option<Callback> {
        let old = std::mem::replace(&mut self.events[level.index()], callback);
        for needed in Safety::ALL {
            let mut fit = Safety::ALL.into_iter().filter(|level| *level >= needed);
            self.least[needed.index()] = fit.find(|level| self.has(*level));
        }
        old
    }

    pub(super) fn has(&self, level: Safety) -> bool {
        self.events[level.index()].is_some()
    }

    /// The callback of the lowest level that suffices at a place that requires `needed`.
    #[inline]
    pub(in crate::events) fn fit(&self, needed: Safety) -> Option<&Callback> {
        self.events[self.least[needed.index()]?.index()].as_ref()
    }

    #[inline]
    pub(in crate::events) fn must_report_drops(&self, registration: &Registration) -> bool {
        registration.has_unreported_drops() && self.dropped.is_some()
    }

    /// Reports losses if a callback is fit here, else leaves them. Called by the thread that drains the registration.
    pub(in crate::events) fn report_drops(&self, registration: &Registration, safety: Safety) {
        if self.fit(safety).is_some() {
            self.report_drops_finally(registration, safety);
        }
    }

    /// Reports losses for the last time, whether a callback is fit here or not.
    pub(super) fn report_drops_finally(&self, registration: &Registration, safety: Safety) {
        if let Some(dropped) = &self.dropped {
            registration.take_unreported(|source, lost| dropped(lost, source, registration, safety));
        }
    }

    pub(in crate::events) fn is_empty(&self) -> bool {
        self.events.iter().all(Option::is_none)
    }
}

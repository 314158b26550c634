// SPDX-License-Identifier: MIT OR Apache-2.0
//! A registration: one tool's interest in one event type, with its callbacks, its buffer and what it lost.
//!
//! [`Handle`] is what all share; [`Calls`] what it calls, replaced whole by `registry.rs` when something of it changes, so that who
//! delivers reads it without a lock. Made and freed there; filled by `thread.rs`, emptied by `deliver.rs`.
//!
//! Path: hot, behind the branch of a site. Threads: any. Tests: `tests/handles.rs`, `tests/free.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::record::Record;
use super::ring::Ring;
use super::row::{Safety, TypeId};
use super::source::{SOURCES, SourceId};

/// Names a registration; never given twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandleId(pub u64);

/// What is called for an event: the event, the registration, what the callback must be fit for here (at most its level).
pub type Callback = Arc<dyn Fn(&Record, &Handle, Safety) + Send + Sync>;

/// What is called when events were lost: how many of which source since it was last called, the registration, what it must be fit
/// for here. Where no callback of the registration is fit it is not called, unless the registration ends.
pub type DroppedCallback = Arc<dyn Fn(u64, SourceId, &Handle, Safety) + Send + Sync>;

/// What is called once a freed registration calls nothing any more: the registration, what it must be fit for here.
pub type FreeCallback = Box<dyn FnOnce(&Handle, Safety) + Send>;

/// How a registration is to be.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Only events of the object of this number; `None`: all.
    pub object: Option<u64>,
    /// Whether events wait in the buffer until progress delivers them, rather than being delivered where they happen.
    pub buffered: bool,
    /// Whether what the adapter stamps is taken too where this process sees it, on the thread's source and by the host's clock, in the
    /// order in which it is seen; else by the adapter's stamp, in the order of the port's source.
    pub as_it_happens: bool,
    /// How many events the buffer holds; rounded up to a power of two. One that is delivered at once has a buffer, too: for what
    /// happens where no callback of it may run.
    pub room: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { object: None, buffered: false, as_it_happens: false, room: 64 }
    }
}

/// Which of the registrations of its type an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// It happened in a thread and has that thread's stamp: for all.
    All,
    /// The adapter has stamped it, and this is its telling in the thread that sees it: for those that take it as it happens.
    AsItHappens,
    /// The same by the adapter's stamp: for all others.
    Ordered,
}

impl Audience {
    #[inline]
    fn has(self, handle: &Handle) -> bool {
        match self {
            Audience::All => true,
            Audience::AsItHappens => handle.as_it_happens,
            Audience::Ordered => !handle.as_it_happens,
        }
    }
}

const LIVE: u8 = 0;
const CLOSING: u8 = 1;
const FREED: u8 = 2;

/// What a registration has lost of each source, and how much of that its callback was told.
struct Losses {
    lost: [AtomicU64; SOURCES],
    told: [AtomicU64; SOURCES],
}

/// A registration.
pub struct Handle {
    /// Its name.
    pub id: HandleId,
    /// The type of its events.
    pub kind: TypeId,
    /// The object of its events; `None`: all.
    pub object: Option<u64>,
    pub(super) as_it_happens: bool,
    pub(super) ring: Ring,
    pub(super) used: usize,
    buffered: AtomicBool,
    state: AtomicU8,
    /// Whether a thread takes from the buffer now.
    pub(super) draining: AtomicBool,
    /// Changes with its callbacks.
    pub(super) revision: AtomicU64,
    /// Whether there may be losses nobody was told of.
    pub(super) losing: AtomicBool,
    losses: Box<Losses>,
}

impl Handle {
    pub(super) fn new(id: HandleId, kind: TypeId, options: Options) -> Handle {
        let zeros = || [const { AtomicU64::new(0) }; SOURCES];
        Handle {
            id,
            kind,
            object: options.object,
            as_it_happens: options.as_it_happens,
            ring: Ring::new(options.room),
            used: kind.row().extent.div_ceil(8),
            buffered: AtomicBool::new(options.buffered),
            state: AtomicU8::new(LIVE),
            draining: AtomicBool::new(false),
            revision: AtomicU64::new(0),
            losing: AtomicBool::new(false),
            losses: Box::new(Losses { lost: zeros(), told: zeros() }),
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
    pub fn lost(&self) -> u64 {
        self.losses.lost.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Whether it takes events. Sequentially consistent with `presence.rs`.
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
    pub(super) fn wants(&self, record: &Record, audience: Audience) -> bool {
        audience.has(self) && self.is_live() && self.object.is_none_or(|object| record.belongs_to(object))
    }

    /// Whether something waits in its buffer, or is being delivered from there: what comes now must wait behind it. The buffer is
    /// looked at first: who empties it has said so before (`draining`) and says so until its last callback has returned.
    #[inline]
    pub(super) fn must_wait(&self) -> bool {
        self.is_buffered() || !self.ring.is_empty() || self.draining.load(Ordering::SeqCst)
    }

    /// Whether there may be losses nobody was told of.
    #[inline]
    pub(super) fn is_losing(&self) -> bool {
        self.losing.load(Ordering::SeqCst)
    }

    /// It loses events of a source. From any thread.
    #[cold]
    pub(super) fn lose(&self, source: SourceId, events: u64) {
        self.losses.lost[source.index() % SOURCES].fetch_add(events, Ordering::Relaxed);
        self.losing.store(true, Ordering::SeqCst);
    }

    /// Takes what was lost and nobody was told of, per source. By who drains it.
    fn untold(&self, mut tell: impl FnMut(SourceId, u64)) {
        if !self.losing.swap(false, Ordering::SeqCst) {
            return;
        }
        for (index, (lost, told)) in self.losses.lost.iter().zip(&self.losses.told).enumerate() {
            let (lost, before) = (lost.load(Ordering::Relaxed), told.load(Ordering::Relaxed));
            if lost != before {
                told.store(lost, Ordering::Relaxed);
                tell(SourceId(index as u16), lost - before);
            }
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "registration {} of {}", self.id.0, self.kind.row().name)
    }
}

/// What a registration calls.
#[derive(Clone, Default)]
pub(super) struct Calls {
    events: [Option<Callback>; 4],
    /// For each level that a place asks: the least level that is fit for it and has a callback.
    least: [Option<Safety>; 4],
    pub(super) dropped: Option<DroppedCallback>,
}

impl Calls {
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
    pub(super) fn must_tell(&self, handle: &Handle) -> bool {
        handle.is_losing() && self.dropped.is_some()
    }

    /// Tells losses, where a callback is fit for the place: elsewhere one may be. By who drains the registration.
    pub(super) fn tell(&self, handle: &Handle, context: Safety) {
        if self.fit(context).is_some() {
            self.tell_last(handle, context);
        }
    }

    /// Tells losses; there will be no other place.
    pub(super) fn tell_last(&self, handle: &Handle, context: Safety) {
        if let Some(dropped) = &self.dropped {
            handle.untold(|source, lost| dropped(lost, source, handle, context));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.iter().all(Option::is_none)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raising events: what a site calls, and what is behind its branch until the thread (`thread.rs`) or the port (`port.rs`) has them.
//!
//! [`raise`] is for where callbacks may run, [`stage`] for where a lock is held; for what the adapter has stamped [`Together::raise_stamped`]
//! where it is seen, [`stage_stamped`] where it is told of later. [`Together`] is for several events of one [`Moment`], which share a
//! look at the clock and an entry into the delivery.
//!
//! What the adapter has stamped goes two ways at once: a registration that takes it as it happens has it in the thread that sees it,
//! all others have it in the order of the port's source.
//!
//! Path: hot, behind the branch of a site: no allocation, no lock but the port's. Threads: any. Tests: `tests/raise.rs`,
//! `tests/ports.rs`.

use arrayvec::ArrayVec;

use super::attention::{self, Active, active};
use super::clock::HostClock;
use super::deliver;
use super::handle::Audience;
use super::order::Refused;
use super::record::Record;
use super::row::Safety;
use super::source::SourceId;
use super::table::Payload;
use super::thread::{lose, with};

/// A moment of the host's clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment(pub(super) u64);

/// This moment: read before an operation is posted, for an event that is raised after it.
#[must_use]
#[inline]
pub fn moment() -> Moment {
    Moment(HostClock::get().now())
}

/// Events of one moment: stamped by one look at a clock, and delivered one after the other. Made and raised at once.
#[derive(Debug)]
pub struct Together {
    active: Active,
    records: ArrayVec<Record, MOST>,
}

/// How many events may be of one moment.
pub(super) const MOST: usize = 3;

impl Together {
    /// None yet, of the types somebody listens to by this look.
    #[must_use]
    #[inline]
    pub fn new(active: Active) -> Together {
        Together { active, records: ArrayVec::new_const() }
    }

    /// One more, the third at most. `make` is called only if somebody listens.
    #[inline]
    pub fn add<P: Payload>(&mut self, make: impl FnOnce() -> P) {
        if self.active.has(P::TYPE) {
            let record = Record { kind: P::TYPE, source: SourceId(0), timestamp: 0, words: make().words() };
            debug_assert!(self.records.len() < MOST, "there is room");
            let _ = self.records.try_push(record);
        }
    }

    /// As [`raise`], as of this moment, or the thread's last event's if that is later. `moment` is called only if there is any.
    #[inline]
    pub fn raise(mut self, moment: impl FnOnce() -> Moment, context: Safety) {
        if !self.records.is_empty() {
            raise_now(&mut self.records, moment(), context);
        }
    }

    /// As [`stage`].
    #[inline]
    pub fn stage(mut self, context: Safety) {
        if !self.records.is_empty() {
            stage_now(&mut self.records, context, Audience::All);
        }
    }

    /// On a port's source, stamped `raw` by the adapter and seen just now, where callbacks may run: delivered here to who takes it as it
    /// happens, and to all others as by [`stage_stamped`].
    #[inline]
    pub fn raise_stamped(mut self, source: SourceId, raw: u64, posted: Option<u64>, context: Safety) {
        if attention::as_it_happens() != Active::NONE {
            raise_as_it_happens(&self.records, context);
        }
        if !self.records.is_empty() {
            stamped_now(&mut self.records, source, raw, posted);
        }
    }

    /// As [`stage_stamped`].
    #[inline]
    pub fn stage_stamped(mut self, source: SourceId, raw: u64, posted: Option<u64>) {
        if !self.records.is_empty() {
            stamped_now(&mut self.records, source, raw, posted);
        }
    }
}

/// [`raise`] behind its branch.
#[cold]
#[inline(never)]
fn raise_now(records: &mut [Record], moment: Moment, context: Safety) {
    with(records, |thread, records| {
        for record in records.iter_mut() {
            thread.stamp(record, moment);
        }
        thread.raise(records, context, Audience::All);
    });
}

/// What somebody takes as it happens of events that the adapter has stamped.
#[cold]
#[inline(never)]
fn raise_as_it_happens(records: &[Record], context: Safety) {
    let wanted = attention::as_it_happens();
    let mut mine: ArrayVec<Record, MOST> = records.iter().copied().filter(|record| wanted.has(record.kind)).collect();
    if mine.is_empty() {
        return;
    }
    let moment = moment();
    with(&mut mine[..], |thread, records| {
        for record in records.iter_mut() {
            thread.stamp(record, moment);
        }
        thread.raise(records, context, Audience::AsItHappens);
    });
}

/// [`stage`] behind its branch.
#[cold]
#[inline(never)]
fn stage_now(records: &mut [Record], context: Safety, audience: Audience) {
    let moment = moment();
    with(records, |thread, records| {
        for record in records {
            thread.stamp(record, moment);
            thread.stage(record, context, audience);
        }
    });
}

/// [`stage_stamped`] behind its branch.
#[cold]
#[inline(never)]
fn stamped_now(records: &mut ArrayVec<Record, MOST>, id: SourceId, raw: u64, posted: Option<u64>) {
    let source = id.source();
    let Some(port) = source.port() else { return };
    let wanted = attention::ordered();
    records.retain(|record| wanted.has(record.kind));
    if records.is_empty() {
        return;
    }
    for record in records.iter_mut() {
        record.source = id;
    }
    let Some((refusals, is_crowded)) = port.submit(records, raw, posted) else {
        // When the adapter did it is not known; that it has is, now.
        return stage_now(records, Safety::MpiRestricted, Audience::Ordered);
    };
    for (index, refused) in refusals {
        if refused == Refused::Late {
            source.count_late();
        }
        lose(&records[index], Audience::Ordered);
    }
    source.count_raised_by_any(records.len() as u64);
    deliver::flag_port(id, is_crowded);
}

/// One event, of the types somebody listens to now.
#[inline]
fn alone<P: Payload>(make: impl FnOnce() -> P) -> Together {
    let mut together = Together::new(active());
    together.add(make);
    together
}

/// Raises an event on the thread's source, stamped with the host's clock. Callbacks run here: the caller holds no lock that a
/// call of ibex from within one could need. `context` says what they must be fit for. `make` is called only if somebody listens.
#[inline]
pub fn raise<P: Payload>(context: Safety, make: impl FnOnce() -> P) {
    alone(make).raise(moment, context);
}

/// As [`raise`], where callbacks may not run: the event is stamped now and waits in the thread until it calls
/// [`super::progress`] or raises again.
#[inline]
pub fn stage<P: Payload>(context: Safety, make: impl FnOnce() -> P) {
    alone(make).stage(context);
}

/// An event on a port's source, stamped `raw` by the adapter and told of after it happened, so not to who takes events as they
/// happen; it is delivered in order by [`super::progress`], of this thread or
/// another. Where the stamp is so old that its adapter's clock may have gone round since, it is the host's instead, as of now, and the
/// source this thread's. `posted`: the host's clock before the operation was posted, where it is known. Callbacks do not run here.
#[inline]
pub fn stage_stamped<P: Payload>(source: SourceId, raw: u64, posted: Option<u64>, make: impl FnOnce() -> P) {
    alone(make).stage_stamped(source, raw, posted);
}

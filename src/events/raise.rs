// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises events: the functions that sites call, up to the hand-over to the thread (`thread.rs`) or the port
//! (`port_source.rs`).
//!
//! Use [`raise`] where callbacks may run, [`stage`] where a lock is held; for adapter-stamped events
//! [`EventGroup::raise_stamped`] and [`EventGroup::stage_seen`]. [`EventGroup`] is for several events of one
//! [`HostTimestamp`], which share a clock reading and an entry into the delivery.
//!
//! An adapter-stamped event is delivered twice: immediately, in the polling thread, to registrations for immediate
//! delivery, and in the order of the port's source to all others.
//!
//! Path: hot, behind the branch of a site: no allocation, no lock but the port's. Threads: any. Tests:
//! `tests/raise.rs`, `tests/ports.rs`.

use arrayvec::ArrayVec;

use super::clock::{HostTimestamp, host_timestamp};
use super::deliver;
use super::event_type::Safety;
use super::free::finish_freed_in;
use super::instance::{EventInstance, GROUP_MAX};
use super::interest_mask::{self, InterestMask, interest};
use super::registration::Recipients;
use super::reorder_buffer::Refused;
use super::source_info::SourceId;
use super::table::Payload;
use super::thread::{Thread, drop_instance, with};

/// Events with one timestamp: one reading of a clock, delivered one after the other. Made and raised at once.
#[derive(Debug)]
pub struct EventGroup {
    interest: InterestMask,
    instances: ArrayVec<EventInstance, GROUP_MAX>,
}

impl EventGroup {
    /// None yet, of the types somebody listens to by this look.
    #[must_use]
    #[inline]
    pub fn new(interest: InterestMask) -> EventGroup {
        EventGroup { interest, instances: ArrayVec::new_const() }
    }

    /// One more, the third at most. `make` is called only if somebody listens.
    #[inline]
    pub fn add<P: Payload>(&mut self, make: impl FnOnce() -> P) {
        if self.interest.has(P::TYPE) {
            let instance =
                EventInstance { event_type: P::TYPE, source: SourceId(0), timestamp: 0, words: make().words() };
            debug_assert!(self.instances.len() < GROUP_MAX, "there is room");
            let _ = self.instances.try_push(instance);
        }
    }

    /// As [`raise`], as of this moment, or the thread's last event's if that is later. `timestamp` is called only if
    /// there is any.
    #[inline]
    pub fn raise(mut self, timestamp: impl FnOnce() -> HostTimestamp, safety: Safety) {
        if !self.instances.is_empty() {
            raise_now(&mut self.instances, timestamp(), safety);
        }
    }

    /// As [`stage`].
    #[inline]
    pub fn stage(mut self, safety: Safety) {
        if !self.instances.is_empty() {
            stage_now(&mut self.instances, safety, Recipients::All);
        }
    }

    /// On a port's source, stamped `raw` by the adapter and seen just now, where callbacks may run: delivered here to
    /// who takes it as it happens, and to all others in order by [`super::progress`], of this thread or another. Where
    /// the stamp is so old that its adapter's clock may have gone round since, it is the host's instead, as of now, and
    /// the source this thread's.
    #[inline]
    pub fn raise_stamped(mut self, source: SourceId, raw: u64, safety: Safety) {
        if interest_mask::immediate_interest() != InterestMask::NONE {
            raise_immediate(&self.instances, safety);
        }
        if !self.instances.is_empty() {
            stamped_now(&mut self.instances, source, raw);
        }
    }

    /// As [`Self::raise_stamped`], where callbacks may not run.
    pub fn stage_seen(mut self, source: SourceId, raw: u64, safety: Safety) {
        let mut mine = immediate_of(&self.instances);
        if !mine.is_empty() {
            stage_now(&mut mine, safety, Recipients::Immediate);
        }
        if !self.instances.is_empty() {
            stamped_now(&mut self.instances, source, raw);
        }
    }
}

/// Delivers instances now, or after what waits; and finishes registrations that their callbacks have freed.
#[inline]
fn raise_in(thread: &Thread, instances: &[EventInstance], safety: Safety, recipients: Recipients) {
    if thread.raise(instances, safety, recipients) && interest_mask::has_pending_frees() {
        finish_freed_in(thread, safety);
    }
}

/// [`raise`] behind its branch.
#[cold]
#[inline(never)]
fn raise_now(instances: &mut [EventInstance], timestamp: HostTimestamp, safety: Safety) {
    with(instances, |thread, instances| {
        for instance in instances.iter_mut() {
            thread.stamp(instance, timestamp);
        }
        raise_in(thread, instances, safety, Recipients::All);
    });
}

/// Those events that somebody takes as they happen, though the adapter has stamped them.
fn immediate_of(instances: &[EventInstance]) -> ArrayVec<EventInstance, GROUP_MAX> {
    let wanted = interest_mask::immediate_interest();
    instances.iter().copied().filter(|instance| wanted.has(instance.event_type)).collect()
}

/// What somebody takes as it happens of events that the adapter has stamped.
#[cold]
#[inline(never)]
fn raise_immediate(instances: &[EventInstance], safety: Safety) {
    let mut mine = immediate_of(instances);
    if mine.is_empty() {
        return;
    }
    let timestamp = host_timestamp();
    with(&mut mine[..], |thread, instances| {
        for instance in instances.iter_mut() {
            thread.stamp(instance, timestamp);
        }
        raise_in(thread, instances, safety, Recipients::Immediate);
    });
}

/// [`stage`] behind its branch.
#[cold]
#[inline(never)]
fn stage_now(instances: &mut [EventInstance], safety: Safety, recipients: Recipients) {
    let timestamp = host_timestamp();
    with(instances, |thread, instances| {
        for instance in instances {
            thread.stamp(instance, timestamp);
            thread.stage(instance, safety, recipients);
        }
    });
}

/// Hands events to the port, to be delivered in order.
#[cold]
#[inline(never)]
fn stamped_now(instances: &mut ArrayVec<EventInstance, GROUP_MAX>, id: SourceId, raw: u64) {
    let source = id.source();
    let Some(port) = source.port() else { return };
    let wanted = interest_mask::ordered_interest();
    instances.retain(|instance| wanted.has(instance.event_type));
    if instances.is_empty() {
        return;
    }
    for instance in instances.iter_mut() {
        instance.source = id;
    }
    let Some((refusals, is_nearly_full)) = port.submit(instances, raw) else {
        // When the adapter did it is not known; that it has is, now.
        return stage_now(instances, Safety::MpiRestricted, Recipients::Ordered);
    };
    for (index, refused) in refusals {
        if refused == Refused::Late {
            source.count_late();
        }
        drop_instance(&instances[index], Recipients::Ordered);
    }
    source.count_raised_by_any(instances.len() as u64);
    deliver::set_port_pending(id, is_nearly_full);
}

/// One event, of the types somebody listens to now.
#[inline]
fn group_of_one<P: Payload>(make: impl FnOnce() -> P) -> EventGroup {
    let mut group = EventGroup::new(interest());
    group.add(make);
    group
}

/// Raises an event on the thread's source, stamped with the host's clock. Callbacks run here: the caller holds no lock
/// that a call of ibex from within one could need. `safety` says what they must be fit for. `make` is called only if
/// somebody listens.
#[inline]
pub fn raise<P: Payload>(safety: Safety, make: impl FnOnce() -> P) {
    group_of_one(make).raise(host_timestamp, safety);
}

/// As [`raise`], where callbacks may not run: the event is stamped now and waits in the thread until it calls
/// [`super::progress`] or raises again, or ends.
#[inline]
pub fn stage<P: Payload>(safety: Safety, make: impl FnOnce() -> P) {
    group_of_one(make).stage(safety);
}

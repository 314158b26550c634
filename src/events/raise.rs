// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises events: the functions that sites call, up to the thread (`delivery/thread.rs`) or the source of the port. Use
//! [`raise`] where callbacks may run, [`stage`] under a lock; for adapter-stamped events [`EventGroup::raise_stamped`]
//! and [`EventGroup::stage_seen`], which deliver an event immediately, in the polling thread, to registrations for
//! immediate delivery, and in the order of the port's source to all others.
//!
//! Grade: hot while a tool listens; no lock but the port's. Threads: any. Tests: `tests/raise.rs`, `tests/sources/`.

use arrayvec::ArrayVec;

use super::delivery::deliver;
use super::delivery::thread::{drop_instance, with};
use super::interest_mask::{self, FREES};
use super::registrations::free::finish_freed_in;
use super::registrations::registration::Recipients;
use super::sources::port_source::Refusals;
use super::sources::source::Source;
use super::types::instance::GROUP_MAX;
use super::{EventInstance, HostTimestamp, InterestMask, Payload, Safety, SourceId, TypeId, host_timestamp, interest};

/// Events that share one timestamp, from one reading of the clock. The thread that makes a group raises it at once, and
/// delivers its events one after the other.
#[derive(Debug)]
pub struct EventGroup {
    interest: InterestMask,
    instances: ArrayVec<EventInstance, GROUP_MAX>,
}

impl EventGroup {
    /// An empty group that takes events of the types in `interest`.
    #[inline]
    pub fn new(interest: InterestMask) -> EventGroup {
        EventGroup { interest, instances: ArrayVec::new_const() }
    }

    /// Adds an event; a group has at most three. Calls `make` only if its type has a listener.
    #[inline]
    pub fn add<P: Payload>(&mut self, make: impl FnOnce() -> P) {
        self.add_as(P::TYPE, make);
    }

    /// [`Self::add`] for an event of another type with the same elements.
    #[inline]
    pub fn add_as<P: Payload>(&mut self, event_type: TypeId, make: impl FnOnce() -> P) {
        debug_assert_eq!(event_type.row().displacements, P::TYPE.row().displacements, "the same elements");
        if self.interest.has(event_type) {
            let instance = EventInstance { event_type, source: SourceId(0), timestamp: 0, words: make().words() };
            debug_assert!(self.instances.len() < GROUP_MAX, "there is room");
            let _ = self.instances.try_push(instance);
        }
    }

    /// Like [`raise`], stamped `timestamp`, or with the thread's last timestamp if that is later. Calls `timestamp`
    /// only if the group has events.
    #[inline]
    pub fn raise(mut self, timestamp: impl FnOnce() -> HostTimestamp, safety: Safety) {
        if !self.instances.is_empty() {
            raise_now(&mut self.instances, timestamp(), safety, Recipients::All);
        }
    }

    /// Like [`stage`].
    #[inline]
    pub fn stage(mut self, safety: Safety) {
        if !self.instances.is_empty() {
            stage_now(&mut self.instances, safety, Recipients::All);
        }
    }

    /// Raises the group on a port's source, stamped `raw` by the adapter and polled just now. Registrations for
    /// immediate delivery get it here; [`super::progress`], in any thread, delivers it to the others in order. If the
    /// adapter's clock may have wrapped since the stamp, the host stamps the events now, on this thread's source.
    #[inline]
    pub fn raise_stamped(mut self, source: SourceId, raw: u64, safety: Safety) {
        if interest_mask::immediate_interest() != InterestMask::NONE {
            raise_immediate(&mut self.instances, safety);
        }
        if !self.instances.is_empty() {
            stamped_now(&mut self.instances, source, raw);
        }
    }

    /// Like [`Self::raise_stamped`], where callbacks may not run.
    pub fn stage_seen(mut self, source: SourceId, raw: u64, safety: Safety) {
        if interest_mask::immediate_interest() != InterestMask::NONE {
            stage_immediate(&mut self.instances, safety);
        }
        if !self.instances.is_empty() {
            stamped_now(&mut self.instances, source, raw);
        }
    }
}

#[cold]
#[inline(never)]
fn raise_now(instances: &mut [EventInstance], timestamp: HostTimestamp, safety: Safety, recipients: Recipients) {
    with(instances, |thread, instances| {
        for instance in instances.iter_mut() {
            thread.stamp(instance, timestamp);
        }
        // Delivers now, or after the staged events; then finishes the registrations that the callbacks have freed.
        if thread.raise(instances, safety, recipients) && interest_mask::is_pending(FREES) {
            finish_freed_in(thread, safety);
        }
    });
}

type Instances = ArrayVec<EventInstance, GROUP_MAX>;

/// Returns the events for immediate delivery. Leaves those in `instances` that are delivered by timestamp.
fn take_immediate(instances: &mut Instances) -> Instances {
    let (now, ordered) = (interest_mask::immediate_interest(), interest_mask::ordered_interest());
    let mine = instances.iter().copied().filter(|instance| now.has(instance.event_type)).collect();
    instances.retain(|instance| ordered.has(instance.event_type));
    mine
}

#[cold]
#[inline(never)]
fn raise_immediate(instances: &mut Instances, safety: Safety) {
    let mut mine = take_immediate(instances);
    if !mine.is_empty() {
        raise_now(&mut mine, host_timestamp(), safety, Recipients::Immediate);
    }
}

#[cold]
#[inline(never)]
fn stage_immediate(instances: &mut Instances, safety: Safety) {
    let mut mine = take_immediate(instances);
    if !mine.is_empty() {
        stage_now(&mut mine, safety, Recipients::Immediate);
    }
}

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

#[cold]
#[inline(never)]
fn stamped_now(instances: &mut [EventInstance], id: SourceId, raw: u64) {
    let source = id.source();
    let Some(port) = source.port() else { return };
    let Some((refusals, is_nearly_full)) = port.submit(instances, (id, raw)) else {
        // The time of the event is unknown; the host stamps the time at which it was polled.
        return stage_now(instances, Safety::MpiRestricted, Recipients::Ordered);
    };
    if refusals.late | refusals.full != 0 {
        drop_refused(instances, source, refusals);
    }
    source.count_raised_by_any(instances.len() as u64);
    deliver::set_port_pending(id, is_nearly_full);
}

#[cold]
fn drop_refused(instances: &[EventInstance], source: &Source, Refusals { late, full }: Refusals) {
    for (index, instance) in instances.iter().enumerate() {
        if late >> index & 1 != 0 {
            source.count_late();
        }
        if (late | full) >> index & 1 != 0 {
            drop_instance(instance, Recipients::Ordered);
        }
    }
}

#[inline]
fn group_of_one<P: Payload>(make: impl FnOnce() -> P) -> EventGroup {
    let mut group = EventGroup::new(interest());
    group.add(make);
    group
}

/// Raises an event on the thread's source, stamped with the host's clock. Callbacks of the level `safety` run here, so
/// the caller holds no lock that an ibex call within one could need. Calls `make` only if the type has a listener.
#[inline]
pub fn raise<P: Payload>(safety: Safety, make: impl FnOnce() -> P) {
    group_of_one(make).raise(host_timestamp, safety);
}

/// Like [`raise`], where callbacks may not run: stamps the event now and stages it in the thread, until the thread
/// calls [`super::progress`], raises again, or ends.
#[inline]
pub fn stage<P: Payload>(safety: Safety, make: impl FnOnce() -> P) {
    group_of_one(make).stage(safety);
}

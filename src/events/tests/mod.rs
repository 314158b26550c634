// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the event engine, one file per subject; `models.rs` runs only under loom, all others only without it.
//!
//! There is one engine per process, so a test that registers first takes [`alone`]: one such test at a time, beginning
//! without registrations. Other threads of the test process may exist, so callbacks are registered as thread-safe.

mod delivery;
mod free;
mod held_up;
mod raise;
mod registrations;
mod sources;
mod table;
mod threads;

use crate::events::delivery::deliver::deliver_counted;
use crate::events::*;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static ALONE: Mutex<()> = Mutex::new(());

/// Gives a test the engine for itself, without registrations.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for left in all() {
        let _ = free(&left, Safety::ThreadSafe, None);
    }
    deliver(usize::MAX, Safety::ThreadSafe);
    guard
}

#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Vec<EventInstance>>>);

impl Seen {
    pub(super) fn callback(&self) -> Callback {
        let seen = self.clone();
        Arc::new(move |instance: &EventInstance, _: &Registration, _| seen.lock().push(*instance))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<EventInstance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.lock().iter().map(|instance| instance.words[0] & 0xffff_ffff).collect()
    }
}

/// Number of events that are earlier than the one before of the same source.
pub(super) fn steps_back(instances: &[EventInstance]) -> usize {
    let mut last = HashMap::new();
    let before = |one: &EventInstance| last.insert(one.source, one.timestamp);
    instances.iter().map(before).zip(instances).filter(|(before, one)| *before > Some(one.timestamp)).count()
}

/// Holds a callback in another thread until the test lets it go.
pub(super) struct Gate {
    entered: Receiver<()>,
    leave: Sender<()>,
}

impl Gate {
    /// Returns a gate, and the function that the callback calls to stay there.
    pub(super) fn new() -> (Gate, impl Fn() + Send + Sync) {
        let ((enters, entered), (leave, leaves)) = (channel(), channel());
        let leaves = Mutex::new(leaves);
        let stay = move || {
            enters.send(()).expect("the test waits");
            leaves.lock().expect("no panic").recv().expect("the test says so");
        };
        (Gate { entered, leave }, stay)
    }

    pub(super) fn is_reached(&self) {
        self.entered.recv().expect("the callback is called");
    }

    pub(super) fn open(&self) {
        self.leave.send(()).expect("the callback waits");
    }
}

pub(super) fn raise_number(number: u32) {
    raise(Safety::MpiRestricted, || DeviceAsync { event: number, port: 0 });
}

pub(super) fn stage_stamped<P: Payload>(port: SourceId, raw: u64, make: impl FnOnce() -> P) {
    let mut group = EventGroup::new(interest());
    group.add(make);
    group.stage_seen(port, raw, Safety::MpiRestricted);
}

pub(super) const NUMBERED: TypeId = DeviceAsync::TYPE;

pub(super) fn listen(options: Options, callback: Callback) -> Arc<Registration> {
    listen_to(NUMBERED, Safety::ThreadSafe, options, callback)
}

pub(super) fn listen_to(of: TypeId, level: Safety, options: Options, callback: Callback) -> Arc<Registration> {
    let registration = register(of, options);
    set_callback(&registration, level, Some(callback)).expect("it is not freed");
    registration
}

pub(super) fn calling(
    of: TypeId,
    level: Safety,
    options: Options,
    callback: impl Fn(&EventInstance, &Registration, Safety) + Send + Sync + 'static,
) -> Arc<Registration> {
    listen_to(of, level, options, Arc::new(callback))
}

/// The engine for the test itself, and a registration whose events are seen.
pub(super) fn listening_to(
    of: TypeId,
    level: Safety,
    options: Options,
) -> (MutexGuard<'static, ()>, Seen, Arc<Registration>) {
    let (alone, seen) = (alone(), Seen::default());
    let registration = listen_to(of, level, options, seen.callback());
    (alone, seen, registration)
}

pub(super) fn listening(options: Options) -> (MutexGuard<'static, ()>, Seen, Arc<Registration>) {
    listening_to(NUMBERED, Safety::ThreadSafe, options)
}

/// The losses that a registration reports.
pub(super) fn losses(registration: &Registration) -> Arc<Mutex<Vec<u64>>> {
    let losses = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&losses);
    let callback: DroppedCallback =
        Arc::new(move |count: u64, _, _: &Registration, _| noted.lock().expect("no panic").push(count));
    set_dropped(registration, Some(callback)).expect("live");
    losses
}

pub(super) fn buffered(room: usize) -> Options {
    Options { buffered: true, room, ..Options::default() }
}

/// Delivers all waiting events; returns how many came from buffers.
pub(super) fn deliver_all() -> usize {
    deliver_counted(usize::MAX, Safety::MpiRestricted)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registrations of the logger or of the recorder: made at the start, freed while the program has stopped logging,
//! made again, and freed at the end.
//!
//! An event without a registration is not raised, so a stopped program has no cost. Called by `session.rs` and
//! `recording.rs`. Grade: setup. Threads: any. Tests: tests/log.rs, tests/trace.rs.

use std::ffi::c_int;
use std::sync::Mutex;

use crate::catalogue::EventType;
use crate::mpi::{self, Callback, Dropped, Registration};
use crate::thread::lock;

/// The registered types, each with the argument of its callbacks (L1).
pub(crate) struct Listening<T: 'static> {
    callback: Callback,
    dropped: Dropped,
    types: Vec<Listened<T>>,
    state: Mutex<State>,
}

struct Listened<T: 'static> {
    index: c_int,
    name: String,
    target: &'static T,
}

struct State {
    /// Registrations by the index of the type; `None`: there is none now.
    registrations: Vec<Option<Registration>>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    On,
    Stopped,
    Over,
}

impl<T: Sync + 'static> Listening<T> {
    /// Registers for those of these types that are ibex's.
    ///
    /// # Safety
    /// L1: the callbacks take their argument for a `&'static T`.
    pub(crate) unsafe fn begin(
        types: &[EventType],
        targets: &[&'static T],
        callback: Callback,
        dropped: Dropped,
    ) -> Listening<T> {
        let of = |(of, target): (&EventType, &&'static T)| {
            Some(Listened { index: of.index?, name: of.name.clone(), target: *target })
        };
        let types: Vec<_> = types.iter().zip(targets).filter_map(of).collect();
        let state = State { registrations: types.iter().map(|_| None).collect(), phase: Phase::On };
        let listening = Listening { callback, dropped, types, state: Mutex::new(state) };
        listening.register(&mut lock(&listening.state));
        listening
    }

    fn register(&self, state: &mut State) {
        let places = self.types.iter().zip(&mut state.registrations);
        for (of, place) in places.filter(|(_, place)| place.is_none()) {
            let user = std::ptr::from_ref::<T>(of.target).cast_mut().cast();
            // SAFETY: L1: the target is never freed, and shared; the callbacks expect a `T`, as the caller of `begin`
            // says.
            match unsafe { Registration::new(of.index, self.callback, self.dropped, user) } {
                Ok(registration) => *place = Some(registration),
                Err(refused) => mpi::complain(&format!("{}: registering answers {}", of.name, refused.0)),
            }
        }
    }

    /// Frees the registrations, except those of types for which `stays` returns true; ibex delivers waiting events
    /// first. Returns false if they are freed already.
    pub(crate) fn stop(&self, stays: impl Fn(&str) -> bool) -> bool {
        let mut state = lock(&self.state);
        let is_on = state.phase == Phase::On;
        if is_on {
            state.phase = Phase::Stopped;
            let places = self.types.iter().zip(&mut state.registrations).filter(|(of, _)| !stays(&of.name));
            places.filter_map(|(_, place)| place.take()).for_each(Registration::free);
        }
        is_on
    }

    /// Registers again, after calling `before`. Without a stop it does nothing.
    pub(crate) fn resume(&self, before: impl FnOnce()) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Stopped {
            state.phase = Phase::On;
            before();
            self.register(&mut state);
        }
    }

    /// Frees all registrations for good; ibex delivers waiting events first. A callback that another thread is running
    /// now may lose its event.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.phase = Phase::Over;
        state.registrations.iter_mut().filter_map(Option::take).for_each(Registration::free);
    }
}

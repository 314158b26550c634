// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common part of the logger and the recorder: the registrations for the chosen types, the threads' rings, and the
//! writing thread. The registrations are freed while the program has stopped the logging: an event without one is not
//! raised, so a stopped program has no cost. Called by `session.rs` and `recording.rs`. Grade: setup. Threads: any.
//! Tests: tests/log.rs, tests/trace.rs.

use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::catalogue::EventType;
use crate::mpi::{self, Registration};
use crate::rings::Rings;
use crate::target::{Target, on_dropped, on_event};
use crate::thread::{self, Stop, lock};

/// Time that the writing thread sleeps between two passes. The text of a killed process lacks no more than this.
const PAUSE: Duration = Duration::from_millis(5);

/// Number of events or records of a pass after which the next pass follows at once.
const BUSY: usize = 1 << 13;

pub(crate) struct Listening {
    pub(crate) types: Vec<EventType>,
    /// Targets of the types; never freed (L1).
    pub(crate) targets: Vec<&'static Target>,
    pub(crate) rings: &'static Rings,
    state: Mutex<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Stop,
}

struct State {
    /// Registrations of the types; `None`: there is none now, or the type is this tool's own.
    registrations: Vec<Option<Registration>>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    On,
    Stopped,
    Over,
}

impl Listening {
    /// Registers for those of these types that are ibex's.
    pub(crate) fn begin(types: Vec<EventType>, rings: Rings) -> Listening {
        let rings: &'static Rings = Box::leak(Box::new(rings));
        let target = |(number, of)| &*Box::leak(Box::new(Target::new(number as u8, of, rings)));
        let targets = types.iter().enumerate().map(target).collect();
        let state = State { registrations: types.iter().map(|_| None).collect(), phase: Phase::On };
        let (state, thread, stop) = (Mutex::new(state), Mutex::new(None), Stop::default());
        let listening = Listening { types, targets, rings, state, thread, stop };
        listening.register(&mut lock(&listening.state));
        listening
    }

    fn register(&self, state: &mut State) {
        for ((of, target), place) in self.types.iter().zip(&self.targets).zip(&mut state.registrations) {
            let (Some(index), None) = (of.index, &place) else { continue };
            let user = std::ptr::from_ref::<Target>(target).cast_mut().cast();
            // SAFETY: L1: both callbacks get a target, which is never freed, and shared.
            match unsafe { Registration::new(index, on_event, on_dropped, user) } {
                Ok(registration) => *place = Some(registration),
                Err(refused) => mpi::complain(&format!("{}: registering answers {}", of.name, refused.0)),
            }
        }
    }

    /// Frees the registrations that need not stay (`stays`); ibex delivers waiting events first. False: freed already.
    pub(crate) fn stop(&self, stays: impl Fn(&str) -> bool) -> bool {
        let mut state = lock(&self.state);
        let is_on = state.phase == Phase::On;
        if is_on {
            state.phase = Phase::Stopped;
            let places = self.types.iter().zip(&mut state.registrations).filter(|(of, _)| !stays(of.short()));
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

    /// Starts the writing thread, unless there is one. It calls `pass` again and again. Returns after the first call.
    pub(crate) fn start(&'static self, name: &str, pass: impl Fn() -> usize + Send + 'static) {
        let mut thread = lock(&self.thread);
        if thread.is_some() {
            return;
        }
        *thread = thread::start(name, move |ready| {
            pass();
            ready.tell();
            while !self.stop.sleep(PAUSE) {
                while pass() >= BUSY {}
            }
        });
        if thread.is_none() {
            mpi::complain("cannot start a thread: events are written at the end, as far as the rings hold them");
        }
    }

    /// Frees all registrations for good, and ends the thread. A callback in another thread may lose its event. Returns
    /// false if it has been called before.
    pub(crate) fn end(&self) -> bool {
        let mut state = lock(&self.state);
        if state.phase == Phase::Over {
            return false;
        }
        state.phase = Phase::Over;
        state.registrations.iter_mut().filter_map(Option::take).for_each(Registration::free);
        drop(state);
        self.stop.set();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
        true
    }

    pub(crate) fn lost(&self) -> impl Iterator<Item = u64> {
        self.targets.iter().map(|target| target.lost())
    }
}

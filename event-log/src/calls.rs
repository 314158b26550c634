// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records MPI calls in which the application can wait for other processes, with an event at their begin and one at
//! their end (`mpi-calls/`, whose functions this library exports); also where the program stops and resumes the
//! recording. Called by the application, and by `recording.rs`. Grade: hot; two clock readings and two records per
//! call. Threads: the application's. Tests: tests/trace.rs; hw-tests/tests/device/waits.rs.

use std::ffi::c_int;
use std::sync::OnceLock;

use ibex_mpi_calls::{BEGIN, CONTROL, CONTROL_DESCRIPTION, ELEMENTS, END, Recorder, describe, set_stopped};

use crate::catalogue::EventType;
use crate::mpi;
use crate::target::Target;

// Open MPI has few calls of MPI 4.
ibex_mpi_calls::override_calls! { mpi_3 by ibex_mpi_calls::enter_recorded }

/// Source with the clock of the host, which always exists.
const SOURCE: c_int = 0;

static TARGETS: OnceLock<Targets> = OnceLock::new();

/// The targets of the events that are recorded.
struct Targets {
    begin: Option<&'static Target>,
    end: Option<&'static Target>,
    control: Option<&'static Target>,
}

impl Recorder for Targets {
    fn begins(&self, event: [u64; 2]) {
        self.begin.inspect(|target| put(target, event));
    }

    fn ends(&self, event: [u64; 2]) {
        self.end.inspect(|target| put(target, event));
    }
}

fn has_clock() -> bool {
    mpi::source(SOURCE).is_ok_and(|source| source.name.starts_with("host:"))
}

/// Returns the type of stops and resumptions. A trace always has it, because readers must know of gaps.
pub(crate) fn control() -> Option<EventType> {
    has_clock().then(|| EventType::own(CONTROL, CONTROL_DESCRIPTION.to_owned(), &["level"]))
}

/// Returns the two types of calls; none if no clock can stamp them.
pub(crate) fn types() -> Vec<EventType> {
    if !has_clock() {
        return Vec::new();
    }
    [(BEGIN, "begins"), (END, "ends")].map(|(name, what)| EventType::own(name, describe(what), &ELEMENTS)).into()
}

/// Records calls from now on, if their types are among these.
pub(crate) fn record(types: &[EventType], targets: &[&'static Target]) {
    let of = |name| types.iter().zip(targets).find(|(of, _)| of.name == name).map(|(_, target)| *target);
    let recorder = || Targets { begin: of(BEGIN), end: of(END), control: of(CONTROL) };
    ibex_mpi_calls::record(TARGETS.get_or_init(recorder));
}

pub(crate) fn stop() {
    set_stopped(true);
    tell(0);
}

pub(crate) fn resume() {
    tell(1);
    set_stopped(false);
}

fn tell(level: u64) {
    if let Some(control) = TARGETS.get().and_then(|targets| targets.control) {
        put(control, [level, 0]);
    }
}

#[inline]
fn put(target: &Target, event: [u64; 2]) {
    match mpi::source_now(SOURCE) {
        Some(now) => target.put(SOURCE, now, |element| event[element]),
        None => target.lose(1),
    }
}

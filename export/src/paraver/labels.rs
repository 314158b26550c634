// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `.pcf` of a Paraver trace: names of states and events, and colours. Called by `mod.rs`. Path: setup. Threads:
//! any. Tests: tests/paraver.rs.

use std::fmt::Write as _;

use ibex_messages::{IncidentKind, Job, Protocol, Queue};

use super::{COUNTER, FIRST_STATE, INCIDENT, INCIDENT_VALUE, PROTOCOL, SEARCH, calls, counter_of_port, peruse};
use crate::counters::Counter;
use crate::life::Phase;
use crate::names;

pub(super) fn labels_of(job: &Job) -> String {
    let mut text = String::from(
        "DEFAULT_OPTIONS\n\nLEVEL               THREAD\nUNITS               NANOSEC\nLOOK_BACK           100\n\
         SPEED               1\nFLAG_ICONS          ENABLED\nNUM_OF_STATE_COLORS 1000\nYMAX_SCALE          37\n\n\n\
         DEFAULT_SEMANTIC\n\nTHREAD_FUNC         State As Is\n\n\nSTATES\n",
    );
    for (number, name, _) in calls::STATES {
        let _ = writeln!(text, "{number}    {name}");
    }
    for &phase in Phase::ALL {
        let _ = writeln!(text, "{}    {}", FIRST_STATE + phase.number(), phase.name());
    }
    text += "\n\nSTATES_COLOR\n";
    for (number, _, (red, green, blue)) in calls::STATES {
        let _ = writeln!(text, "{number}    {{{red},{green},{blue}}}");
    }
    for &phase in Phase::ALL {
        let (red, green, blue) = colour(phase);
        let _ = writeln!(text, "{}    {{{red},{green},{blue}}}", FIRST_STATE + phase.number());
    }
    let functions = calls::functions(job);
    for &(kind, name) in calls::TYPES {
        let of_kind = functions.iter().filter(|function| function.kind == kind);
        let values = of_kind.map(|function| (function.value, function.name.as_str()));
        numbered(&mut text, kind, name, [(0, "Outside MPI")].into_iter().chain(values));
    }
    let queues = Queue::ALL.iter().map(|queue| (*queue as u32 + 1, names::search(*queue)));
    numbered(&mut text, SEARCH, "ibex: search of a queue", [(0, "none")].into_iter().chain(queues));
    for (kind, side) in [(peruse::OF_SEND, "send"), (peruse::OF_RECEIVE, "receive")] {
        numbered(&mut text, kind, &format!("PERUSE: event of a {side}"), peruse::EVENTS.iter().copied());
    }
    numbered(&mut text, peruse::MESSAGE, "PERUSE: number of the message", std::iter::empty());
    event(&mut text, PROTOCOL, "ibex: protocol of the send", Protocol::NAMES);
    event(&mut text, INCIDENT, "ibex: incident", IncidentKind::NAMES);
    event(&mut text, INCIDENT_VALUE, "ibex: requests, bytes or number of the incident", &[]);
    for counter in Counter::of_ranks() {
        event(&mut text, COUNTER + counter.number(), &format!("ibex: {}", counter.name()), &[]);
    }
    let indices: std::collections::BTreeSet<u32> = job.ports.iter().map(|port| port.index).collect();
    for index in indices {
        for counter in Counter::of_ports() {
            let name = format!("ibex: port {index}: {}", counter.name());
            event(&mut text, counter_of_port(index, counter), &name, &[]);
        }
    }
    text
}

/// Adds a type of events, with values that count from 1.
fn event(text: &mut String, kind: u32, name: &str, values: &[&str]) {
    numbered(text, kind, name, (1..).zip(values.iter().copied()));
}

/// Adds a type of events with these values; without any, its values are just numbers.
fn numbered<'v>(text: &mut String, kind: u32, name: &str, values: impl Iterator<Item = (u32, &'v str)>) {
    let _ = write!(text, "\n\nEVENT_TYPE\n0    {kind}    {name}\n");
    for (place, (number, value)) in values.enumerate() {
        *text += if place == 0 { "VALUES\n" } else { "" };
        let _ = writeln!(text, "{number}      {value}");
    }
}

/// Waits have warm colours, work is green or blue, completed requests that MPI has not reported are grey.
fn colour(phase: Phase) -> (u8, u8, u8) {
    match phase {
        Phase::SendWaits => (255, 193, 37),
        Phase::SendAnnounced => (245, 160, 60),
        Phase::SendGoes => (30, 110, 200),
        Phase::SendEnds => (110, 170, 230),
        Phase::SendDone | Phase::ReceiveDone => (170, 170, 170),
        Phase::ReceiveWaits => (220, 50, 47),
        Phase::MessageWaits => (235, 120, 40),
        Phase::Matching => (180, 80, 180),
        Phase::Matched => (130, 200, 130),
        Phase::ReceiveGoes => (40, 150, 70),
        Phase::ReceiveEnds => (90, 180, 160),
        Phase::Put => (80, 80, 200),
        Phase::Get => (60, 140, 180),
        Phase::Atomic => (120, 60, 160),
        Phase::Connecting => (200, 160, 90),
        Phase::Connected => (210, 225, 210),
    }
}

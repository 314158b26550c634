// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of PERUSE that ibex has: number and name (`include/peruse.h`) of each, and the engine's or PML's event.
//! Called by the other files of this folder. Grade: setup. Threads: any. Tests: below.

use std::ffi::{CStr, c_int};

use crate::runtime::listeners::{self, Event};
use crate::runtime::ports;
use crate::tool::host;
use engine::events::{
    AtomicComplete, AtomicStarted, GetComplete, GetStarted, Payload, PutComplete, PutStarted, TypeId,
};

/// `PERUSE_EVENT_INVALID`
pub(super) const INVALID: c_int = 0;

/// `PERUSE_FIRST_CUSTOM_EVENT`
const CUSTOM: c_int = 17;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RaisedBy {
    /// The transport, as an event type of the engine; the operation is `PERUSE_PUT`, `PERUSE_GET` or `PERUSE_ACC`.
    Transport(TypeId, c_int),
    Matching(Event),
}

pub(super) struct SupportedEvent {
    pub(super) number: c_int,
    pub(super) name: &'static CStr,
    pub(super) raised_by: RaisedBy,
}

const PUT: c_int = 2;
const GET: c_int = 3;
const ACC: c_int = 4;

/// All events that ibex raises: a build without events has none. Those of [`coming`] come first.
pub(super) static EVENTS: &[SupportedEvent] = if cfg!(feature = "events") { &FIRED } else { &[] };

/// Number of events of the transport, which come first in the list.
const OF_TRANSPORT: usize = 6;

const fn of_message(number: c_int, name: &'static CStr, event: Event) -> SupportedEvent {
    SupportedEvent { number, name, raised_by: RaisedBy::Matching(event) }
}

const fn of_transport(number: c_int, name: &'static CStr, event_type: TypeId, operation: c_int) -> SupportedEvent {
    SupportedEvent { number, name, raised_by: RaisedBy::Transport(event_type, operation) }
}

static FIRED: [SupportedEvent; 25] = [
    of_transport(CUSTOM + 3, c"PERUSE_IBEX_PUT_STARTED", PutStarted::TYPE, PUT),
    of_transport(CUSTOM + 4, c"PERUSE_IBEX_PUT_COMPLETE", PutComplete::TYPE, PUT),
    of_transport(CUSTOM + 5, c"PERUSE_IBEX_GET_STARTED", GetStarted::TYPE, GET),
    of_transport(CUSTOM + 6, c"PERUSE_IBEX_GET_COMPLETE", GetComplete::TYPE, GET),
    of_transport(CUSTOM + 7, c"PERUSE_IBEX_ACC_STARTED", AtomicStarted::TYPE, ACC),
    of_transport(CUSTOM + 8, c"PERUSE_IBEX_ACC_COMPLETE", AtomicComplete::TYPE, ACC),
    of_message(1, c"PERUSE_COMM_REQ_ACTIVATE", Event::Activate),
    of_message(2, c"PERUSE_COMM_REQ_MATCH_UNEX", Event::MatchUnexpected),
    of_message(3, c"PERUSE_COMM_REQ_INSERT_IN_POSTED_Q", Event::InsertPosted),
    of_message(4, c"PERUSE_COMM_REQ_REMOVE_FROM_POSTED_Q", Event::RemovePosted),
    of_message(5, c"PERUSE_COMM_REQ_XFER_BEGIN", Event::XferBegin),
    of_message(CUSTOM, c"PERUSE_COMM_REQ_XFER_CONTINUE", Event::XferContinue),
    of_message(6, c"PERUSE_COMM_REQ_XFER_END", Event::XferEnd),
    of_message(7, c"PERUSE_COMM_REQ_COMPLETE", Event::Complete),
    of_message(8, c"PERUSE_COMM_REQ_NOTIFY", Event::Notify),
    of_message(CUSTOM + 1, c"PERUSE_IBEX_REQ_CANCEL", Event::Cancel),
    of_message(CUSTOM + 2, c"PERUSE_IBEX_REQ_FREE", Event::Free),
    of_message(9, c"PERUSE_COMM_MSG_ARRIVED", Event::Arrived),
    of_message(10, c"PERUSE_COMM_MSG_INSERT_IN_UNEX_Q", Event::InsertUnexpected),
    of_message(11, c"PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q", Event::RemoveUnexpected),
    of_message(12, c"PERUSE_COMM_MSG_MATCH_POSTED_REQ", Event::MatchPosted),
    of_message(13, c"PERUSE_COMM_SEARCH_POSTED_Q_BEGIN", Event::SearchPostedBegin),
    of_message(14, c"PERUSE_COMM_SEARCH_POSTED_Q_END", Event::SearchPostedEnd),
    of_message(15, c"PERUSE_COMM_SEARCH_UNEX_QUEUE_BEGIN", Event::SearchUnexpectedBegin),
    of_message(16, c"PERUSE_COMM_SEARCH_UNEX_Q_END", Event::SearchUnexpectedEnd),
];

/// Returns the events that are raised in this process: all if ibex' PML is in use.
pub(super) fn supported() -> &'static [SupportedEvent] {
    if listeners::are_raised() { EVENTS } else { &EVENTS[..OF_TRANSPORT.min(EVENTS.len())] }
}

/// Returns the events that can happen: none if MPI was initialised and ibex has opened no port.
pub(super) fn coming() -> &'static [SupportedEvent] {
    if host::mpi_was_initialized() && !ports::has_opened() { &[] } else { supported() }
}

/// Returns the event with this number, whether it can happen or not.
pub(super) fn numbered(number: c_int) -> Option<&'static SupportedEvent> {
    supported().iter().find(|event| event.number == number)
}

/// Returns the event with this name, if it can happen.
pub(super) fn named(name: &CStr) -> Option<&'static SupportedEvent> {
    coming().iter().find(|event| event.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_its_number_and_name_from_the_header() {
        let header = include_str!("../../../include/peruse.h");
        let (_, events) = header.split_once("    PERUSE_EVENT_INVALID,").expect("the enumeration");
        let (events, _) = events.split_once("};").expect("its end");
        let mut next = 1;
        let mut found = 0;
        for word in events.split(',').map(str::trim) {
            let (name, alias) = word.split_once(" = ").map_or((word, false), |(name, _)| (name, true));
            // An alias has the value of the name before it.
            let number = if alias { next - 1 } else { next };
            if !alias {
                next += 1;
            }
            if let Some(event) = EVENTS.iter().find(|event| event.name.to_str() == Ok(name)) {
                assert_eq!(event.number, number, "{name}");
                if let RaisedBy::Matching(event) = event.raised_by {
                    assert_eq!(event as c_int + 1, number, "{name}");
                }
                found += 1;
            }
        }
        assert_eq!(found, EVENTS.len());
        let of_transport = |event: &SupportedEvent| matches!(event.raised_by, RaisedBy::Transport(..));
        assert!(EVENTS[..OF_TRANSPORT].iter().all(of_transport) && !EVENTS[OF_TRANSPORT..].iter().any(of_transport));
        assert!(numbered(INVALID).is_none() && named(c"PERUSE_COMM_REQ_ACTIVATE").is_none());
    }

    #[test]
    fn the_page_describes_every_supported_event() {
        let page = include_str!("../../../../docs/peruse.md");
        for event in EVENTS {
            let name = event.name.to_str().expect("letters");
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
            let row = row.unwrap_or_else(|| panic!("{name} is not in docs/peruse.md"));
            if let RaisedBy::Transport(event_type, _) = event.raised_by {
                assert!(row.contains(&format!("`{}`", event_type.row().name)), "{row}");
            }
        }
    }
}

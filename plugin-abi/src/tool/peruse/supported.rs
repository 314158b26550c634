// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of PERUSE that ibex has: their numbers and names (`include/peruse.h`), and what each is in the engine.
//!
//! Called by the other files of this folder. Grade: setup. Threads: plain data. Tests: at the end of the file.

use std::ffi::{CStr, c_int};

use crate::runtime::ports;
use crate::tool::host;
use engine::events::{
    GetComplete, GetStarted, MsgArrived, Payload, PutComplete, PutStarted, TypeId, XferBegin, XferContinue, XferEnd,
};

/// `PERUSE_EVENT_INVALID`
pub(super) const INVALID: c_int = 0;

/// `PERUSE_FIRST_CUSTOM_EVENT`
const CUSTOM: c_int = 17;

/// An event that is supported.
pub(super) struct SupportedEvent {
    pub(super) number: c_int,
    pub(super) name: &'static CStr,
    pub(super) event_type: TypeId,
    /// `PERUSE_PUT`, `PERUSE_GET`, or `PERUSE_RECV` of what arrives; of a message's transfer its direction says.
    pub(super) operation: Option<c_int>,
}

const RECEIVE: Option<c_int> = Some(1);
const PUT: Option<c_int> = Some(2);
const GET: Option<c_int> = Some(3);

/// All of them: what is not fired is not here, so that a build without events has none.
pub(super) static SUPPORTED: &[SupportedEvent] = if cfg!(feature = "events") { &FIRED } else { &[] };

static FIRED: [SupportedEvent; 8] = [
    SupportedEvent { number: 5, name: c"PERUSE_COMM_REQ_XFER_BEGIN", event_type: XferBegin::TYPE, operation: None },
    SupportedEvent { number: 6, name: c"PERUSE_COMM_REQ_XFER_END", event_type: XferEnd::TYPE, operation: None },
    SupportedEvent { number: 9, name: c"PERUSE_COMM_MSG_ARRIVED", event_type: MsgArrived::TYPE, operation: RECEIVE },
    SupportedEvent {
        number: CUSTOM,
        name: c"PERUSE_COMM_REQ_XFER_CONTINUE",
        event_type: XferContinue::TYPE,
        operation: None,
    },
    SupportedEvent {
        number: CUSTOM + 1,
        name: c"PERUSE_IBEX_PUT_STARTED",
        event_type: PutStarted::TYPE,
        operation: PUT,
    },
    SupportedEvent {
        number: CUSTOM + 2,
        name: c"PERUSE_IBEX_PUT_COMPLETE",
        event_type: PutComplete::TYPE,
        operation: PUT,
    },
    SupportedEvent {
        number: CUSTOM + 3,
        name: c"PERUSE_IBEX_GET_STARTED",
        event_type: GetStarted::TYPE,
        operation: GET,
    },
    SupportedEvent {
        number: CUSTOM + 4,
        name: c"PERUSE_IBEX_GET_COMPLETE",
        event_type: GetComplete::TYPE,
        operation: GET,
    },
];

/// Those that can come: none in a process in which MPI is initialised and ibex has opened no port. Before that it is not known yet.
pub(super) fn coming() -> &'static [SupportedEvent] {
    if host::mpi_was_initialized() && !ports::has_opened() { &[] } else { SUPPORTED }
}

/// The event of a number, whether it can come or not.
pub(super) fn numbered(number: c_int) -> Option<&'static SupportedEvent> {
    SUPPORTED.iter().find(|event| event.number == number)
}

/// The event of a name, if it can come.
pub(super) fn named(name: &CStr) -> Option<&'static SupportedEvent> {
    coming().iter().find(|event| event.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_the_header() {
        let header = include_str!("../../../include/peruse.h");
        let (_, events) = header.split_once("    PERUSE_EVENT_INVALID,").expect("the enumeration");
        let (events, _) = events.split_once("};").expect("its end");
        let mut next = 1;
        let mut found = 0;
        for word in events.split(',').map(str::trim) {
            let (name, alias) = word.split_once(" = ").map_or((word, false), |(name, _)| (name, true));
            // A name that is given the value of the one before.
            let number = if alias { next - 1 } else { next };
            if !alias {
                next += 1;
            }
            if let Some(event) = SUPPORTED.iter().find(|event| event.name.to_str() == Ok(name)) {
                assert_eq!(event.number, number, "{name}");
                found += 1;
            }
        }
        assert_eq!(found, SUPPORTED.len());
        assert!(numbered(INVALID).is_none() && named(c"PERUSE_COMM_REQ_ACTIVATE").is_none());
    }

    #[test]
    fn the_page_has_every_event_that_is_supported_and_what_it_is() {
        let page = include_str!("../../../../docs/peruse.md");
        for event in SUPPORTED {
            let name = event.name.to_str().expect("letters");
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
            let row = row.unwrap_or_else(|| panic!("{name} is not in docs/peruse.md"));
            assert!(row.contains(&format!("`{}`", event.event_type.row().name)), "{row}");
        }
    }
}

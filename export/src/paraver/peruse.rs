// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of PERUSE as flags on a thread's line: an event of a send or of a receive, and the number of its message.
//! The values are the numbers of the events in PERUSE's header (plugin-abi/include/peruse.h), of those events whose
//! times the job has; searches have their own type (`mod.rs`). Called by `mod.rs` and `labels.rs`. Path: once for each
//! moment of a message. Threads: plain data. Tests: below; tests/paraver.rs.

use ibex_messages::Job;

use crate::life::{Item, Moment};

/// Types: an event of a send, of a receive, and the number of the message in the job, from 1.
pub(super) const OF_SEND: u32 = 77_000_201;
pub(super) const OF_RECEIVE: u32 = 77_000_202;
pub(super) const MESSAGE: u32 = 77_000_203;

pub(super) const EVENTS: [(u32, &str); 12] = [
    (1, "REQ_ACTIVATE"),
    (2, "REQ_MATCH_UNEX"),
    (3, "REQ_INSERT_IN_POSTED_Q"),
    (5, "REQ_XFER_BEGIN"),
    (6, "REQ_XFER_END"),
    (7, "REQ_COMPLETE"),
    (8, "REQ_NOTIFY"),
    (9, "MSG_ARRIVED"),
    (10, "MSG_INSERT_IN_UNEX_Q"),
    (12, "MSG_MATCH_POSTED_REQ"),
    (XFER_CONTINUE, "REQ_XFER_CONTINUE"),
    (0, "none"),
];
pub(super) const XFER_CONTINUE: u32 = 17;

/// Returns type, value and message of a moment; `None` if PERUSE has no such event.
pub(super) fn event(job: &Job, item: Item, moment: Moment) -> Option<(u32, u32, u32)> {
    let (kind, place) = match item {
        Item::Send(place) => (OF_SEND, place),
        Item::Receive(place) => (OF_RECEIVE, place),
        _ => return None,
    };
    let value = match moment {
        Moment::Activated => 1,
        Moment::Posted => 3,
        Moment::Begun => 5,
        Moment::Ended => 6,
        Moment::Completed => 7,
        Moment::Notified => 8,
        Moment::Arrived => 9,
        Moment::Unexpected => 10,
        Moment::Matched if is_unexpected(job, place) => 2,
        Moment::Matched => 12,
        Moment::Announced | Moment::Failed | Moment::Happened => return None,
    };
    Some((kind, value, place))
}

fn is_unexpected(job: &Job, place: u32) -> bool {
    job.messages[place as usize].receive.is_some_and(|side| side.unexpected.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_those_of_the_header() {
        let header = include_str!("../../../plugin-abi/include/peruse.h");
        let (_, events) = header.split_once("PERUSE_EVENT_INVALID,").expect("the events");
        let (events, _) = events.split_once('}').expect("their end");
        let (mut numbers, mut last) = (std::collections::HashMap::new(), 0);
        for name in events.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            // `A = B` is another name with the number of the previous one.
            let (name, is_other) = name.split_once(" = ").map_or((name, false), |(name, _)| (name, true));
            last += u32::from(!is_other);
            numbers.insert(name, last);
        }
        for (value, name) in EVENTS.into_iter().filter(|(value, _)| *value > 0) {
            assert_eq!(numbers.get(format!("PERUSE_COMM_{name}").as_str()), Some(&value), "{name}");
        }
    }
}

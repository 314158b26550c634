// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of PERUSE as flags on a thread's line: an event of a send or of a receive, and the number of its message.
//! The values are those of PERUSE's header (plugin-abi/include/peruse.h). Called by `mod.rs`, `beside.rs`, `labels.rs`.
//! Path: once for each event of a message. Threads: any, as nothing is shared. Tests: below; tests/paraver.rs.

use ibex_messages::{Job, Queue, Time};

use crate::life::{Item, Moment};
use crate::threads::Threads;
use crate::walk;

/// Types: an event of a send, of a receive, and the number of the message in the job, from 1.
pub(super) const OF_SEND: u32 = 77_000_201;
pub(super) const OF_RECEIVE: u32 = 77_000_202;
pub(super) const MESSAGE: u32 = 77_000_203;

pub(super) const EVENTS: [(u32, &str); 20] = [
    (1, "REQ_ACTIVATE"),
    (2, "REQ_MATCH_UNEX"),
    (3, "REQ_INSERT_IN_POSTED_Q"),
    (4, "REQ_REMOVE_FROM_POSTED_Q"),
    (5, "REQ_XFER_BEGIN"),
    (6, "REQ_XFER_END"),
    (7, "REQ_COMPLETE"),
    (8, "REQ_NOTIFY"),
    (9, "MSG_ARRIVED"),
    (10, "MSG_INSERT_IN_UNEX_Q"),
    (11, "MSG_REMOVE_FROM_UNEX_Q"),
    (12, "MSG_MATCH_POSTED_REQ"),
    (13, "SEARCH_POSTED_Q_BEGIN"),
    (14, "SEARCH_POSTED_Q_END"),
    (15, "SEARCH_UNEX_QUEUE_BEGIN"),
    (16, "SEARCH_UNEX_Q_END"),
    (17, "REQ_XFER_CONTINUE"),
    (18, "REQ_CANCEL"),
    (19, "REQ_FREE"),
    (0, "none"),
];

/// Type, value, and index of the message in the job.
pub(super) type Event = (u32, u32, Option<u32>);

/// Returns the events that no [`Moment`] stands for, each with its time and thread: fragments, searches, removals from
/// the queues, frees of requests, and all events of cancelled receives.
pub(super) fn others(job: &Job, threads: &Threads) -> Vec<(u64, u32, Event)> {
    let first = walk::first(job);
    let mut all = Vec::new();
    let mut add = |(rank, thread), (kind, message), events: &[(u32, Option<Time>)]| {
        let thread = threads.find(rank, thread);
        let event =
            |&(value, time): &(u32, Option<Time>)| Some((walk::since(first, time?), thread, (kind, value, message)));
        all.extend(events.iter().filter_map(event));
    };
    for of in &job.fragments {
        let kind = if of.is_received { OF_RECEIVE } else { OF_SEND };
        add((of.rank, of.thread), (kind, Some(of.message)), &[(17, Some(of.time))]);
    }
    for of in &job.searches {
        let begin = if of.queue == Queue::Posted { 13 } else { 15 };
        let events = [(begin, Some(of.begun)), (begin + 1, Some(of.ended))];
        add((of.rank, of.thread), (OF_RECEIVE, of.message), &events);
    }
    for (place, message) in (0..).zip(&job.messages) {
        if let Some(of) = &message.send {
            add((message.sender, of.thread), (OF_SEND, Some(place)), &[(19, of.freed)]);
        }
        if let Some(of) = &message.receive {
            let events = [(4, of.removed), (11, of.taken), (19, of.freed)];
            add((message.receiver, of.thread), (OF_RECEIVE, Some(place)), &events);
        }
    }
    for (rank, of) in &job.cancelled {
        let events = [
            (1, of.activated),
            (3, of.posted),
            (4, of.removed),
            (18, of.cancelled),
            (7, of.completed),
            (8, of.notified),
            (19, of.freed),
        ];
        add((*rank, of.thread), (OF_RECEIVE, None), &events);
    }
    all
}

/// Returns the PERUSE event that a moment of a message stands for; `None` if PERUSE has none.
pub(super) fn event(job: &Job, item: Item, moment: Moment) -> Option<Event> {
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
        Moment::Matched if job.messages[place as usize].receive.is_some_and(|of| of.unexpected.is_some()) => 2,
        Moment::Matched => 12,
        Moment::Announced | Moment::Failed | Moment::Happened => return None,
    };
    Some((kind, value, Some(place)))
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
            let number = ["COMM", "IBEX"].iter().find_map(|of| numbers.get(format!("PERUSE_{of}_{name}").as_str()));
            assert_eq!(number, Some(&value), "{name}");
        }
    }
}

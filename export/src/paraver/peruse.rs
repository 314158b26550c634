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

/// Makes a constant of each event's number, and the table of their names.
macro_rules! events {
    ($($name:ident $number:literal)*) => {
        $(const $name: u32 = $number;)*
        pub(super) const EVENTS: &[(u32, &str)] = &[$(($name, stringify!($name)),)* (0, "none")];
    };
}

events! {
    REQ_ACTIVATE 1 REQ_MATCH_UNEX 2 REQ_INSERT_IN_POSTED_Q 3 REQ_REMOVE_FROM_POSTED_Q 4 REQ_XFER_BEGIN 5 REQ_XFER_END 6
    REQ_COMPLETE 7 REQ_NOTIFY 8 MSG_ARRIVED 9 MSG_INSERT_IN_UNEX_Q 10 MSG_REMOVE_FROM_UNEX_Q 11 MSG_MATCH_POSTED_REQ 12
    SEARCH_POSTED_Q_BEGIN 13 SEARCH_POSTED_Q_END 14 SEARCH_UNEX_QUEUE_BEGIN 15 SEARCH_UNEX_Q_END 16
    REQ_XFER_CONTINUE 17 REQ_CANCEL 18 REQ_FREE 19
}

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
        add((of.rank, of.thread), (kind, Some(of.message)), &[(REQ_XFER_CONTINUE, Some(of.time))]);
    }
    for of in &job.searches {
        let (begin, end) = match of.queue {
            Queue::Posted => (SEARCH_POSTED_Q_BEGIN, SEARCH_POSTED_Q_END),
            Queue::Unexpected => (SEARCH_UNEX_QUEUE_BEGIN, SEARCH_UNEX_Q_END),
        };
        let events = [(begin, Some(of.begun)), (end, Some(of.ended))];
        add((of.rank, of.thread), (OF_RECEIVE, of.message), &events);
    }
    for (place, message) in (0..).zip(&job.messages) {
        if let Some(of) = &message.send {
            add((message.sender, of.thread), (OF_SEND, Some(place)), &[(REQ_FREE, of.freed)]);
        }
        if let Some(of) = &message.receive {
            let events =
                [(REQ_REMOVE_FROM_POSTED_Q, of.removed), (MSG_REMOVE_FROM_UNEX_Q, of.taken), (REQ_FREE, of.freed)];
            add((message.receiver, of.thread), (OF_RECEIVE, Some(place)), &events);
        }
    }
    for (rank, of) in &job.cancelled {
        let events = [
            (REQ_ACTIVATE, of.activated),
            (REQ_INSERT_IN_POSTED_Q, of.posted),
            (REQ_REMOVE_FROM_POSTED_Q, of.removed),
            (REQ_CANCEL, of.cancelled),
            (REQ_COMPLETE, of.completed),
            (REQ_NOTIFY, of.notified),
            (REQ_FREE, of.freed),
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
        Moment::Activated => REQ_ACTIVATE,
        Moment::Posted => REQ_INSERT_IN_POSTED_Q,
        Moment::Begun => REQ_XFER_BEGIN,
        Moment::Ended => REQ_XFER_END,
        Moment::Completed => REQ_COMPLETE,
        Moment::Notified => REQ_NOTIFY,
        Moment::Arrived => MSG_ARRIVED,
        Moment::Unexpected => MSG_INSERT_IN_UNEX_Q,
        Moment::Matched if job.messages[place as usize].receive.is_some_and(|of| of.unexpected.is_some()) => {
            REQ_MATCH_UNEX
        }
        Moment::Matched => MSG_MATCH_POSTED_REQ,
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
        for (value, name) in EVENTS.iter().filter(|(value, _)| *value > 0) {
            let number = ["COMM", "IBEX"].iter().find_map(|of| numbers.get(format!("PERUSE_{of}_{name}").as_str()));
            assert_eq!(number, Some(value), "{name}");
        }
    }
}

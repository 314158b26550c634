// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the page: a summary of each message, and the indexes of protocols and waits in its tables. Called by
//! `page`. Tests: those of `columns.rs` and `levels.rs`.

use crate::lanes::Lanes;
use crate::waits::Waits;
use ibex_messages::{Job, Message, Protocol, Time, WaitKind};

/// The summary of a message. Times are nanoseconds.
pub(crate) struct Row {
    pub(crate) place: usize,
    pub(crate) first: Time,
    pub(crate) last: Time,
    pub(crate) from: Time,
    pub(crate) to: Time,
    /// Duration from the sender's call to the last completion.
    pub(crate) took: Option<i64>,
    pub(crate) lanes: (u32, u32),
    pub(crate) wait: Option<(WaitKind, i64)>,
    /// First level of detail at which its arrow is drawn; [`crate::levels::give_details`] sets it.
    pub(crate) detail: u8,
}

/// Returns a row for each message with a known time, ordered by the first; without levels of detail yet.
pub(crate) fn rows(job: &Job, lanes: &Lanes) -> Vec<Row> {
    let waits = Waits::of(job);
    let messages = job.messages.iter().enumerate();
    let mut rows: Vec<Row> = messages.filter_map(|(place, message)| row(place, message, lanes, &waits)).collect();
    rows.sort_by_key(|row| row.first);
    rows
}

fn row(place: usize, message: &Message, lanes: &Lanes, waits: &Waits) -> Option<Row> {
    let (first, last) = message.moments().min().zip(message.moments().max())?;
    let sent = message.send.and_then(|side| side.left().or(side.activated).or(side.ended).or(side.completed));
    let came = message.receive.and_then(|side| side.arrived.or(side.matched).or(side.ended).or(side.completed));
    let begun = message.send.and_then(|side| side.activated).or(sent).or(came);
    let received = message.receive.and_then(|side| side.completed.or(side.ended).or(side.matched));
    let done = received.max(message.send.and_then(|side| side.completed.or(side.ended)));
    let wait = waits.longest(place, message);
    Some(Row {
        place,
        first,
        last,
        from: sent.or(came).unwrap_or(first),
        to: came.or(sent).unwrap_or(last),
        took: begun.zip(done).map(|(begun, done)| done.since(begun)),
        lanes: lanes.of_message(message),
        wait: wait.map(|wait| (wait.kind, wait.to.since(wait.from))),
        detail: u8::MAX,
    })
}

/// Returns the index of a protocol in the page's tables; the last one is "unknown".
pub(crate) fn protocol(protocol: Option<Protocol>) -> usize {
    protocol.map_or(6, |protocol| protocol as usize)
}

/// Returns the index of a wait in the page's tables; the first one is "none".
pub(crate) fn wait(wait: Option<WaitKind>) -> usize {
    wait.map_or(0, |kind| 1 + kind as usize)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the page: what it knows of each message at once, and the places of protocols and waits in its tables.
//!
//! `levels.rs` gives each row its level of detail, `columns.rs` writes them. Called by `page.rs`. Tests: those of
//! `columns.rs` and `levels.rs`.

use crate::lanes::Lanes;
use crate::waits::Waits;
use ibex_messages::{Job, Message, Protocol, Time, WaitKind};

/// What the page knows of each message. Times are nanoseconds.
pub(crate) struct Row {
    /// Where it stands in the job.
    pub(crate) place: usize,
    /// Its first moment and its last.
    pub(crate) first: Time,
    pub(crate) last: Time,
    /// The ends of its arrow.
    pub(crate) from: Time,
    pub(crate) to: Time,
    /// From the sender's call to the last that had to be done for it.
    pub(crate) took: Option<i64>,
    pub(crate) lanes: (u32, u32),
    pub(crate) wait: Option<(WaitKind, i64)>,
    /// From which level of detail on its arrow is drawn: see [`crate::levels::give_details`].
    pub(crate) detail: u8,
}

/// A row for each message of which a moment is known, by the first of them; of levels of detail nothing yet.
pub(crate) fn rows(job: &Job, lanes: &Lanes) -> Vec<Row> {
    let waits = Waits::of(job);
    let messages = job.messages.iter().enumerate();
    let mut rows: Vec<Row> = messages.filter_map(|(place, message)| row(place, message, lanes, &waits)).collect();
    rows.sort_by_key(|row| row.first);
    rows
}

fn row(place: usize, message: &Message, lanes: &Lanes, waits: &Waits) -> Option<Row> {
    let (first, last) = message.moments().min().zip(message.moments().max())?;
    let sent = message.send.and_then(|side| side.begun.or(side.activated).or(side.ended).or(side.completed));
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

/// The place of a protocol in the page's tables; the last is for an unknown one.
pub(crate) fn protocol(protocol: Option<Protocol>) -> usize {
    protocol.map_or(8, |protocol| protocol as usize)
}

/// The place of a wait in the page's tables; the first is for none.
pub(crate) fn wait(wait: Option<WaitKind>) -> usize {
    wait.map_or(0, |kind| 1 + kind as usize)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns of messages: a summary of each message, which the page keeps in memory, and all times. Both are divided into
//! chunks of [`CHUNK`] messages in the order of their first times. The page reads all summaries, chunk by chunk, while
//! it already draws, and the times only when the view comes near. Times are stored as small distances from an earlier
//! one. `page/messages.js` and `page/life.js` have the other half. Called by `page`. Tests: below.

use crate::block::{self, Column};
use crate::rows::{Row, protocol, wait};
use ibex_messages::{Job, Message, Time};
use std::io::{self, Write};

/// Number of messages in a chunk.
pub(crate) const CHUNK: usize = 32768;

/// Writes the summaries of all messages, as blocks `messages-0`, `messages-1`, ..
pub(crate) fn write_messages(job: &Job, rows: &[Row], start: Time, out: &mut dyn Write) -> io::Result<()> {
    for (number, chunk) in rows.chunks(CHUNK).enumerate() {
        let mut columns: [Column; 16] = Default::default();
        let mut before = start;
        for row in chunk {
            let message = &job.messages[row.place];
            let distances = [
                row.first.since(before),
                row.from.since(row.first),
                row.to.since(row.from),
                row.last.since(row.to),
                // Its lower half; the upper half of a tag of MPI only repeats the sign.
                i64::from(message.tag as i32),
            ];
            let values = [
                u64::from(row.lanes.0),
                u64::from(row.lanes.1),
                u64::from(message.communicator),
                message.bytes,
                protocol(message.protocol) as u64,
                message.reason.map_or(8, |reason| reason as u64),
                wait(row.wait.map(|wait| wait.0)) as u64,
                row.wait.map_or(0, |wait| wait.1 as u64),
                u64::from(row.detail),
                message.tag.cast_unsigned() >> 32,
            ];
            before = row.first;
            columns.iter_mut().zip(distances).for_each(|(column, distance)| column.push_signed(distance));
            columns[5].push_distance(row.took);
            columns[6..].iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        }
        block::write(&format!("messages-{number}"), &columns, out)?;
    }
    Ok(())
}

/// Writes all times of messages, as blocks `life-0`, `life-1`, ..
pub(crate) fn write_lives(job: &Job, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    for (number, chunk) in rows.chunks(CHUNK).enumerate() {
        let mut columns: [Column; 22] = Default::default();
        for row in chunk {
            let message = &job.messages[row.place];
            let distances = distances(message, row);
            columns.iter_mut().zip(distances).for_each(|(column, distance)| column.push_distance(distance));
            columns[15].push(message.send.map_or(0, |side| side.request));
            columns[16].push(message.receive.map_or(0, |side| side.request));
            columns[17].push(message.receive.map_or(0, |side| side.message));
            columns[18].push_place(message.port);
            columns[19].push_place(message.queue_pair);
            columns[20].push(u64::from(message.rails));
            columns[21].push(by_adapter(message));
        }
        block::write(&format!("life-{number}"), &columns, out)?;
    }
    Ok(())
}

const SENT: usize = 6;

/// Returns each time as its distance from the side's previous known one; the first, from the side's end of the arrow.
fn distances(message: &Message, row: &Row) -> [Option<i64>; 15] {
    let (send, receive) = (message.send.unwrap_or_default(), message.receive.unwrap_or_default());
    let mut all = [None; 15];
    let mut before = row.from;
    for (place, moment) in send.times().into_iter().chain(receive.times()).enumerate() {
        if place == SENT {
            before = row.to;
        }
        all[place] = moment.map(|moment| moment.since(std::mem::replace(&mut before, moment)));
    }
    all
}

/// The times that the adapter can stamp, by their names in the page: a bit each, the first the lowest.
pub(crate) const STAMPED: [&str; 5] = ["begun", "ended", "arrived", "put", "filled"];

/// Returns the bits of the times in [`STAMPED`] that are from the adapter's clock.
fn by_adapter(message: &Message) -> u64 {
    let left = message.send.unwrap_or_default().by_adapter;
    let came = message.receive.unwrap_or_default().by_adapter;
    let all: [bool; STAMPED.len()] = [left.begun, left.ended, came.arrived, came.begun, came.ended];
    all.into_iter().rev().fold(0, |bits, is_by_adapter| 2 * bits + u64::from(is_by_adapter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::reading::{self, text};
    use crate::lanes::Lanes;
    use crate::rows::rows;

    #[test]
    fn messages_are_in_chunks_and_their_times_are_found_again() {
        let job = Job::synthetic(4, CHUNK + 100, 5);
        let rows = rows(&job, &Lanes::of(&job));
        let start = job.span.unwrap().0;
        let page = text(|out| write_messages(&job, &rows, start, out));
        let (whole, rest) = (reading::columns(&page, "messages-0"), reading::columns(&page, "messages-1"));
        assert_eq!((whole[0].len(), rest[0].len()), (CHUNK, 100));
        let mut first = start.nanoseconds();
        for (place, row) in rows[CHUNK..].iter().enumerate() {
            first += reading::signed(rest[0][place]);
            let from = first + reading::signed(rest[1][place]);
            let to = from + reading::signed(rest[2][place]);
            let message = &job.messages[row.place];
            assert_eq!(Some(Time::new(from)), message.send.unwrap().left());
            assert_eq!(Some(Time::new(to)), message.receive.unwrap().arrived);
            assert_eq!(rest[9][place], message.bytes);
        }
    }

    #[test]
    fn each_time_of_a_message_is_found_again_and_unknown_times_stay_unknown() {
        let mut job = Job::synthetic(4, 500, 6);
        job.messages[7].receive = None;
        let send = job.messages[8].send.as_mut().unwrap();
        (send.announced, send.begun) = (None, None);
        let rows = rows(&job, &Lanes::of(&job));
        let columns = reading::columns(&text(|out| write_lives(&job, &rows, out)), "life-0");
        for (place, row) in rows.iter().enumerate() {
            let message = &job.messages[row.place];
            let mut at = row.from.nanoseconds();
            let mut found = Vec::new();
            for (number, column) in columns[..15].iter().enumerate() {
                at = if number == SENT { row.to.nanoseconds() } else { at };
                if column[place] > 0 {
                    at += reading::signed(column[place] - 1);
                    found.push(Time::new(at));
                }
            }
            assert_eq!(found, message.moments().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_message_without_a_known_time_has_no_row() {
        let mut job = Job::synthetic(2, 3, 1);
        (job.messages[1].send, job.messages[1].receive) = (None, None);
        assert_eq!(rows(&job, &Lanes::of(&job)).len(), 2);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spans of time that the page draws beside messages: MPI calls, searches of queues and one-sided operations by lane,
//! fragments by message and side. Spans of each kind are ordered by key (the lane, or the message and side) and then by
//! time, in chunks of [`CHUNK`]. Spans with the same key do not overlap, so `page/spans.js` finds the spans of a pixel
//! by binary search. Called by `page`. Path: pending. Tests: below.

use crate::block::{self, Column};
use crate::columns::CHUNK;
use crate::lanes::Lanes;
use crate::rows::Row;
use ibex_messages::{Job, Time};
use std::io::{self, Write};

struct Span {
    key: u64,
    begun: Time,
    ended: Time,
    /// Index of its call, search, fragment or operation in the job.
    place: usize,
}

pub(crate) struct Spans {
    calls: Vec<Span>,
    searches: Vec<Span>,
    fragments: Vec<Span>,
    operations: Vec<Span>,
    /// Row of each message of the job; `None`: the page has no row for it.
    rows: Vec<Option<u32>>,
}

impl Spans {
    pub(crate) fn of(job: &Job, lanes: &Lanes, rows: &[Row]) -> Spans {
        let mut row_of = vec![None; job.messages.len()];
        for (number, row) in (0..).zip(rows) {
            row_of[row.place] = Some(number);
        }
        let last = job.span.map_or(Time::new(0), |span| span.1);
        let lane = |rank, thread| u64::from(lanes.of_thread(rank, Some(thread)));
        // A call whose end was lost ends when it begins; its duration is unknown, so it has no span.
        let calls = job.calls.iter().enumerate().filter(|(_, of)| of.ended != Some(of.begun)).map(|(place, of)| Span {
            key: lane(of.rank, of.thread),
            begun: of.begun,
            ended: of.ended.unwrap_or(last),
            place,
        });
        let searches = job.searches.iter().enumerate().map(|(place, of)| Span {
            key: lane(of.rank, of.thread),
            begun: of.begun,
            ended: of.ended,
            place,
        });
        let fragments = job.fragments.iter().enumerate().filter_map(|(place, of)| {
            let row = row_of.get(of.message as usize).copied().flatten()?;
            let key = 2 * u64::from(row) + u64::from(of.is_received);
            Some(Span { key, begun: of.time, ended: of.time, place })
        });
        // Operations of a rank may overlap; `in_order` shortens them, and together they cover the same time.
        let operations = job.operations.iter().enumerate().filter_map(|(place, of)| {
            let begun = of.begun.or(of.completed)?;
            let key = u64::from(lanes.of_rank(of.rank));
            Some(Span { key, begun, ended: of.completed.unwrap_or(begun), place })
        });
        Spans {
            calls: in_order(calls),
            searches: in_order(searches),
            fragments: in_order(fragments),
            operations: in_order(operations),
            rows: row_of,
        }
    }

    pub(crate) fn counts(&self) -> [usize; 4] {
        [&self.calls, &self.searches, &self.fragments, &self.operations].map(Vec::len)
    }

    /// Writes the spans as blocks `calls-0`, `calls-1`, .., `searches-0`, .., `fragments-0`, .., `operations-0`, ..;
    /// unknown values are -1.
    pub(crate) fn write(&self, job: &Job, start: Time, out: &mut dyn Write) -> io::Result<()> {
        let known = |number: Option<u32>| number.map_or(-1, i64::from);
        let call = |place: usize| {
            let function = job.calls[place].function;
            [known(Some(function).filter(|function| (*function as usize) < job.functions.len()))]
        };
        write("calls", &self.calls, call, start, out)?;
        let search = |place: usize| {
            let of = &job.searches[place];
            let row = of.message.and_then(|message| self.rows.get(message as usize).copied().flatten());
            let is_found = known(of.is_found.map(u32::from));
            let halves = [i64::from(of.tag as i32), of.tag >> 32];
            [of.queue as i64, is_found, known(of.length), i64::from(of.peer), halves[0], halves[1], known(row)]
        };
        write("searches", &self.searches, search, start, out)?;
        let fragment = |place: usize| {
            let of = &job.fragments[place];
            let (offset, bytes) =
                of.part.map_or((-1, -1), |(offset, bytes)| (offset.cast_signed(), bytes.cast_signed()));
            [offset, bytes, i64::from(of.is_by_adapter)]
        };
        write("fragments", &self.fragments, fragment, start, out)?;
        let status = |place: usize| [i64::from(job.operations[place].status)];
        write("operations", &self.operations, status, start, out)
    }
}

/// Orders spans by key and time. A span that begins inside an earlier one of its key gets that one's end as its begin.
fn in_order(all: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut all: Vec<Span> = all.collect();
    all.sort_by_key(|span| (span.key, span.begun));
    let mut last: Option<(u64, Time)> = None;
    for span in &mut all {
        let before = last.filter(|(key, _)| *key == span.key).map_or(span.begun, |(_, ended)| ended);
        span.begun = span.begun.max(before);
        span.ended = span.ended.max(span.begun);
        last = Some((span.key, span.ended));
    }
    all
}

/// Writes blocks with these columns: the key, as its difference to the previous key; the begin, as its distance from
/// the key's previous end (from `start` for the key's first span); the length; and the values.
fn write<const COUNT: usize>(
    name: &str,
    all: &[Span],
    values: impl Fn(usize) -> [i64; COUNT],
    start: Time,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (mut key, mut before) = (0, start);
    for (number, chunk) in all.chunks(CHUNK).enumerate() {
        let mut columns = vec![Column::default(); 3 + COUNT];
        for span in chunk {
            if span.key != key {
                before = start;
            }
            columns[0].push(span.key - key);
            columns[1].push_signed(span.begun.since(before));
            columns[2].push(span.ended.since(span.begun).unsigned_abs());
            columns[3..].iter_mut().zip(values(span.place)).for_each(|(column, value)| column.push_signed(value));
            (key, before) = (span.key, span.ended);
        }
        block::write(&format!("{name}-{number}"), &columns, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::reading::{self, columns, signed};
    use crate::rows::rows;
    use ibex_messages::{Call, Fragment, Operation, OperationKind, Queue, Search};

    fn found(page: &str, name: &str) -> Vec<(u64, i64, i64, Vec<i64>)> {
        let columns = columns(page, name);
        let (mut key, mut end) = (0, 0);
        let row = |place: usize| {
            end = if columns[0][place] > 0 { 0 } else { end };
            key += columns[0][place];
            let begun = end + signed(columns[1][place]);
            end = begun + columns[2][place] as i64;
            (key, begun, end, columns[3..].iter().map(|column| signed(column[place])).collect())
        };
        (0..columns[0].len()).map(row).collect()
    }

    fn text(job: &Job) -> (String, [usize; 4]) {
        let lanes = Lanes::of(job);
        let spans = Spans::of(job, &lanes, &rows(job, &lanes));
        (reading::text(|out| spans.write(job, job.span.unwrap().0, out)), spans.counts())
    }

    #[test]
    fn calls_searches_and_fragments_are_found_again_by_lane_and_side() {
        let mut job = Job::synthetic(2, 3, 1);
        let start = job.span.unwrap().0;
        let at = |after: i64| Time::new(start.nanoseconds() + after);
        let call = |rank, function, begun, ended: Option<i64>| Call::made(rank, function, at(begun), ended.map(at));
        job.span = Some((start, at(5000)));
        job.calls = vec![
            call(1, 0, 100, Some(300)),
            call(0, 1, 500, None),
            call(0, u32::MAX, 200, Some(400)),
            call(0, 0, 450, Some(450)),
        ];
        job.searches = vec![Search {
            queue: Queue::Unexpected,
            peer: -1,
            tag: 5 << 32 | 7,
            message: Some(2),
            is_found: Some(true),
            ..Search::made(1, at(110), at(120))
        }];
        let fragment = |message, is_received, after, part: Option<(u64, u64)>| Fragment {
            is_received,
            is_by_adapter: part.is_some(),
            part,
            ..Fragment::made(0, message, at(after))
        };
        job.fragments =
            vec![fragment(1, true, 90, Some((64, 32))), fragment(1, true, 60, None), fragment(0, false, 70, None)];
        let (page, counts) = text(&job);
        assert_eq!(counts, [3, 1, 3, 0]);
        let calls = [(0, 200, 400, vec![-1]), (0, 500, 5000, vec![1]), (1, 100, 300, vec![0])];
        assert_eq!(found(&page, "calls-0"), calls);
        assert_eq!(found(&page, "searches-0"), [(1, 110, 120, vec![1, 1, -1, -1, 7, 5, 2])]);
        let fragments = [(0, 70, 70, vec![-1, -1, 0]), (3, 60, 60, vec![-1, -1, 0]), (3, 90, 90, vec![64, 32, 1])];
        assert_eq!(found(&page, "fragments-0"), fragments);
    }

    #[test]
    fn overlapping_operations_keep_their_spans_and_one_without_a_begin_is_a_moment() {
        let mut job = Job::synthetic(2, 3, 1);
        let start = job.span.unwrap().0;
        let at = |after: i64| Time::new(start.nanoseconds() + after);
        let operation = |begun: Option<i64>, completed| Operation {
            rank: 1,
            peer: 0,
            kind: OperationKind::Get,
            bytes: 64,
            begun: begun.map(at),
            completed: Some(at(completed)),
            status: 12,
        };
        job.operations = vec![operation(Some(20), 50), operation(None, 70), operation(Some(10), 40)];
        let (page, counts) = text(&job);
        assert_eq!(counts, [job.calls.len(), 0, 0, 3]);
        let wanted = [(1, 10, 40, vec![12]), (1, 40, 50, vec![12]), (1, 70, 70, vec![12])];
        assert_eq!(found(&page, "operations-0"), wanted);
    }

    #[test]
    fn stretches_of_a_lane_do_not_overlap_and_none_is_lost_between_chunks() {
        let job = Job::synthetic(2, CHUNK, 5);
        let (page, counts) = text(&job);
        assert_eq!(counts, [2 * CHUNK, 0, 0, 0]);
        let first = found(&page, "calls-0");
        assert!(first.windows(2).all(|two| two[0].0 < two[1].0 || two[0].2 <= two[1].1));
        assert_eq!(first.len() + columns(&page, "calls-1")[0].len(), 2 * CHUNK);
    }
}

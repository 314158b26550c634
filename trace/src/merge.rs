// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merges events of all threads of a file by their times. Opens blocks in the order of their first times, which the
//! summaries have; the earliest event of the open blocks comes next, unless an unopened block begins before it. So only
//! blocks that overlap in time are in memory, usually one per thread. Events without a time come first; faults without
//! a place come last. To keep each thread's own order, an event counts as no earlier than the previous events of its
//! thread. Called by `reader.rs`. Path: pending. Threads: one. Tests: `tests/folder.rs`, `tests/round_trip.rs`.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};

use crate::contents::Place;
use crate::error::Error;
use crate::events::{Block, Event};
use crate::reader::Reader;

pub(crate) struct Merge<'a> {
    reader: &'a Reader,
    /// Blocks, by the times at which their first events come.
    unopened: std::vec::IntoIter<(i64, &'a Place)>,
    open: Vec<Option<OpenBlock>>,
    /// For each open block: the time of its next event, its number, and its index in `open`.
    next: BinaryHeap<Reverse<(i64, u32, usize)>>,
    faults: std::vec::IntoIter<Error>,
    /// The latest time of each thread among the events that have come.
    reached: HashMap<u32, i64>,
}

struct OpenBlock {
    block: Block,
    /// The remaining events, the last one first.
    left: Vec<Left>,
}

struct Left {
    /// The time by which it is ordered.
    at: i64,
    time: Option<i64>,
    event: u32,
}

impl<'a> Merge<'a> {
    /// All events of a file, each thread's in the order in which it raised them; then the file's faults.
    pub(crate) fn of(reader: &'a Reader) -> Merge<'a> {
        let mut places: Vec<&Place> = reader.places().filter(|place| place.summary.events > 0).collect();
        places.sort_by_key(|place| place.header.number);
        // The blocks of a thread are opened one after another.
        let mut reached: HashMap<u32, i64> = HashMap::new();
        let mut by_time: Vec<(i64, &Place)> = Vec::with_capacity(places.len());
        for place in places {
            let thread = reached.entry(place.summary.thread).or_insert(i64::MIN);
            *thread = first_time(reader, place).max(*thread);
            by_time.push((*thread, place));
        }
        by_time.sort_by_key(|(first, place)| (*first, place.header.number));
        let faults: Vec<Error> = reader.faults().cloned().collect();
        let (unopened, faults, reached) = (by_time.into_iter(), faults.into_iter(), HashMap::new());
        Merge { reader, unopened, open: Vec::new(), next: BinaryHeap::new(), faults, reached }
    }

    fn open(&mut self, place: &Place) -> Result<(), Error> {
        let (reader, block) = (self.reader, self.reader.block(place)?);
        let mut near = vec![0; reader.head().sources.len()];
        let reached = self.reached.entry(block.thread()).or_insert(i64::MIN);
        let mut left = Vec::with_capacity(block.len());
        for event in 0..block.len() {
            let (source, ticks) = block.stamp(event);
            let time = reader.time(source, ticks, &mut near);
            *reached = time.unwrap_or(i64::MIN).max(*reached);
            left.push(Left { at: *reached, time, event: event as u32 });
        }
        left.reverse();
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free == self.open.len() {
            self.open.push(None);
        }
        if let Some(first) = left.last() {
            self.next.push(Reverse((first.at, place.header.number, free)));
            self.open[free] = Some(OpenBlock { block, left });
        }
        Ok(())
    }

    fn take(&mut self) -> Option<Event> {
        let mut next = self.next.peek_mut()?;
        let Reverse((at, _, place)) = &mut *next;
        let place = *place;
        let open = self.open[place].as_mut()?;
        let Left { time, event, .. } = open.left.pop()?;
        let event = open.block.event(self.reader.layouts(), event as usize, time);
        if let Some(left) = open.left.last() {
            *at = left.at;
        } else {
            PeekMut::pop(next);
            self.open[place] = None;
        }
        Some(event)
    }
}

impl Iterator for Merge<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let earliest = self.next.peek().map(|Reverse((time, ..))| *time);
            match self.unopened.as_slice().first() {
                Some((first, _)) if earliest.is_none_or(|earliest| *first <= earliest) => {
                    let (_, place) = self.unopened.next()?;
                    if let Err(error) = self.open(place) {
                        return Some(Err(error));
                    }
                }
                _ => return self.take().map(Ok).or_else(|| self.faults.next().map(Err)),
            }
        }
    }
}

/// Returns the earliest time of a block's events, as its summary says.
fn first_time(reader: &Reader, place: &Place) -> i64 {
    let spans = place.summary.sources.iter();
    let times = spans.map(|span| reader.relation(span.source).and_then(|relation| relation.time(span.first)));
    times.map(|time| time.unwrap_or(i64::MIN)).min().unwrap_or(i64::MAX)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of all threads, and of all files, in the order of their times. Opens blocks in the order of their first
//! times, which the summaries have; the earliest event of the open blocks comes next unless an unopened block begins
//! before it. So only blocks that overlap in time are in memory, usually one per thread. Events without a time come
//! first; faults without a time come last. To keep each thread's own order, an event counts as no earlier than the
//! previous events of its thread. Called by `folder.rs`. Path: pending. Threads: one. Tests: tests/folder.rs.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::ops::{Bound, RangeBounds};

use crate::error::Error;
use crate::events::{Block, Event};
use crate::reader::Reader;
use crate::timeline::Timeline;

/// An event of one of several files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergedEvent {
    /// The index of its file.
    pub file: usize,
    /// The event, with its time on the common clock.
    pub event: Event,
}

/// The events of several files in the order of their times.
pub struct Merge<'a> {
    readers: &'a [Reader],
    lines: Vec<Timeline>,
    range: (i64, i64),
    /// Blocks, by their first times.
    spans: std::vec::IntoIter<Span<'a>>,
    open: Vec<Option<OpenBlock>>,
    /// Time of the next event, file and number of its block, place among the open ones.
    next: BinaryHeap<Reverse<(i64, usize, u32, usize)>>,
    faults: std::vec::IntoIter<Error>,
    /// Where threads stay in their own order: the latest time of each thread of a file so far.
    reached: Option<HashMap<(usize, u32), i64>>,
}

struct Span<'a> {
    first: i64,
    file: usize,
    place: &'a crate::index::Place,
}

struct OpenBlock {
    block: Block,
    /// The events that are left, the last first.
    left: Vec<Left>,
}

struct Left {
    /// The time by which it comes.
    at: i64,
    time: Option<i64>,
    event: u32,
}

impl<'a> Merge<'a> {
    /// The events of `readers` within `range` on the time lines `lines`; then the readers' faults and `faults`.
    pub(crate) fn new(
        readers: &'a [Reader],
        lines: Vec<Timeline>,
        range: &impl RangeBounds<i64>,
        mut faults: Vec<Error>,
    ) -> Merge<'a> {
        let range = limits(range);
        let mut spans = Vec::new();
        for (file, (reader, line)) in readers.iter().zip(&lines).enumerate() {
            faults.extend(reader.faults().cloned());
            for place in reader.places().filter(|place| place.summary.events > 0) {
                let (first, last) = times(reader, place, line);
                if first <= range.1 && last >= range.0 {
                    spans.push(Span { first, file, place });
                }
            }
        }
        spans.sort_by_key(|span| (span.first, span.file, span.place.number));
        let (spans, faults) = (spans.into_iter(), faults.into_iter());
        Merge { readers, lines, range, spans, open: Vec::new(), next: BinaryHeap::new(), faults, reached: None }
    }

    /// All events of a file, each thread's in the order in which it raised them.
    pub(crate) fn of_threads(reader: &'a Reader) -> Merge<'a> {
        let mut merge = Merge::new(std::slice::from_ref(reader), vec![Timeline::default()], &.., Vec::new());
        let mut spans: Vec<Span<'_>> = merge.spans.collect();
        spans.sort_by_key(|span| span.place.number);
        // So that the blocks of a thread are opened one after another.
        let mut reached: HashMap<u32, i64> = HashMap::new();
        for span in &mut spans {
            let thread = reached.entry(span.place.summary.thread).or_insert(i64::MIN);
            (*thread, span.first) = ((*thread).max(span.first), (*thread).max(span.first));
        }
        spans.sort_by_key(|span| (span.first, span.place.number));
        (merge.spans, merge.reached) = (spans.into_iter(), Some(HashMap::new()));
        merge
    }

    /// Opens a block, and sorts what it has within the range.
    fn open(&mut self, span: &Span<'_>) -> Result<(), Error> {
        let reader = &self.readers[span.file];
        let block = reader.block(span.place)?;
        let mut near = vec![0; reader.head().sources.len()];
        let mut left = Vec::with_capacity(block.len());
        let mut reached = self.reached.as_mut().map(|all| all.entry((span.file, block.thread())).or_insert(i64::MIN));
        for event in 0..block.len() {
            let (source, ticks) = block.stamp(event);
            let line = &self.lines[span.file];
            let time = reader.time(source, ticks, &mut near).map(|time| line.time(time));
            let mut at = time.unwrap_or(i64::MIN);
            if (self.range.0..=self.range.1).contains(&at) {
                if let Some(reached) = &mut reached {
                    **reached = at.max(**reached);
                    at = **reached;
                }
                left.push(Left { at, time, event: event as u32 });
            }
        }
        // Those of the same time stay in their order.
        left.sort_by_key(|left| left.at);
        left.reverse();
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free == self.open.len() {
            self.open.push(None);
        }
        if let Some(first) = left.last() {
            self.next.push(Reverse((first.at, span.file, span.place.number, free)));
            self.open[free] = Some(OpenBlock { block, left });
        }
        Ok(())
    }

    fn take(&mut self) -> Option<MergedEvent> {
        let mut next = self.next.peek_mut()?;
        let Reverse((at, file, _, place)) = &mut *next;
        let (file, place) = (*file, *place);
        let open = self.open[place].as_mut()?;
        let Left { time, event, .. } = open.left.pop()?;
        let event = open.block.event(self.readers[file].layouts(), event as usize, time);
        if let Some(left) = open.left.last() {
            *at = left.at;
        } else {
            PeekMut::pop(next);
            self.open[place] = None;
        }
        Some(MergedEvent { file, event })
    }
}

impl Iterator for Merge<'_> {
    type Item = Result<MergedEvent, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let earliest = self.next.peek().map(|Reverse((time, ..))| *time);
            match self.spans.as_slice().first() {
                Some(span) if earliest.is_none_or(|earliest| span.first <= earliest) => {
                    let span = self.spans.next()?;
                    if let Err(error) = self.open(&span) {
                        return Some(Err(error));
                    }
                }
                _ => return self.take().map(Ok).or_else(|| self.faults.next().map(Err)),
            }
        }
    }
}

fn times(reader: &Reader, place: &crate::index::Place, line: &Timeline) -> (i64, i64) {
    let mut all = (i64::MAX, i64::MIN);
    for span in &place.summary.sources {
        let time = |ticks| reader.relation(span.source).and_then(|relation| relation.time(ticks));
        let common = |ticks| time(ticks).map_or(i64::MIN, |time| line.time(time));
        all = (all.0.min(common(span.first)), all.1.max(common(span.last)));
    }
    all
}

fn limits(range: &impl RangeBounds<i64>) -> (i64, i64) {
    let first = match range.start_bound() {
        Bound::Included(first) => *first,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => i64::MIN,
    };
    let last = match range.end_bound() {
        Bound::Included(last) => *last,
        Bound::Excluded(after) => after.saturating_sub(1),
        Bound::Unbounded => i64::MAX,
    };
    (first, last)
}

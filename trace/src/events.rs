// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of a block: from records to columns, and from columns to [`Event`]s.
//!
//! Owns the payload of a block of events (docs/trace-format.md): the types of all events, their sources, the
//! timestamps of each source, and of each type a column for each element. Called by `writer.rs` and `reader.rs`. Path:
//! pending; [`Encoder::encode`] must keep up with the recorder. Threads: plain data. Tests: below;
//! `tests/round_trip.rs`.

use crate::columns::{self, Column};
use crate::parse::{Bytes, Malformed};
use crate::record::{Layout, MOST_ELEMENTS, Record, Values};
use crate::summary::{SourceSpan, Summary, TypeCount};

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The number of its type.
    pub event_type: u8,
    /// The number of its source.
    pub source: u8,
    /// The thread in which it was raised.
    pub thread: u32,
    /// When, in ticks of the source.
    pub ticks: u64,
    /// When, in nanoseconds of the host's monotonic clock; `None` where the trace does not relate the source's clock
    /// to it.
    pub time: Option<i64>,
    /// Its values, in the order of the type's elements; 0 beyond the last.
    pub values: Values,
}

/// Makes payloads. Keeps its memory from block to block.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    types: Vec<u64>,
    sources: Vec<u64>,
    ticks: Vec<u64>,
    values: Vec<u64>,
}

impl Encoder {
    /// Puts the payload for these records at the end of `to`. They hold whole events of known types.
    pub(crate) fn encode(&mut self, layouts: &[Layout], thread: u32, records: &[Record], to: &mut Vec<u8>) -> Summary {
        let (mut by_type, mut by_source) = ([0_usize; 256], [0_usize; 256]);
        self.types.clear();
        self.sources.clear();
        for event in events(records) {
            let (event_type, source) = (event[0].event_type(), event[0].source());
            by_type[usize::from(event_type)] += 1;
            by_source[usize::from(source)] += 1;
            self.types.push(event_type.into());
            self.sources.push(source.into());
        }
        self.transpose(layouts, records, &by_type, &by_source);
        columns::encode(&self.types, to);
        columns::encode(&self.sources, to);
        let mut summary = Summary { thread, events: self.types.len() as u32, ..Summary::default() };
        let mut at = 0;
        for (source, &count) in by_source.iter().enumerate().filter(|(_, count)| **count > 0) {
            let ticks = &self.ticks[at..at + count];
            columns::encode(ticks, to);
            let (first, last) = ticks.iter().fold((u64::MAX, 0), |(low, high), &at| (low.min(at), high.max(at)));
            summary.sources.push(SourceSpan { source: source as u8, events: count as u32, first, last });
            at += count;
        }
        at = 0;
        for (event_type, &count) in by_type.iter().enumerate().filter(|(_, count)| **count > 0) {
            for _ in 0..layouts[event_type].elements() {
                columns::encode(&self.values[at..at + count], to);
                at += stride(count);
            }
            summary.types.push(TypeCount { event_type: event_type as u8, events: count as u32, lost: 0 });
        }
        summary
    }

    /// Puts timestamps and values where their columns are: one after another, in the order in which they are stored.
    fn transpose(&mut self, layouts: &[Layout], records: &[Record], by_type: &[usize; 256], by_source: &[usize; 256]) {
        let (mut next_value, mut next_ticks) = ([0; 256], [0; 256]);
        let mut all = 0;
        for (event_type, layout) in layouts.iter().enumerate() {
            next_value[event_type] = all;
            all += stride(by_type[event_type]) * layout.elements();
        }
        self.values.resize(all, 0);
        let mut all = 0;
        for (next, count) in next_ticks.iter_mut().zip(by_source) {
            *next = all;
            all += count;
        }
        self.ticks.resize(all, 0);
        for event in events(records) {
            let (event_type, source) = (usize::from(event[0].event_type()), usize::from(event[0].source()));
            self.ticks[next_ticks[source]] = event[0].ticks();
            next_ticks[source] += 1;
            let layout = &layouts[event_type];
            let (mut at, column) = (next_value[event_type], stride(by_type[event_type]));
            next_value[event_type] += 1;
            let values = &mut self.values;
            layout.unpack(event, |value| {
                values[at] = value;
                at += column;
            });
        }
    }
}

/// How far the columns of a type are apart: an odd number of cache lines. With a power of two, as blocks are, the values of
/// an event would all go into the same few sets of the cache.
fn stride(count: usize) -> usize {
    if count == 0 { 0 } else { (count.div_ceil(8) | 1) * 8 }
}

/// Each event's records. What lacks records at the end is left out.
fn events(mut records: &[Record]) -> impl Iterator<Item = &[Record]> {
    std::iter::from_fn(move || {
        let (event, rest) = records.split_at_checked(records.first()?.records())?;
        records = rest;
        Some(event)
    })
}

/// How many of the records at the beginning are whole events, at most so many events; or the number of the first that
/// has a type or source beyond those there are.
pub(crate) fn whole(records: &[Record], most: usize, types: usize, sources: usize) -> Result<(usize, usize), usize> {
    let (mut at, mut count) = (0, 0);
    while count < most
        && let Some(first) = records.get(at)
        && at + first.records() <= records.len()
    {
        if usize::from(first.event_type()) >= types || usize::from(first.source()) >= sources {
            return Err(at);
        }
        at += first.records();
        count += 1;
    }
    Ok((at, count))
}

/// The events of a block, unpacked.
#[derive(Debug)]
pub(crate) struct Block {
    thread: u32,
    types: Vec<u8>,
    sources: Vec<u8>,
    ticks: Vec<u64>,
    /// The place of each event among those of its type.
    rows: Vec<u32>,
    /// The columns of each type; of those that are not in the block, none.
    columns: Vec<Vec<Column>>,
}

impl Block {
    /// From a block's payload.
    pub(crate) fn decode(layouts: &[Layout], summary: &Summary, payload: &[u8]) -> Result<Block, Malformed> {
        let mut from = Bytes(payload);
        let count = summary.events as usize;
        let types = numbers(count, layouts.len(), "an event type that the head names", &mut from)?;
        let sources = numbers(count, 256, "a source", &mut from)?;
        let mut rows = vec![0; count];
        let mut by_type = [0; 256];
        for (row, event_type) in rows.iter_mut().zip(&types) {
            *row = by_type[usize::from(*event_type)];
            by_type[usize::from(*event_type)] += 1;
        }
        let mut ticks = vec![0; count];
        for span in &summary.sources {
            let places = sources.iter().enumerate().filter(|(_, source)| **source == span.source);
            if places.clone().count() != span.events as usize {
                return Err(Malformed("as many events of each source as the summary says"));
            }
            let column = columns::decode(span.events as usize, &mut from)?;
            for (row, (place, _)) in places.enumerate() {
                ticks[place] = column.value(row);
                if !(span.first..=span.last).contains(&ticks[place]) {
                    return Err(Malformed("times as the summary says"));
                }
            }
        }
        let mut columns = vec![Vec::new(); layouts.len()];
        for of in summary.types.iter().filter(|of| of.events > 0) {
            let event_type = usize::from(of.event_type);
            if by_type[event_type] != of.events {
                return Err(Malformed("as many events of each type as the summary says"));
            }
            for _ in 0..layouts[event_type].elements() {
                columns[event_type].push(columns::decode(of.events as usize, &mut from)?);
            }
        }
        from.end()?;
        Ok(Block { thread: summary.thread, types, sources, ticks, rows, columns })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// Source and timestamp of one of them.
    pub(crate) fn stamp(&self, event: usize) -> (u8, u64) {
        (self.sources[event], self.ticks[event])
    }

    /// One of them; its time is the caller's to say.
    pub(crate) fn event(&self, layouts: &[Layout], event: usize, time: Option<i64>) -> Event {
        let event_type = self.types[event];
        let row = self.rows[event] as usize;
        let layout = &layouts[usize::from(event_type)];
        let mut values = [0; MOST_ELEMENTS];
        for (element, column) in self.columns[usize::from(event_type)].iter().enumerate() {
            values[element] = layout.unfold(element, column.value(row));
        }
        let (source, ticks) = self.stamp(event);
        Event { event_type, source, thread: self.thread, ticks, time, values }
    }
}

/// A column of numbers below `below`.
fn numbers(count: usize, below: usize, what: &'static str, from: &mut Bytes<'_>) -> Result<Vec<u8>, Malformed> {
    let column = columns::decode(count, from)?;
    let number = |row| Some(column.value(row)).filter(|value| *value < below as u64).map(|value| value as u8);
    (0..count).map(number).collect::<Option<_>>().ok_or(Malformed(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{Element, ElementKind, EventType};
    use proptest::prelude::*;

    fn layouts() -> Vec<Layout> {
        use ElementKind::{I32, I64, U32, U64};
        let of = |kinds: &[ElementKind]| EventType {
            name: "t".into(),
            description: String::new(),
            elements: kinds.iter().map(|kind| Element::new("e", *kind, "")).collect(),
        };
        let types = [of(&[]), of(&[U64, I32, U32]), of(&[I64; 11]), of(&[U64; MOST_ELEMENTS])];
        types.iter().enumerate().map(|(number, of)| Layout::new(number as u8, of)).collect()
    }

    fn any_events() -> impl Strategy<Value = Vec<(u8, u8, u64, Vec<u64>)>> {
        let value = (any::<u64>(), 0..64_u32).prop_map(|(value, shift)| value >> shift);
        let event = (0..4_u8, 0..3_u8, any::<u64>(), proptest::collection::vec(value, MOST_ELEMENTS));
        proptest::collection::vec(event, 0..60)
    }

    fn records(layouts: &[Layout], events: &[(u8, u8, u64, Vec<u64>)]) -> Vec<Record> {
        let mut records = Vec::new();
        for (event_type, source, ticks, values) in events {
            let values: Values = values.clone().try_into().expect("as many");
            let packed = layouts[usize::from(*event_type)].pack(*source, *ticks, &values);
            records.extend_from_slice(packed.records());
        }
        records
    }

    proptest! {
        #[test]
        fn all_events_come_back(events in any_events()) {
            let (layouts, mut payload) = (layouts(), Vec::new());
            let records = records(&layouts, &events);
            prop_assert_eq!(whole(&records, usize::MAX, 4, 3), Ok((records.len(), events.len())));
            let summary = Encoder::default().encode(&layouts, 9, &records, &mut payload);
            let block = Block::decode(&layouts, &summary, &payload).expect("decodes");
            prop_assert_eq!(block.len(), events.len());
            for (place, (event_type, source, ticks, values)) in events.iter().enumerate() {
                let got = block.event(&layouts, place, None);
                prop_assert_eq!((got.event_type, got.source, got.ticks, got.thread), (*event_type, *source, *ticks, 9));
                let elements = layouts[usize::from(*event_type)].elements();
                prop_assert_eq!(&got.values[..elements], &values[..elements]);
                prop_assert!(got.values[elements..].iter().all(|value| *value == 0));
            }
        }

        #[test]
        fn a_changed_payload_never_panics(events in any_events(), place in any::<usize>(), byte in any::<u8>()) {
            let (layouts, mut payload) = (layouts(), Vec::new());
            let summary = Encoder::default().encode(&layouts, 9, &records(&layouts, &events), &mut payload);
            let length = payload.len();
            if length > 0 {
                payload[place % length] = byte;
            }
            let _ = Block::decode(&layouts, &summary, &payload);
            payload.truncate(place % (length + 1));
            let _ = Block::decode(&layouts, &summary, &payload);
        }
    }

    #[test]
    fn an_event_that_lacks_records_is_not_whole_and_a_foreign_one_is_told() {
        let layouts = layouts();
        let wide = layouts[3].pack(1, 5, &[u64::MAX; MOST_ELEMENTS]);
        assert_eq!(whole(&wide.records()[..4], 9, 4, 2), Ok((0, 0)));
        assert_eq!(whole(wide.records(), 9, 4, 2), Ok((5, 1)));
        assert_eq!(whole(wide.records(), 9, 4, 1), Err(0));
        assert_eq!(whole(wide.records(), 9, 3, 2), Err(0));
        assert_eq!(whole(wide.records(), 0, 4, 2), Ok((0, 0)));
    }
}

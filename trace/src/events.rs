// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of a block: from records to columns, and from columns to [`Event`]s. Owns the payload of a block of
//! events (docs/trace-format.md). Called by `writer.rs` and `reader.rs`. Path: pending; [`Encoder::encode`] must keep
//! up with the recorder. Threads: plain data. Tests: below; `tests/round_trip.rs`.

use crate::columns::{self, Column};
use crate::head::MOST_ELEMENTS;
use crate::parse::{Bytes, Malformed};
use crate::record::{Layout, Record, Values};
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
    /// Time in ticks of the source.
    pub ticks: u64,
    /// Time in nanoseconds of the host's monotonic clock; `None` if the trace does not relate the source's clock to it.
    pub time: Option<i64>,
    /// Its values, in the order of the type's elements; 0 beyond the last.
    pub values: Values,
}

/// Encodes payloads. Reuses its memory from block to block.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    types: Vec<u64>,
    sources: Vec<u64>,
    ticks: Vec<Vec<u64>>,
    /// The index of the first record of each event, by type.
    places: Vec<Vec<u32>>,
    values: Vec<u64>,
}

impl Encoder {
    /// Appends the payload of the events, whole and of known types, that begin at these indexes of `records`.
    pub(crate) fn encode(
        &mut self,
        layouts: &[Layout],
        thread: u32,
        (records, begins): (&[Record], &[u32]),
        to: &mut Vec<u8>,
    ) -> Summary {
        self.sort(layouts.len(), records, begins);
        columns::encode(&self.types, to);
        columns::encode(&self.sources, to);
        let mut summary = Summary { thread, events: begins.len() as u32, ..Summary::default() };
        for (source, ticks) in self.ticks.iter().enumerate().filter(|(_, ticks)| !ticks.is_empty()) {
            columns::encode(ticks, to);
            let (first, last) = ticks.iter().fold((u64::MAX, 0), |(low, high), &at| (low.min(at), high.max(at)));
            summary.sources.push(SourceSpan { source: source as u8, events: ticks.len() as u32, first, last });
        }
        // Type by type, so that a layout is read once and its columns stay in the cache.
        for (event_type, places) in self.places.iter().enumerate().filter(|(_, places)| !places.is_empty()) {
            let (count, apart) = (places.len(), stride(places.len()));
            self.values.resize(apart * layouts[event_type].elements(), 0);
            for (row, &place) in places.iter().enumerate() {
                layouts[event_type].unpack(&records[place as usize..], &mut self.values, apart, row);
            }
            for column in self.values.chunks_exact(apart) {
                columns::encode(&column[..count], to);
            }
            summary.types.push(TypeCount { event_type: event_type as u8, events: count as u32, lost: 0 });
        }
        summary
    }

    fn sort(&mut self, types: usize, records: &[Record], begins: &[u32]) {
        self.types.clear();
        self.sources.clear();
        self.ticks.resize(256, Vec::new());
        self.ticks.iter_mut().for_each(Vec::clear);
        self.places.resize(types, Vec::new());
        self.places.iter_mut().for_each(Vec::clear);
        for &place in begins {
            let record = &records[place as usize];
            let (event_type, source) = (record.event_type(), record.source());
            self.types.push(event_type.into());
            self.sources.push(source.into());
            self.ticks[usize::from(source)].push(record.ticks());
            self.places[usize::from(event_type)].push(place);
        }
    }
}

/// Distance between the columns of a type: an odd number of cache lines, as powers of two would share few cache sets.
fn stride(count: usize) -> usize {
    (count.div_ceil(8) | 1) * 8
}

/// Counts the records of the first whole events, at most `most`, and appends the index of the first record of each,
/// plus `before`, to `begins`. An error is the index of the first record of an unknown type or source.
pub(crate) fn whole(
    records: &[Record],
    most: usize,
    (types, sources): (usize, usize),
    before: usize,
    begins: &mut Vec<u32>,
) -> Result<usize, usize> {
    let (mut at, full) = (0, begins.len() + most);
    while begins.len() < full
        && let Some(first) = records.get(at)
        && at + first.records() <= records.len()
    {
        if usize::from(first.event_type()) >= types || usize::from(first.source()) >= sources {
            return Err(at);
        }
        begins.push((before + at) as u32);
        at += first.records();
    }
    Ok(at)
}

#[derive(Debug)]
pub(crate) struct Block {
    thread: u32,
    types: Vec<u8>,
    sources: Vec<u8>,
    ticks: Vec<u64>,
    /// The index of each event among those of its type.
    rows: Vec<u32>,
    /// The columns of each type; empty for types that are not in the block.
    columns: Vec<Vec<Column>>,
}

impl Block {
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

    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    /// Returns source and timestamp of an event.
    pub(crate) fn stamp(&self, event: usize) -> (u8, u64) {
        (self.sources[event], self.ticks[event])
    }

    /// Returns one of the events, with the time that the caller gives.
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

    fn records(layouts: &[Layout], events: &[(u8, u8, u64, Vec<u64>)]) -> (Vec<Record>, Vec<u32>) {
        let (mut records, mut begins) = (Vec::new(), Vec::new());
        for (event_type, source, ticks, values) in events {
            let values: Values = values.clone().try_into().expect("as many");
            begins.push(records.len() as u32);
            records.extend(layouts[usize::from(*event_type)].pack(*source, *ticks, &values));
        }
        (records, begins)
    }

    proptest! {
        #[test]
        fn a_block_returns_all_its_events(events in any_events()) {
            let (layouts, mut payload) = (layouts(), Vec::new());
            let (records, begins) = records(&layouts, &events);
            let mut found = Vec::new();
            prop_assert_eq!(whole(&records, events.len() + 1, (4, 3), 0, &mut found), Ok(records.len()));
            prop_assert_eq!(&found, &begins);
            let summary = Encoder::default().encode(&layouts, 9, (&records, &begins), &mut payload);
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
            let (records, begins) = records(&layouts, &events);
            let summary = Encoder::default().encode(&layouts, 9, (&records, &begins), &mut payload);
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
    fn whole_leaves_out_an_event_that_lacks_records_and_reports_an_unknown_one() {
        let layouts = layouts();
        let wide = layouts[3].pack(1, 5, &[u64::MAX; MOST_ELEMENTS]);
        let whole = |records, most, types, sources| {
            let mut begins = vec![7];
            whole(records, most, (types, sources), 20, &mut begins).map(|taken| (taken, begins))
        };
        assert_eq!(whole(&wide[..4], 9, 4, 2), Ok((0, vec![7])));
        assert_eq!(whole(&wide, 9, 4, 2), Ok((5, vec![7, 20])));
        assert_eq!(whole(&wide, 9, 4, 1), Err(0));
        assert_eq!(whole(&wide, 9, 3, 2), Err(0));
        assert_eq!(whole(&wide, 0, 4, 2), Ok((0, vec![7])));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace is read as it was written.

mod made;

use std::path::Path;

use ibex_trace::{
    BLOCK, Clock, ClockSample, Counts, Error, Event, EventType, Head, MOST_ELEMENTS, MOST_EVENTS, Reader, Record,
    Writer,
};
use proptest::prelude::*;

fn events(reader: &Reader) -> Vec<Event> {
    reader.events().collect::<Result<_, _>>().expect("no fault")
}

#[test]
fn a_reader_returns_all_events_in_each_threads_order_and_by_time() {
    let bytes = made::trace(&made::head(2), 5000, 256, true);
    let reader = Reader::from_bytes("made", bytes).expect("opened");
    assert!(reader.is_finished());
    assert_eq!(reader.head(), &made::head(2));
    let all = events(&reader);
    for thread in 0..3 {
        let wanted = (0..5000).filter(|number| made::thread(*number) == thread).map(made::given);
        assert!(all.iter().copied().filter(|event| event.thread == thread).eq(wanted), "thread {thread}");
    }
    let by_time = reader.interleaved().map(|event| event.expect("no fault"));
    assert!(by_time.eq((0..5000).map(made::given)));
    let counts = reader.counts();
    assert_eq!(counts[2], Counts { events: 49, lost: 0 });
    assert_eq!(counts.iter().map(|of| (of.events, of.lost)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)), (5000, 17));
}

#[test]
fn an_unfinished_trace_gives_the_same_events_and_then_an_error() {
    let reader = Reader::from_bytes("made", made::trace(&made::head(2), 1000, 100, false)).expect("opened");
    assert!(!reader.is_finished());
    let mut given: Vec<_> = reader.interleaved().collect();
    let last = given.pop();
    assert!(matches!(last, Some(Err(Error::Unfinished { .. }))), "{last:?}");
    assert!(given.into_iter().map(|event| event.expect("whole")).eq((0..1000).map(made::given)));
    assert_eq!(reader.counts()[1].lost, 17);
}

#[test]
fn a_reader_has_the_sources_and_samples_that_came_later() {
    let (mut bytes, head) = (Vec::new(), made::head(0));
    let layouts = head.layouts();
    let mut writer = Writer::new(&mut bytes, Path::new("made"), &head, BLOCK).expect("begun");
    writer.note("A sentence.".to_owned());
    writer.flush().expect("flushed");
    assert_eq!(writer.add_source(made::source("host:1", 1000)).expect("room"), 2);
    let sample = ClockSample { clock: Clock::Source(2), shown: 50, before: 1_000_000, after: 1_000_020 };
    let rank = ClockSample { clock: Clock::Rank(3), shown: 1, before: 2, after: 30 };
    writer.clock(sample);
    writer.clock(rank);
    let event = layouts[2].pack(2, 51, &[0; MOST_ELEMENTS]);
    let unknown = layouts[2].pack(1, 51, &[0; MOST_ELEMENTS]);
    writer.write(7, &[event, unknown].concat()).expect("written");
    writer.finish().expect("finished");
    let reader = Reader::from_bytes("made", bytes).expect("opened");
    assert_eq!(reader.head().sources[2].name, "host:1");
    assert_eq!((reader.samples(), reader.notes()), (&[sample, rank][..], &["A sentence.".to_owned()][..]));
    let times: Vec<Option<i64>> = events(&reader).iter().map(|event| event.time).collect();
    assert_eq!(times, [Some(2_000_010), None]);
    let error = reader.relation(2).and_then(|relation| relation.widest(51, 51));
    assert_eq!(error, Some(10 + 500 + 1));
}

#[test]
fn a_writer_refuses_contents_that_no_trace_can_hold_with_a_reason() {
    let head = made::head(0);
    let layouts = head.layouts();
    let mut writer = Writer::new(Vec::new(), Path::new("x.ibex"), &head, BLOCK).expect("begun");
    let refusal = |outcome: Result<(), Error>| outcome.expect_err("refused").to_string();
    let foreign = layouts[2].pack(9, 0, &[0; MOST_ELEMENTS]);
    assert_eq!(
        refusal(writer.write(0, &foreign)),
        "x.ibex cannot hold an event of type 2 and source 9: there are 3 types and 2 sources"
    );
    let wide = layouts[0].pack(0, 0, &[u64::MAX; MOST_ELEMENTS]);
    assert_eq!(refusal(writer.write(0, &wide[..2])), "x.ibex cannot hold half an event at the end of a batch");
    let many = EventType { name: "t".into(), description: String::new(), elements: Vec::new() };
    let head = Head { types: vec![many; 257], ..head };
    assert!(Writer::new(Vec::new(), Path::new("x.ibex"), &head, BLOCK).is_err());
}

/// A disk that is full after this many bytes.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_reports_a_full_disk_each_time() {
    let head = made::head(0);
    let mut writer = Writer::new(Full(2000), Path::new("x.ibex"), &head, BLOCK).expect("begun");
    let mut batch = Vec::new();
    (0..10_000).for_each(|number| made::records(&head.layouts(), &made::event(number), &mut batch));
    for _ in 0..2 {
        let told = writer.write(0, &batch).expect_err("no room").to_string();
        assert!(told.starts_with("cannot write x.ibex: "), "{told}");
    }
    assert!(writer.finish().is_err());
}

#[test]
fn a_block_has_no_more_events_than_the_format_allows() {
    let (mut bytes, head) = (Vec::new(), made::head(0));
    let mut batch = Vec::new();
    let all = MOST_EVENTS as u64 + 10;
    (0..all).for_each(|number| made::records(&head.layouts(), &made::event(number), &mut batch));
    let mut writer = Writer::new(&mut bytes, Path::new("made"), &head, usize::MAX).expect("begun");
    writer.write(0, &batch).expect("written");
    writer.finish().expect("finished");
    let reader = Reader::from_bytes("made", bytes).expect("opened");
    let blocks: Vec<u32> = reader.summaries().map(|summary| summary.events).collect();
    assert_eq!(blocks, [MOST_EVENTS as u32, 10]);
    assert_eq!(reader.events().count(), MOST_EVENTS + 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn a_reader_returns_any_batches_of_any_threads(
        batches in proptest::collection::vec((0..4_u32, proptest::collection::vec(any::<(u8, u64, u64)>(), 0..30)), 0..30),
        block in 1..50_usize,
        flush in 1..10_usize,
    ) {
        let (mut bytes, head) = (Vec::new(), made::head(1));
        let layouts = head.layouts();
        let mut wanted: Vec<Vec<Event>> = vec![Vec::new(); 4];
        let mut writer = Writer::new(&mut bytes, Path::new("made"), &head, block).expect("begun");
        for (place, (thread, batch)) in batches.iter().enumerate() {
            let mut records: Vec<Record> = Vec::new();
            for (which, ticks, seed) in batch {
                let mut values = [0; MOST_ELEMENTS];
                let event_type = which % 3;
                for (element, value) in values.iter_mut().take(layouts[usize::from(event_type)].elements()).enumerate() {
                    *value = seed.rotate_left(element as u32 * 7) >> (seed % 64);
                }
                let event =
                    Event { event_type, source: which % 2, thread: *thread, ticks: *ticks, time: None, values };
                made::records(&layouts, &event, &mut records);
                wanted[*thread as usize].push(event);
            }
            writer.write(*thread, &records).expect("written");
            if place % flush == 0 {
                writer.flush().expect("flushed");
            }
        }
        writer.finish().expect("finished");
        let reader = Reader::from_bytes("made", bytes).expect("opened");
        let all = events(&reader);
        for (thread, wanted) in wanted.iter().enumerate() {
            prop_assert!(all.iter().filter(|event| event.thread as usize == thread).eq(wanted));
        }
        prop_assert_eq!(reader.interleaved().count(), all.len());
    }
}

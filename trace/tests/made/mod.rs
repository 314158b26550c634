// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces for the tests: a head with types like those of ibex, and events.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::Write;
use std::path::Path;

use ibex_trace::{
    Clock, ClockSample, Element, ElementKind, Event, EventType, Head, Layout, MOST_ELEMENTS, Record, Source, Writer,
};

/// A process with three event types and two sources: a thread's clock of 1 GHz, an adapter's of 156.25 MHz.
pub(crate) fn head(rank: u32) -> Head {
    use ElementKind::{I32, U32, U64};
    let of = |name: &str, elements: &[(&str, ElementKind, &str)]| EventType {
        name: name.to_owned(),
        description: String::new(),
        elements: elements.iter().map(|(name, kind, unit)| Element::new(name, *kind, unit)).collect(),
    };
    let message = [
        ("request", U64, ""),
        ("message", U64, ""),
        ("offset", U64, "bytes"),
        ("bytes", U64, "bytes"),
        ("total", U64, "bytes"),
        ("context", U32, ""),
        ("source", I32, ""),
        ("tag", I32, ""),
        ("sequence", U32, ""),
        ("direction", U32, ""),
        ("peer", U32, ""),
    ];
    Head {
        ibex: "0.1.0".into(),
        job: "4711".into(),
        rank: Some(rank),
        ranks: Some(4),
        host: "n1".into(),
        pid: 1000 + rank,
        program: "./app".into(),
        calendar: 1_700_000_000_000_000_000 + i64::from(rank),
        types: vec![
            of("ibex_xfer_begin", &message),
            of("ibex_xfer_end", &message),
            of("ibex_receiver_not_ready", &[("port", U32, ""), ("receives", U32, "")]),
        ],
        sources: vec![source("host:0", 1_000_000_000), source("mlx5_0:1", 156_250_000)],
        ..Head::default()
    }
}

pub(crate) fn source(name: &str, ticks_per_second: u64) -> Source {
    Source { name: name.into(), description: String::new(), ticks_per_second, max_ticks: u64::MAX >> 1, ordered: true }
}

/// The event of this number: alternately a begin and an end, now and then another type; by both clocks.
pub(crate) fn event(number: u64) -> Event {
    let mut values = [0; MOST_ELEMENTS];
    let (event_type, source) = match number {
        number if number % 101 == 100 => (2, 0),
        number => ((number % 2) as u8, u8::from(number % 4 == 1)),
    };
    if event_type == 2 {
        values[..2].copy_from_slice(&[1, 512]);
    } else {
        let bytes = if number % 10 < 2 { 1 << 20 } else { 8 };
        let request = if number % 10 < 2 { 0x7f00_1234_5600 + number % 8 * 512 } else { 0 };
        let tag = if number.is_multiple_of(7) { -12_i64 } else { 42 }.cast_unsigned();
        values[..11].copy_from_slice(&[
            request,
            number / 2,
            0,
            bytes,
            bytes,
            3,
            number % 4,
            tag,
            number / 2 % 65536,
            number / 2 % 2,
            number % 4,
        ]);
    }
    let time = 5_000_000_000_000 + number * 64;
    let ticks = if source == 0 { time } else { time / 64 * 10 };
    Event { event_type, source, thread: 0, ticks, time: Some(time.cast_signed()), values }
}

pub(crate) fn records(layouts: &[Layout], event: &Event, to: &mut Vec<Record>) {
    to.extend(layouts[usize::from(event.event_type)].pack(event.source, event.ticks, &event.values));
}

/// Samples of both clocks at the time of the event of this number.
pub(crate) fn samples(number: u64) -> [ClockSample; 2] {
    let time = 5_000_000_000_000 + number * 64;
    let sample = |source, shown| ClockSample {
        clock: Clock::Source(source),
        shown,
        before: time.cast_signed(),
        after: time.cast_signed(),
    };
    [sample(0, time), sample(1, time / 64 * 10)]
}

pub(crate) fn sample<W: Write>(writer: &mut Writer<W>, number: u64) {
    for sample in samples(number) {
        writer.clock(sample);
    }
}

/// The bytes of a trace, finished or not, in blocks of `block` events; three threads raise 50 events each in turn.
pub(crate) fn trace(head: &Head, events: u64, block: usize, finish: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let layouts = head.layouts();
    let mut writer = Writer::new(&mut bytes, Path::new("made"), head, block).expect("a vector takes all");
    sample(&mut writer, 0);
    let mut batch = Vec::new();
    for first in (0..events).step_by(50) {
        batch.clear();
        (first..events.min(first + 50)).for_each(|number| records(&layouts, &event(number), &mut batch));
        writer.write(thread(first), &batch).expect("written");
    }
    sample(&mut writer, events);
    writer.lost(1, 17);
    if finish {
        writer.finish().expect("finished");
    } else {
        writer.flush().expect("flushed");
    }
    bytes
}

pub(crate) fn thread(number: u64) -> u32 {
    (number / 50 % 3) as u32
}

pub(crate) fn given(number: u64) -> Event {
    Event { thread: thread(number), ..event(number) }
}

pub(crate) fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("ibex-trace-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("made");
    folder
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how fast traces are written and read, and the bytes of an event: `cargo bench -p ibex-trace`. Prints a row
//! for each level of compression; times are processor times, the fastest of several rounds. The events are those of
//! messages of 8 bytes and, every tenth, of 1 MiB, among 16 peers, below another PML (`xfer`) and with ibex' (`comm`).

use std::hint::black_box;
use std::path::Path;

use ibex_trace::{
    Clock, ClockSample, Element, ElementKind, EventType, Head, MOST_ELEMENTS, Options, Reader, Record, Source, Values,
    Writer,
};

const EVENTS: u64 = 1 << 20;
const ROUNDS: usize = 12;
const BLOCK: usize = 8192;

struct Load {
    name: &'static str,
    head: Head,
    events: Vec<(u8, u8, u64, Values)>,
}

fn main() {
    // `cargo test --benches` runs this as well: then one round of little is enough.
    let quick = !std::env::args().any(|word| word == "--bench");
    let (events, rounds) = if quick { (1 << 12, 1) } else { (EVENTS, ROUNDS) };
    println!(
        "{:<6} {:<28} {:>12} {:>12} {:>12} {:>12}",
        "events", "stored as", "write M/s", "read M/s", "raw B/event", "file B/event"
    );
    for load in [xfer(events), comm(events)] {
        let layouts = load.head.layouts();
        let mut records = Vec::new();
        let pack = fastest(rounds, || {
            records.clear();
            for (event_type, source, ticks, values) in &load.events {
                let packed = layouts[usize::from(*event_type)].pack(*source, *ticks, values);
                records.extend_from_slice(packed.records());
            }
        });
        let each = (records.len() * size_of::<Record>()) as f64 / events as f64;
        println!(
            "{:<6} {:<28} {:>12.1} {:>12} {each:>12.2}",
            load.name,
            "(packed into records)",
            rate(events, pack),
            ""
        );
        for level in [1, 3, -5] {
            columns(&load, &records, level, rounds);
        }
    }
}

fn rate(events: u64, seconds: f64) -> f64 {
    events as f64 / seconds / 1e6
}

/// The processor time of this thread, seconds.
fn processor_time() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split_whitespace().next().and_then(|first| first.parse().ok()).map_or(f64::NAN, |ns: f64| ns / 1e9)
}

fn fastest(rounds: usize, mut run: impl FnMut()) -> f64 {
    let mut seconds = || {
        let start = processor_time();
        run();
        processor_time() - start
    };
    (0..rounds).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}

/// The format, written and read by this crate, in memory. The batches are those of a recorder's look at its ring.
fn columns(load: &Load, records: &[Record], level: i32, rounds: usize) {
    let events = load.events.len() as u64;
    let mut file = Vec::new();
    let mut write = |level: i32| {
        file.clear();
        let mut writer =
            Writer::new(&mut file, Path::new("memory"), &load.head, Options { level, block: BLOCK }).expect("begun");
        for sample in &samples(load) {
            writer.clock(*sample);
        }
        let mut rest = records;
        while !rest.is_empty() {
            let mut taken = 0;
            while taken < rest.len() && taken < 5000 {
                taken += rest[taken].records();
            }
            let (batch, later) = rest.split_at(taken);
            writer.write(0, batch).expect("written");
            rest = later;
        }
        black_box(writer.finish().expect("finished")).bytes
    };
    let seconds = fastest(rounds, || {
        black_box(write(level));
    });
    let bytes = write(level);
    let reader = Reader::from_bytes("memory", file.clone()).expect("opened");
    let read = fastest(rounds, || {
        let sum = reader.events().map(|event| event.expect("whole").values[1]).fold(0, u64::wrapping_add);
        black_box(sum);
    });
    let by_time = fastest(rounds, || {
        let sum = reader.by_time(&..).map(|event| event.expect("whole").event.values[1]).fold(0, u64::wrapping_add);
        black_box(sum);
    });
    let row = |how: &str, write: String, read: f64, raw: String| {
        let each = bytes as f64 / events as f64;
        println!("{:<6} {how:<28} {write:>12} {:>12.1} {raw:>12} {each:>12.2}", load.name, rate(events, read));
    };
    let raw = raw_bytes(&file) as f64 / events as f64;
    row(&format!("columns, zstd {level}"), format!("{:.1}", rate(events, seconds)), read, format!("{raw:.2}"));
    row("  read in order of time", String::new(), by_time, String::new());
}

/// The bytes of all payloads before compression, as the headers say.
fn raw_bytes(file: &[u8]) -> u64 {
    let number = |at: usize| u32::from_le_bytes([file[at], file[at + 1], file[at + 2], file[at + 3]]);
    let (mut at, mut raw) = (16, 0);
    while at + 32 <= file.len() && file[at..at + 4] == *b"\xb1OCK" {
        raw += u64::from(number(at + 20)) + u64::from(number(at + 12)) + 32;
        at += 32 + number(at + 12) as usize + number(at + 16) as usize;
    }
    raw
}

fn samples(load: &Load) -> Vec<ClockSample> {
    let (first, last) = (load.events[0].2.cast_signed(), load.events[load.events.len() - 1].2.cast_signed() + 1);
    [first, last]
        .into_iter()
        .flat_map(|time| {
            [0, 1].map(|source| {
                let shown = time.cast_unsigned();
                ClockSample { clock: Clock::Source(source), shown, before: time, after: time + 40 }
            })
        })
        .collect()
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

fn load(name: &'static str, types: &[&str], elements: &[(&str, ElementKind)]) -> Load {
    let elements: Vec<Element> = elements.iter().map(|(name, kind)| Element::new(name, *kind, "")).collect();
    let of =
        |name: &&str| EventType { name: (*name).to_owned(), description: String::new(), elements: elements.clone() };
    let source = |name: &str| Source {
        name: name.into(),
        description: String::new(),
        ticks_per_second: 1_000_000_000,
        max_ticks: u64::MAX >> 1,
        ordered: true,
    };
    let sources = vec![source("host:0"), source("softhca0:1")];
    let head = Head { types: types.iter().map(of).collect(), sources, ..Head::default() };
    Load { name, head, events: Vec::new() }
}

/// Begin and end of each message, as the BTL's.
fn xfer(events: u64) -> Load {
    use ElementKind::{I32, U32, U64};
    let elements = [
        ("request", U64),
        ("message", U64),
        ("offset", U64),
        ("bytes", U64),
        ("total", U64),
        ("context", U32),
        ("source", I32),
        ("tag", I32),
        ("sequence", U32),
        ("direction", U32),
        ("peer", U32),
    ];
    let mut load = load("xfer", &["ibex_xfer_begin", "ibex_xfer_end"], &elements);
    let (mut random, mut time, mut sequences) = (Random(88172645463325252), 3_600_000_000_000, [0_u64; 32]);
    for number in 0..events / 2 {
        let (peer, direction, large) = (random.below(16), random.below(2), random.below(10) == 0);
        let total = if large { 1 << 20 } else { 8 };
        let request = if large { 0x7f3a_1c00_0000 + random.below(64) * 640 } else { 0 };
        let sequence = &mut sequences[(peer * 2 + direction) as usize];
        *sequence = (*sequence + 1) % 65536;
        let source = if direction == 1 { peer } else { 3 };
        for end in [0, 1] {
            time += 60 + random.below(900) + if large && end == 1 { 40_000 } else { 0 };
            let bytes = if (end == 1) == large { total } else { 0 };
            let mut values = [0; MOST_ELEMENTS];
            values[..11]
                .copy_from_slice(&[request, number, 0, bytes, total, 0, source, 42, *sequence, direction, peer]);
            load.events.push((end as u8, u8::from(direction == 1), time, values));
        }
    }
    load
}

/// The eight events of a receive and its message, and the four of a send, as with ibex's own PML.
fn comm(events: u64) -> Load {
    use ElementKind::{I32, U32, U64};
    let elements = [
        ("id", U64),
        ("bytes", U64),
        ("buffer", U64),
        ("context", U32),
        ("peer", I32),
        ("tag", I32),
        ("count", I32),
        ("operation", U32),
        ("posted", U32),
        ("unexpected", U32),
    ];
    let types = [
        "activate",
        "insert_in_posted_q",
        "remove_from_posted_q",
        "xfer_begin",
        "xfer_end",
        "complete",
        "notify",
        "msg_arrived",
    ];
    let mut load = load("comm", &types, &elements);
    let (mut random, mut time, mut id) = (Random(88172645463325252), 3_600_000_000_000, 0);
    while (load.events.len() as u64) < events {
        id += 1;
        let (peer, operation, posted) = (random.below(16), random.below(2), random.below(4));
        let bytes = if random.below(10) == 0 { 1 << 20 } else { 8 };
        let buffer = 0x7f3a_4c00_0000 + random.below(32) * (1 << 20);
        let kinds: &[u8] = if operation == 1 { &[0, 1, 7, 2, 3, 4, 5, 6] } else { &[0, 3, 4, 5] };
        for kind in kinds {
            time += 30 + random.below(300);
            let mut values = [0; MOST_ELEMENTS];
            let tag = if random.below(50) == 0 { u64::MAX } else { 42 };
            values[..10].copy_from_slice(&[id, bytes, buffer, 0, peer, tag, bytes / 8, operation, posted, 0]);
            load.events.push((*kind, 0, time, values));
        }
    }
    load.events.truncate(events as usize);
    load
}

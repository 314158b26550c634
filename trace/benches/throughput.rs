// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how fast traces are written and read, and the bytes of an event: `cargo bench -p ibex-trace`. Times are
//! processor times, the fastest of several rounds. The events are those of messages of 8 bytes and, every tenth, of 1
//! MiB, among 16 peers, as ibex' PML raises them.

use std::hint::black_box;
use std::path::Path;

use ibex_trace::{
    Clock, ClockSample, Element, ElementKind, EventType, Head, MOST_ELEMENTS, Options, Reader, Record, Source, Values,
    Writer,
};

const EVENTS: u64 = 1 << 20;
const ROUNDS: usize = 12;

/// Type, ticks and values.
type Raised = (u8, u64, Values);

fn main() {
    // `cargo test --benches` runs this as well: then one short round is enough.
    let quick = !std::env::args().any(|word| word == "--bench");
    let (count, rounds) = if quick { (1 << 12, 1) } else { (EVENTS, ROUNDS) };
    let (head, events) = (head(), events(count));
    let show = |what: &str, seconds: f64| println!("{what:<28} {:>8.1} M/s", count as f64 / seconds / 1e6);
    let layouts = head.layouts();
    let mut records = Vec::new();
    let packed = fastest(rounds, || {
        records.clear();
        for (event_type, ticks, values) in &events {
            records.extend_from_slice(layouts[usize::from(*event_type)].pack(0, *ticks, values).records());
        }
    });
    show("packed into records", packed);
    let mut file = Vec::new();
    show("written", fastest(rounds, || write(&head, &events, &records, &mut file)));
    let reader = Reader::from_bytes("memory", file.clone()).expect("opened");
    let sum = |values: &mut dyn Iterator<Item = Values>| {
        black_box(values.map(|values| values[1]).fold(0, u64::wrapping_add));
    };
    let read = fastest(rounds, || sum(&mut reader.events().map(|event| event.expect("whole").values)));
    show("read", read);
    let by_time = fastest(rounds, || sum(&mut reader.interleaved().map(|event| event.expect("whole").values)));
    show("read in the order of time", by_time);
    let bytes = |all: usize| all as f64 / count as f64;
    let in_memory = bytes(records.len() * size_of::<Record>());
    println!("bytes of an event: {in_memory:.1} in memory, {:.2} in the file", bytes(file.len()));
}

/// Processor time of this thread, seconds.
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

/// Writes a trace in memory, in batches like those that a recorder takes from a ring.
fn write(head: &Head, events: &[Raised], records: &[Record], file: &mut Vec<u8>) {
    file.clear();
    let mut writer = Writer::new(file, Path::new("memory"), head, Options::default()).expect("begun");
    for time in [events[0].1, events[events.len() - 1].1 + 1] {
        let before = time.cast_signed();
        writer.clock(ClockSample { clock: Clock::Source(0), shown: time, before, after: before + 40 });
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
    writer.finish().expect("finished");
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

fn head() -> Head {
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
    let elements: Vec<Element> = elements.iter().map(|(name, kind)| Element::new(name, *kind, "")).collect();
    let of = |name: &str| EventType { name: name.into(), description: String::new(), elements: elements.clone() };
    let names =
        ["activate", "insert_in_posted_q", "remove_from_posted_q", "xfer_begin", "xfer_end", "complete", "notify"];
    let source = Source {
        name: "host:0".into(),
        description: String::new(),
        ticks_per_second: 1_000_000_000,
        max_ticks: u64::MAX >> 1,
        ordered: true,
    };
    let types = names.into_iter().chain(["msg_arrived"]).map(of).collect();
    Head { types, sources: vec![source], ..Head::default() }
}

/// The eight events of a receive and its message, and the four of a send.
fn events(count: u64) -> Vec<Raised> {
    let mut events = Vec::new();
    let (mut random, mut time, mut id) = (Random(88172645463325252), 3_600_000_000_000, 0);
    while (events.len() as u64) < count {
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
            events.push((*kind, time, values));
        }
    }
    events.truncate(count as usize);
    events
}

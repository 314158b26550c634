// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how fast traces are written and read, and the bytes of an event: `cargo bench -p ibex-trace`. Times are
//! processor times, the fastest of several rounds. The events are those of the tests.

use std::hint::black_box;
use std::path::Path;

use ibex_trace::{BLOCK, Event, Head, Reader, Record, Room, Values, Writer};

#[path = "../tests/made/mod.rs"]
mod made;

const EVENTS: u64 = 1 << 20;
const ROUNDS: usize = 12;

fn main() {
    // `cargo test --benches` runs this as well: then one short round is enough.
    let quick = !std::env::args().any(|word| word == "--bench");
    let (count, rounds) = if quick { (1 << 12, 1) } else { (EVENTS, ROUNDS) };
    let (head, events) = (made::head(0), (0..count).map(made::event).collect::<Vec<_>>());
    let show = |what: &str, seconds: f64| println!("{what:<28} {:>8.1} M/s", count as f64 / seconds / 1e6);
    let layouts = head.layouts();
    let (mut records, mut room) = (Vec::new(), Room::default());
    let packed = fastest(rounds, || {
        records.clear();
        for Event { event_type, source, ticks, values, .. } in &events {
            let layout = layouts[usize::from(*event_type)];
            let used = layout.pack_into(*source, *ticks, |element| values[element], &mut room);
            records.extend_from_slice(&room[..used]);
        }
    });
    show("packed into records", packed);
    let mut file = Vec::new();
    show("written", fastest(rounds, || write(&head, count, &records, &mut file)));
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
fn write(head: &Head, count: u64, records: &[Record], file: &mut Vec<u8>) {
    file.clear();
    let mut writer = Writer::new(file, Path::new("memory"), head, BLOCK).expect("begun");
    made::sample(&mut writer, 0);
    made::sample(&mut writer, count);
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

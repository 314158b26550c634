// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of matching, in short queues and in long ones; `cargo bench -p ibex --bench matching`.
//!
//! Time: finding one entry among 100,000, the same each time, may take twice the time of one among 10. Instructions:
//! the operations are functions of their own here, so that `valgrind --tool=callgrind target/release/deps/matching-*
//! --bench --test short` counts them (`callgrind_annotate`, by calls).

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ibex::messenger::matching::{ANY_SOURCE, ANY_TAG, Envelope, Matching, MessageHandle, Pattern, Searched};

/// A message: a header of 16 bytes, and where its data is.
type Unexpected = [u64; 4];
type Queues = Matching<u64, Unexpected>;

/// Enough that the first allocations do not show.
const ROUNDS: u64 = 10_000;

#[inline(never)]
fn post(queues: &mut Queues, source: i32, tag: i32, request: u64) -> Option<u64> {
    let pattern = Pattern::new(source, tag);
    let found = queues.search_unexpected(pattern).found;
    if found.is_none() {
        queues.insert_posted(pattern, request);
    }
    found.map(|message| message.message[0])
}

#[inline(never)]
fn arrive(queues: &mut Queues, source: i32, tag: i32, message: u64) -> Option<u64> {
    let envelope = Envelope::new(source, tag);
    let found = queues.search_posted(envelope).found;
    if found.is_none() {
        queues.insert_unexpected(envelope, [message; 4]);
    }
    found
}

#[inline(never)]
fn arrive_at_one(queues: &mut Queues, source: i32, tag: i32) -> Option<u64> {
    queues.search_posted(Envelope::new(source, tag)).found
}

#[inline(never)]
fn arrive_at_empty(queues: &mut Queues, source: i32, tag: i32) -> MessageHandle {
    let envelope = Envelope::new(source, tag);
    let Searched { found: None, .. } = queues.search_posted(envelope) else { panic!("nothing is posted") };
    queues.insert_unexpected(envelope, [7; 4])
}

#[inline(never)]
fn post_for_one(queues: &mut Queues, source: i32, tag: i32) -> u64 {
    queues.search_unexpected(Pattern::new(source, tag)).found.map_or(0, |message| message.message[0])
}

/// A message of a round: posted first, then unexpected, the queues otherwise empty.
fn short(criterion: &mut Criterion) {
    let mut queues = Queues::new();
    let mut group = criterion.benchmark_group("short");
    group.bench_function("posted", |b| {
        b.iter(|| {
            for round in 0..ROUNDS {
                assert_eq!(post(&mut queues, black_box(1), black_box(5), round), None);
                assert_eq!(arrive_at_one(&mut queues, black_box(1), black_box(5)), Some(round));
            }
        });
    });
    group.bench_function("unexpected", |b| {
        b.iter(|| {
            for _ in 0..ROUNDS {
                black_box(arrive_at_empty(&mut queues, black_box(1), black_box(5)));
                assert_eq!(post_for_one(&mut queues, black_box(1), black_box(5)), 7);
            }
        });
    });
}

/// The pattern of a class for rank and tag `number`.
const CLASSES: [&str; 3] = ["exact", "any_source", "any_tag"];

fn pattern(class: usize, number: i32) -> (i32, i32) {
    [(number, number), (ANY_SOURCE, number), (number, ANY_TAG)][class]
}

/// Takes the last of many entries of each class and puts it back (`turn`); `fill` adds an entry.
fn among_many(
    criterion: &mut Criterion,
    name: &str,
    fill: impl Fn(&mut Queues, (i32, i32), i32),
    turn: impl Fn(&mut Queues, (i32, i32), i32),
) {
    let mut group = criterion.benchmark_group(name);
    for (class, name) in CLASSES.iter().enumerate() {
        for length in [10, 1000, 100_000] {
            let mut queues = Queues::new();
            for number in 0..length {
                fill(&mut queues, pattern(class, number), number);
            }
            let last = length - 1;
            group.bench_function(BenchmarkId::new(*name, length), |b| {
                b.iter(|| turn(&mut queues, pattern(class, last), last));
            });
        }
    }
}

fn posted(criterion: &mut Criterion) {
    let fill = |queues: &mut Queues, (source, tag), _| {
        post(queues, source, tag, 0);
    };
    among_many(criterion, "posted", fill, |queues, pattern, number| {
        arrive(queues, number, number, 0).expect("posted");
        fill(queues, pattern, number);
    });
}

fn unexpected(criterion: &mut Criterion) {
    let fill = |queues: &mut Queues, _, number| {
        arrive(queues, number, number, 0);
    };
    among_many(criterion, "unexpected", fill, |queues, pattern, number| {
        post(queues, pattern.0, pattern.1, 0).expect("arrived");
        fill(queues, pattern, number);
    });
}

criterion_group!(benches, short, posted, unexpected);
criterion_main!(benches);

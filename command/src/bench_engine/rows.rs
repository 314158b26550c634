// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of the engine and their timed loops: those of `benches/mpi/ibex_mpi_bench.c`, without MPI.
//!
//! A row is the median of its samples, with their interquartile range, and is doubled until that changes its median
//! little ([`until_settled`]); a sample of a latency is the typical (median)
//! round, as in perftest. A stream has at most one window in flight: the other side acknowledges each half. Units:
//! bytes; us = half a round trip, or one put or get until its completion; MB = 10^6 bytes. Called by [`super`]. Grade:
//! hot within a run, setup between runs. Tests: at the end of this file.

use std::time::Instant;

use anyhow::Result;
use ibex_bench::{FIRST_SECONDS, LONGEST, quantile, until_settled};

use super::protocol::{Ask, Ready, Run, Shape, Talk};
use super::side::Side;

/// A test.
#[derive(Debug, PartialEq)]
pub(super) struct Test {
    name: &'static str,
    value: Value,
    shape: Shape,
    is_windowed: bool,
    /// The message sizes that it supports.
    sizes: (u32, u32),
}

/// Unit of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Microseconds,
    Megabytes,
    Messages,
}

const fn latency(name: &'static str, shape: Shape, least: u32) -> Test {
    Test { name, value: Value::Microseconds, shape, is_windowed: false, sizes: (least, super::side::LARGEST) }
}

const fn stream(name: &'static str, shape: Shape) -> Test {
    Test { name, value: Value::Megabytes, shape, is_windowed: true, sizes: (1, super::side::LARGEST) }
}

static TESTS: [Test; 7] = [
    latency("latency", Shape::PingPong, 0),
    stream("bandwidth", Shape::Stream),
    Test { value: Value::Messages, sizes: (0, 4096), ..stream("message_rate", Shape::Stream) },
    latency("put_latency", Shape::Put, 1),
    latency("get_latency", Shape::Get, 1),
    stream("put_bandwidth", Shape::Put),
    stream("get_bandwidth", Shape::Get),
];

/// The test of that name.
pub(super) fn test(name: &str) -> Result<&'static Test, String> {
    let names = || TESTS.iter().map(|test| test.name).collect::<Vec<_>>().join(", ");
    TESTS.iter().find(|test| test.name == name).ok_or_else(|| format!("the engine has {}", names()))
}

/// Each test with each size that it supports.
pub(super) fn tests<'a>(tests: &'a [&'static Test], sizes: &'a [u32]) -> impl Iterator<Item = (&'static Test, u32)> {
    let has = |test: &Test, bytes: u32| (test.sizes.0..=test.sizes.1).contains(&bytes);
    tests.iter().flat_map(move |test| {
        sizes.iter().copied().filter(move |bytes| has(test, *bytes)).map(move |bytes| (*test, bytes))
    })
}

/// Bounds of the messages and bytes in flight.
const WINDOW: u64 = 64;
const MOST_IN_FLIGHT: u64 = 32 << 20;

/// Each is shorter than the turn of another process.
const MOST_SAMPLES: u64 = 50;
const LEAST_SAMPLES: u64 = 5;

/// Rounds of a latency.
const MOST_LAPS: u64 = 1 << 16;

/// A row: the line that `ibex bench` reads.
///
/// # Errors
/// The other side has ended.
pub(super) fn measured(side: &mut Side, talk: &mut Talk, test: &Test, bytes: u32) -> Result<String> {
    let window = window(test, bytes);
    // A stream needs two windows, because the first has to fill.
    let least = if test.shape == Shape::Stream { 4 } else { 1 };
    let mut laps = Vec::with_capacity(MOST_LAPS as usize);
    let mut timed = |iterations: u64| {
        let run = Run { shape: test.shape, bytes, iterations, window };
        side.begin();
        talk.say(&Ask::Run(run))?;
        let Ready = talk.hear()?;
        laps.clear();
        driven(side, run, &mut laps)
    };
    // A run may hold what only the first use of a size costs, or another process's time: the best counts.
    let (mut iterations, mut each, mut long_ones) = (least, f64::MAX, 0);
    while long_ones < 3 {
        each = each.min(timed(iterations)?.passed / iterations as f64);
        if each * (iterations as f64) < FIRST_SECONDS / 40.0 && iterations < MOST_LAPS / 4 {
            iterations *= 4;
        } else {
            long_ones += 1;
        }
    }
    let (samples, iterations) = plan(FIRST_SECONDS / each, least, test.is_windowed);
    let (mut values, begun) = (Vec::new(), Instant::now());
    let (_, values) = until_settled(
        |times| {
            while (values.len() as u64) < samples * u64::from(times) {
                values.push(value(test, bytes, window, timed(iterations)?.counted / iterations as f64));
            }
            let mut ascending = values.clone();
            ascending.sort_by(f64::total_cmp);
            Ok(ascending)
        },
        |ascending| quantile(ascending, 0.5),
        // On a busy machine samples take longer than they count.
        || begun.elapsed().as_secs_f64() < FIRST_SECONDS * f64::from(LONGEST),
    )?;
    Ok(line(test, bytes, &values, begun.elapsed().as_secs_f64()))
}

/// Number of samples and of iterations per sample, if `affordable` iterations fit into the time.
fn plan(affordable: f64, least: u64, is_windowed: bool) -> (u64, u64) {
    let samples = ((affordable / least as f64) as u64).clamp(LEAST_SAMPLES, MOST_SAMPLES);
    let iterations = ((affordable / samples as f64) as u64).max(least);
    (samples, if is_windowed { iterations } else { iterations.min(MOST_LAPS) })
}

/// Messages in flight.
fn window(test: &Test, bytes: u32) -> u64 {
    let most = MOST_IN_FLIGHT / u64::from(bytes.max(1));
    if test.is_windowed { most.clamp(4, WINDOW) & !1 } else { 1 }
}

/// The result for the seconds of an iteration, which for a stream is half a window.
fn value(test: &Test, bytes: u32, window: u64, seconds: f64) -> f64 {
    let messages = if test.shape == Shape::Stream { window / 2 } else { window } as f64;
    match test.value {
        Value::Microseconds => seconds * 1e6 / if test.shape == Shape::PingPong { 2.0 } else { 1.0 },
        Value::Megabytes => messages * f64::from(bytes) / seconds / 1e6,
        Value::Messages => messages / seconds,
    }
}

/// Of ascending values.
fn line(test: &Test, bytes: u32, values: &[f64], seconds: f64) -> String {
    let unit = match test.value {
        Value::Microseconds => "us",
        Value::Megabytes => "MB/s",
        Value::Messages => "msg/s",
    };
    let name = test.name;
    let (value, spread) = (quantile(values, 0.5), quantile(values, 0.75) - quantile(values, 0.25));
    serde_json::json!({ "test": name, "bytes": bytes, "unit": unit, "value": value, "spread": spread, "seconds": seconds })
        .to_string()
}

/// Seconds of a run.
#[derive(Clone, Copy)]
struct Took {
    /// Elapsed time: bounds the length of a row on a busy machine.
    passed: f64,
    /// Time for the result; for a latency, as if each round took as long as the median one.
    counted: f64,
}

/// The client's part of a run.
fn driven(side: &mut Side, run: Run, laps: &mut Vec<f64>) -> Result<Took> {
    let begun = Instant::now();
    match run.shape {
        Shape::PingPong => ping(side, run, laps)?,
        Shape::Stream => streamed(side, run)?,
        Shape::Put | Shape::Get => one_sided(side, run, laps)?,
    }
    let passed = begun.elapsed().as_secs_f64();
    laps.sort_by(f64::total_cmp);
    let counted = if laps.is_empty() { passed } else { quantile(laps, 0.5) * run.iterations as f64 };
    Ok(Took { passed, counted })
}

fn ping(side: &mut Side, run: Run, laps: &mut Vec<f64>) -> Result<()> {
    let mut before = Instant::now();
    for round in 1..=run.iterations {
        side.message(run.bytes)?;
        while side.seen.data < round {
            side.poll()?;
        }
        let now = Instant::now();
        laps.push(now.duration_since(before).as_secs_f64());
        before = now;
    }
    settled(side, run, run.iterations)
}

fn streamed(side: &mut Side, run: Run) -> Result<()> {
    let half = run.window / 2;
    for posted in 0..run.iterations + 2 {
        // Two halves are in flight.
        while posted >= 2 && side.seen.acknowledged < posted - 1 {
            side.poll()?;
        }
        if posted < run.iterations {
            for _ in 0..half {
                side.message(run.bytes)?;
            }
        }
    }
    settled(side, run, run.iterations * half)
}

fn one_sided(side: &mut Side, run: Run, laps: &mut Vec<f64>) -> Result<()> {
    let mut before = Instant::now();
    for round in 1..=run.iterations {
        for _ in 0..run.window {
            if run.shape == Shape::Put { side.put(run.bytes)? } else { side.get(run.bytes)? }
        }
        while side.seen.done < round * run.window {
            side.poll()?;
        }
        if run.window == 1 {
            let now = Instant::now();
            laps.push(now.duration_since(before).as_secs_f64());
            before = now;
        }
    }
    Ok(())
}

/// Waits for the completion of this side's puts.
fn settled(side: &mut Side, run: Run, messages: u64) -> Result<()> {
    while side.seen.done < messages * side.puts(run.bytes) {
        side.poll()?;
    }
    Ok(())
}

/// The server's part of a run.
///
/// # Errors
/// The connection has failed.
pub(super) fn answered(side: &mut Side, run: Run) -> Result<()> {
    match run.shape {
        Shape::PingPong => {
            for round in 1..=run.iterations {
                while side.seen.data < round {
                    side.poll()?;
                }
                side.message(run.bytes)?;
            }
            settled(side, run, run.iterations)
        }
        Shape::Stream => {
            for half in 1..=run.iterations {
                while side.seen.data < half * (run.window / 2) {
                    side.poll()?;
                }
                side.acknowledge()?;
            }
            Ok(())
        }
        Shape::Put | Shape::Get => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_the_sizes_that_make_sense_for_it() {
        let named = ["latency", "message_rate", "put_latency"].map(|name| test(name).expect("a test"));
        let all: Vec<(&str, u32)> = tests(&named, &[0, 8, 1 << 20]).map(|(test, bytes)| (test.name, bytes)).collect();
        let wanted = [("latency", 0), ("latency", 8), ("latency", 1 << 20), ("message_rate", 0), ("message_rate", 8)];
        assert_eq!(all[..5], wanted);
        assert_eq!(all[5..], [("put_latency", 8), ("put_latency", 1 << 20)]);
        assert!(test("rate").unwrap_err().contains("message_rate"));
    }

    #[test]
    fn values_are_half_a_round_trip_bytes_and_messages_per_second() {
        let of = |name, bytes, seconds| {
            let test = test(name).expect("a test");
            value(test, bytes, window(test, bytes), seconds)
        };
        assert!((of("latency", 8, 2e-6) - 1.0).abs() < 1e-9);
        assert!((of("put_latency", 8, 2e-6) - 2.0).abs() < 1e-9);
        assert!((of("bandwidth", 1000, 32e-6) - 1000.0).abs() < 1e-6);
        assert!((of("put_bandwidth", 1000, 64e-6) - 1000.0).abs() < 1e-6);
        assert!((of("message_rate", 8, 32e-6) - 1e6).abs() < 1e-3);
    }

    #[test]
    fn large_messages_have_few_in_flight_and_a_row_has_enough_samples() {
        let bandwidth = test("bandwidth").expect("a test");
        assert_eq!([8, 1 << 20, 4 << 20].map(|bytes| window(bandwidth, bytes)), [64, 32, 8]);
        assert_eq!(plan(3.0, 4, true), (5, 4), "too long for the time");
        assert_eq!(plan(1e6, 1, false), (50, 20_000));
        assert_eq!(plan(1e9, 1, false), (50, MOST_LAPS));
    }
}

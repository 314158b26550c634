// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches a host's counters and clocks for a moment. Called by [`super`], on the host itself; judged by `watched`.
//! Grade: setup. Tests: below.

use crate::facts::Facts;
use crate::facts::adapters::{Adapter, folder};
use crate::facts::counters::{self, Counters};
use ibex_ffi::verbs::Context;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) seconds: f64,
    pub(super) grown: Vec<(String, Counters)>,
    /// Parts per million by which each adapter's clock ran faster than its nominal rate.
    pub(super) drifts: Vec<(String, f64)>,
}

struct Reading {
    ticks: u64,
    at: Instant,
}

struct Clock {
    device: String,
    ticks_per_second: u64,
    bits: u32,
    context: Arc<Context>,
    begun: Reading,
}

/// A watch in progress; the counters' first values are in the facts.
pub(super) struct Watching {
    begun: Instant,
    clocks: Vec<Clock>,
}

pub(super) fn begin(facts: &Facts) -> Watching {
    let clock = |adapter: &Adapter| {
        let clock = adapter.facts.as_ref()?.clock.as_ref()?;
        let context = Context::open(&adapter.name).ok()?;
        let begun = read(&context)?;
        let device = adapter.name.clone();
        Some(Clock { device, ticks_per_second: clock.ticks_per_second, bits: clock.bits, context, begun })
    };
    Watching { begun: Instant::now(), clocks: facts.adapters.each.iter().filter_map(clock).collect() }
}

impl Watching {
    /// Waits until `time` has passed since the begin, and reads clocks and counters again.
    pub(super) fn end(self, facts: &Facts, time: Duration) -> Seen {
        sleep(time.saturating_sub(self.begun.elapsed()));
        let drifts = self.clocks.into_iter().filter_map(|clock| {
            let drift = drift(&clock.begun, &read(&clock.context)?, clock.ticks_per_second, clock.bits);
            Some((clock.device, drift))
        });
        let ports =
            facts.adapters.each.iter().flat_map(|adapter| adapter.ports.iter().map(move |port| (adapter, port)));
        let grown = ports.filter_map(|(adapter, port)| {
            let now = counters::read(&folder(&adapter.name, port.number)?);
            Some((format!("{}:{}", adapter.name, port.number), counters::growth(&port.counters, &now)))
        });
        let drifts = drifts.collect();
        Seen { seconds: self.begun.elapsed().as_secs_f64(), drifts, grown: grown.collect() }
    }
}

/// Reads both clocks as simultaneously as possible: the fastest of several readings.
fn read(context: &Context) -> Option<Reading> {
    let one = || {
        let before = Instant::now();
        let ticks = context.raw_clock()?;
        let took = before.elapsed();
        Some((took, Reading { ticks, at: before + took / 2 }))
    };
    (0..16).filter_map(|_| one()).min_by_key(|(took, _)| *took).map(|(_, reading)| reading)
}

fn drift(begun: &Reading, ended: &Reading, ticks_per_second: u64, bits: u32) -> f64 {
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let ticks = ended.ticks.wrapping_sub(begun.ticks) & mask;
    let seconds = (ended.at - begun.at).as_secs_f64();
    (ticks as f64 / (seconds * ticks_per_second as f64) - 1.0) * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_fast_or_wraps_is_measured_right() {
        let at = Instant::now();
        let reading = |ticks, seconds| Reading { ticks, at: at + Duration::from_secs(seconds) };
        let close = |drift: f64, expected: f64| assert!((drift - expected).abs() < 0.01, "{drift}");
        close(drift(&reading(5, 0), &reading(2_000_005, 2), 1_000_000, 64), 0.0);
        close(drift(&reading(5, 0), &reading(2_001_005, 2), 1_000_000, 64), 500.0);
        // 16 bits of the clock have wrapped once.
        close(drift(&reading(0xffff, 0), &reading(0xea5f, 1), 60_000, 16), 0.0);
    }
}

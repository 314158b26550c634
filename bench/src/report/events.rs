// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of a report that `--events` adds: the cost of events, as ratios to a build without them. The six ways
//! ([`transport::EVENTS`]) take turns. A ratio compares two values of one round, which are seconds apart, so slower
//! changes of the machine cancel. The report has the median over the rounds, and an interval that contains the true
//! ratio with a probability of some 93 %: for five rounds from the least to the greatest, for eight or more from the
//! second least to the second greatest. Instructions, allocations and counts of events are exact. For the matching
//! events, over the PML, the report has only instructions ([`transport::EVENTS_OF_MATCHING`]). Called by [`super`];
//! read by [`crate::text`] and by the thresholds of `cargo xtask bench`. Grade: setup. Tests: below.

use crate::catalogue::{self, Metric, Transport, transport};
use crate::numbers::{quantile, rounded};
use crate::programs::Measurement;
use crate::programs::event_counts::Counts;
use crate::programs::instructions::{self, Counted};
use crate::run::found::Found;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const BASE: Transport = transport::EVENTS[0];

/// The part of `report.json` about events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Each value, divided by that of the build without events.
    pub ratios: Vec<Ratio>,
    /// Counts for one 8-byte message, sent and received.
    pub messages: Vec<Message>,
    /// Events of all runs of each way, and of one with a buffer that is too small.
    pub counts: Vec<NamedCounts>,
    /// Events raised and delivered through a buffer, per second and thread.
    pub deliveries_per_second: Option<f64>,
}

/// Counts for one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Name of the way of listening.
    pub transport: String,
    /// Instructions of libibex.so.
    pub instructions_of_ibex: f64,
    /// Instructions of MPI and all below it, with the tool's, without the adapter's.
    pub instructions: f64,
    /// Number of events raised.
    pub events: f64,
    /// Upper bound of allocations in the whole process.
    pub allocations: f64,
}

/// Counts of a way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCounts {
    /// Name of the way of listening, or [`crate::SMALL_BUFFER`].
    pub what: String,
    /// Its events.
    #[serde(flatten)]
    pub counts: Counts,
}

impl Cost {
    pub(crate) fn new(found: &Found, deliveries_per_second: Option<f64>) -> Self {
        let counts =
            found.events.iter().map(|(what, counts)| NamedCounts { what: (*what).to_owned(), counts: *counts });
        let messages = found.instructions.iter().map(|(count, counted)| Message::new(count.transport, counted));
        Self {
            ratios: ratios(&found.measured, BASE),
            messages: messages.collect(),
            counts: counts.collect(),
            deliveries_per_second,
        }
    }

    /// Writes the ratio of a way, a test and a size to the build without events: `1.012 (0.998 to 1.020)`.
    pub(crate) fn ratio(&self, test: &str, transport: Transport, bytes: u64) -> Option<String> {
        self.find(test, transport, Some(bytes)).map(Ratio::words)
    }

    /// Returns the ratio of a way, a test and a size.
    pub fn find(&self, test: &str, transport: Transport, bytes: Option<u64>) -> Option<&Ratio> {
        let wanted = |ratio: &&Ratio| ratio.test == test && ratio.transport == transport.name() && ratio.bytes == bytes;
        self.ratios.iter().find(wanted)
    }

    /// Returns the counts for a message.
    pub fn message(&self, transport: Transport) -> Option<&Message> {
        self.messages.iter().find(|message| message.transport == transport.name())
    }
}

impl Message {
    fn new(transport: Transport, counted: &Counted) -> Self {
        Self {
            transport: transport.name().to_owned(),
            instructions_of_ibex: instructions::of_ibex(&counted.objects),
            instructions: instructions::of_mpi(&counted.objects),
            events: counted.events,
            allocations: counted.allocations,
        }
    }
}

const LARGE: u64 = 64 << 10;

/// With this many rounds or more, the outermost ratios are left out.
const MANY_ROUNDS: usize = 8;

/// A ratio over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Name of the test.
    pub test: String,
    /// Name of the way of listening.
    pub transport: String,
    /// Message size; `None`: the geometric mean of all from 64 KiB on.
    pub bytes: Option<u64>,
    /// Median over the rounds.
    pub median: f64,
    /// Lower end of the interval.
    pub least: f64,
    /// Upper end of the interval.
    pub greatest: f64,
}

/// Returns the ratios to `base` of each test, way and size, and of all large sizes of a test and way together. Exact
/// values have no rounds, and are left out.
pub(super) fn ratios(measured: &[Measurement], base: Transport) -> Vec<Ratio> {
    // In the order of the rounds.
    let mut values: BTreeMap<(&str, Transport, u64), Vec<f64>> = BTreeMap::new();
    for one in measured.iter().filter(|one| metric(&one.test) != Some(Metric::Instructions)) {
        values.entry((&one.test, one.transport, one.bytes)).or_default().push(one.value);
    }
    let mut found = Vec::new();
    let mut large: BTreeMap<(&str, Transport), Vec<Vec<f64>>> = BTreeMap::new();
    for (&(test, transport, bytes), of_way) in values.iter().filter(|((_, transport, _), _)| *transport != base) {
        let Some(of_base) = values.get(&(test, base, bytes)) else { continue };
        let rounds: Vec<f64> = of_way.iter().zip(of_base).map(|(way, base)| way / base).collect();
        found.extend(Ratio::over_rounds(test, transport, Some(bytes), &rounds));
        if bytes >= LARGE {
            large.entry((test, transport)).or_default().push(rounds);
        }
    }
    let together = large.iter().map(|((test, transport), sizes)| (*test, *transport, means(sizes)));
    found.extend(together.filter_map(|(test, transport, rounds)| Ratio::over_rounds(test, transport, None, &rounds)));
    found
}

fn means(sizes: &[Vec<f64>]) -> Vec<f64> {
    let rounds = sizes.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |round: usize| {
        let logarithms: f64 = sizes.iter().map(|ratios| ratios[round].ln()).sum();
        (logarithms / sizes.len() as f64).exp()
    };
    (0..rounds).map(mean).collect()
}

fn metric(test: &str) -> Option<Metric> {
    catalogue::test(test).map(|test| test.metric)
}

impl Ratio {
    fn over_rounds(test: &str, transport: Transport, bytes: Option<u64>, ratios: &[f64]) -> Option<Self> {
        let mut ascending = ratios.to_vec();
        ascending.sort_by(f64::total_cmp);
        let left_out = usize::from(ascending.len() >= MANY_ROUNDS);
        let (least, greatest) = (*ascending.get(left_out)?, *ascending.iter().rev().nth(left_out)?);
        Some(Self {
            test: test.to_owned(),
            transport: transport.name().to_owned(),
            bytes,
            median: rounded(quantile(&ascending, 0.5)),
            least: rounded(least),
            greatest: rounded(greatest),
        })
    }

    /// Returns the least and the greatest factor by which the duration grows: for a bandwidth the inverse of the ratio.
    pub fn slowdown(&self) -> (f64, f64) {
        match metric(&self.test) {
            Some(Metric::Bandwidth | Metric::MessageRate) => (1.0 / self.greatest, 1.0 / self.least),
            _ => (self.least, self.greatest),
        }
    }

    pub(crate) fn words(&self) -> String {
        format!("{:.3} ({:.2} to {:.2})", self.median, self.least, self.greatest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::measured;

    /// Makes rounds of a test over the build without events, and over another way with these ratios.
    fn rounds(test: &str, transport: Transport, bytes: u64, ratios: &[f64]) -> Vec<Measurement> {
        let round = |(round, ratio): (usize, &f64)| {
            // The machine affects both.
            let base = 1.0 + round as f64;
            [measured(test, BASE, bytes, base), measured(test, transport, bytes, base * ratio)]
        };
        ratios.iter().enumerate().flat_map(round).collect()
    }

    #[test]
    fn a_ratio_is_that_of_a_round_and_the_outermost_of_many_are_left_out() {
        let words = |of: &[f64]| ratios(&rounds("latency", Transport::Callbacks, 8, of), BASE)[0].words();
        assert_eq!(words(&[1.04, 1.02, 1.03]), "1.030 (1.02 to 1.04)");
        assert_eq!(words(&[9.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 0.1]), "1.350 (1.10 to 1.60)");
    }

    #[test]
    fn exact_values_and_values_without_a_counterpart_have_no_ratio() {
        let exact = rounds("instructions", Transport::Callbacks, 8, &[2.0, 2.0]);
        assert!(ratios(&exact, BASE).is_empty());
        assert!(ratios(&[measured("latency", Transport::Callbacks, 8, 1.0)], BASE).is_empty());
    }

    #[test]
    fn large_messages_have_a_ratio_together_and_small_ones_are_not_in_it() {
        let of = |bytes, ratios| rounds("latency", Transport::Callbacks, bytes, ratios);
        let all = [of(4096, &[9.0, 9.0, 9.0]), of(64 << 10, &[1.0, 1.0, 4.0]), of(1 << 20, &[1.0, 4.0, 4.0])].concat();
        let ratios = ratios(&all, BASE);
        let together: Vec<&Ratio> = ratios.iter().filter(|ratio| ratio.bytes.is_none()).collect();
        assert_eq!(together.len(), 1);
        assert_eq!((together[0].least, together[0].median, together[0].greatest), (1.0, 2.0, 4.0));
    }

    #[test]
    fn a_greater_latency_and_a_smaller_bandwidth_are_slower() {
        let slowdown = |test| ratios(&rounds(test, Transport::Callbacks, 8, &[0.5, 2.0, 4.0]), BASE)[0].slowdown();
        assert_eq!((slowdown("latency"), slowdown("bandwidth")), ((0.5, 4.0), (0.25, 2.0)));
    }
}

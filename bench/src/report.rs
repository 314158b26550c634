// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a bench: from the measurements of all rounds to one row per test, transport and size.
//!
//! A value is the median over the rounds, its spread the interquartile range over the rounds (of one round: what the
//! measurement itself says). The raw row of a test is the better of the raw programs it is compared with; each of
//! these has rows of its own, too, under its own name. A ratio is that of the two medians.
//!
//! Units: latency in microseconds, bandwidth in MB/s (10^6 bytes per second), rate in messages per second.
//!
//! Grade: setup. Called by the bench; read by [`super::table`], [`super::html`], [`super::bars`].
//! Tests: at the end of this file.

use super::catalogue::{self, Test};
use super::events::Cost;
use super::instructions::{Count, Counted, OfObject};
use super::transport::{self, Transport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The device all of it ran on.
    pub(crate) device: String,
    /// In the order of the plan, sizes ascending.
    pub(crate) rows: Vec<Row>,
    /// Where the instructions of a message go; empty where they were not counted.
    pub(crate) instructions: Vec<Part>,
    /// What events cost, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<Cost>,
    /// What could not be measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) failures: Vec<Failure>,
    /// What this machine does not have, so that it was not tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<LeftOut>,
}

/// One value of `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Name of the test, or of the raw program.
    pub(crate) test: String,
    /// What carried it: `ibex`, `raw`, `engine`, `openib`, `ucx`, `ucx_perftest`, `tcp` or `memory`; where events are measured
    /// `without`, `unregistered`, `callbacks`, `buffered` or `logger`.
    pub(crate) transport: String,
    /// Message size.
    pub(crate) bytes: u64,
    /// `half_round_trip`, `completion`, `bandwidth`, `message_rate` or `instructions`.
    pub(crate) metric: String,
    /// Unit of value and spread.
    pub(crate) unit: String,
    /// Median over the rounds.
    pub(crate) value: f64,
    /// Interquartile range over the rounds.
    pub(crate) spread: f64,
    /// This value over the raw one of the same test and size; none where there is no raw one.
    pub(crate) ratio_to_raw: Option<f64>,
}

/// The instructions that one message takes in one object, sent and received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// What carried the message.
    pub(crate) transport: String,
    /// A shared library, or the program.
    pub(crate) object: String,
    /// Whether that is the adapter.
    pub(crate) adapter: bool,
    /// Instructions per message.
    pub(crate) instructions: f64,
}

/// A start of a program, in one round, that did not measure all that it was started for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// What was to carry it.
    pub(crate) transport: String,
    /// The tests it is of; of a raw program, those that are compared with it.
    pub(crate) tests: Vec<String>,
    /// Each value: the name of its row, and its size.
    pub(crate) values: Vec<(String, u64)>,
    /// The round, from 1.
    pub(crate) round: usize,
    /// What happened, with what was printed.
    pub(crate) reason: String,
    /// Whether the machine was too busy, and nothing else is wrong: another round makes up for it.
    pub(crate) busy: bool,
    /// Whether a value of it was measured in no other round either.
    pub(crate) missing: bool,
}

/// A transport or a tool that this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    /// Its name in tables.
    pub(crate) what: String,
    /// What is missing, and what brings it.
    pub(crate) reason: String,
}

/// One measured value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    /// Name of the test, or of the raw program.
    pub(crate) test: String,
    /// What carried it.
    pub(crate) transport: Transport,
    /// Message size.
    pub(crate) bytes: u64,
    /// The value, in the unit of the test.
    pub(crate) value: f64,
    /// What the measurement itself says of its spread.
    pub(crate) spread: f64,
}

/// Makes the report of all that was measured.
pub(crate) fn summarise(device: &str, tests: &[&'static Test], measurements: &[Measurement]) -> Report {
    let medians = medians(measurements);
    let mut rows = Vec::new();
    for test in tests {
        for bytes in sizes(&medians, test) {
            let raw = raw(&medians, test, bytes);
            for transport in transport::ALL {
                let found = match transport {
                    Transport::Raw => raw,
                    _ => medians.get(&(test.name, transport, bytes)).copied(),
                };
                if let Some(found) = found {
                    rows.push(row(test, test.name, transport, bytes, found, raw.map(|raw| raw.value)));
                }
            }
        }
    }
    rows.extend(raw_rows(tests, &medians));
    Report {
        device: device.to_owned(),
        rows,
        instructions: Vec::new(),
        events: None,
        failures: Vec::new(),
        left_out: Vec::new(),
    }
}

/// Where the instructions of a message of 8 B go, over each transport, the largest part of a transport first.
pub(crate) fn parts(counted: &BTreeMap<Count, Counted>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (count, counted) in counted {
        let transport = count.transport;
        if *count != Count::of_short_blocking(transport) {
            continue;
        }
        let mut objects: Vec<&OfObject> = counted.objects.iter().collect();
        objects.sort_by(|a, b| b.per_message.total_cmp(&a.per_message));
        parts.extend(objects.into_iter().map(|object| Part {
            transport: transport.name().to_owned(),
            object: object.object.clone(),
            adapter: object.adapter,
            instructions: rounded(object.per_message),
        }));
    }
    parts
}

impl Report {
    /// The row of a test, transport and size.
    pub(crate) fn row(&self, test: &str, transport: Transport, bytes: u64) -> Option<&Row> {
        self.rows.iter().find(|row| row.test == test && row.transport == transport.name() && row.bytes == bytes)
    }

    /// Adds what could not be measured, and whether other rounds made up for it.
    pub(crate) fn lacks(&mut self, failures: &[Failure], measured: &[Measurement]) {
        let has = |failure: &Failure, (name, bytes): &(String, u64)| {
            let of = |one: &&Measurement| one.transport.name() == failure.transport && one.test == *name;
            measured.iter().filter(of).any(|one| one.bytes == *bytes)
        };
        let judged = |failure: &Failure| Failure {
            missing: failure.values.iter().any(|value| !has(failure, value)),
            ..failure.clone()
        };
        self.failures = failures.iter().map(judged).collect();
    }

    /// Whether all that was tried was measured, and nothing failed but for a machine that was busy for a time.
    pub(crate) fn is_complete(&self) -> bool {
        self.failures.iter().all(|failure| failure.busy && !failure.missing)
    }

    /// The failures of a test.
    fn failed(&self, test: &str) -> impl Iterator<Item = &Failure> {
        self.failures.iter().filter(move |failure| failure.missing && failure.tests.iter().any(|name| name == test))
    }

    /// The sizes a test was to be measured with, ascending.
    pub(crate) fn sizes(&self, test: &str) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.rows.iter().filter(|row| row.test == test).map(|row| row.bytes).collect();
        let of_test = |name: &str| name == test || catalogue::test(test).is_some_and(|test| test.raw.contains(&name));
        let values = self.failed(test).flat_map(|failure| &failure.values).filter(|(name, _)| of_test(name));
        sizes.extend(values.map(|(_, bytes)| *bytes));
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The transports a test was to be measured over, in the order of tables.
    pub(crate) fn transports(&self, test: &str) -> Vec<Transport> {
        let measured = |name: &str| self.rows.iter().any(|row| row.test == test && row.transport == name);
        let failed = |name: &str| self.failed(test).any(|failure| failure.transport == name);
        let tried = |transport: &Transport| measured(transport.name()) || failed(transport.name());
        transport::ALL.into_iter().filter(tried).collect()
    }

    /// Whether a test has a value.
    pub(crate) fn has_rows(&self, test: &str) -> bool {
        self.rows.iter().any(|row| row.test == test)
    }

    /// What a test gives over a transport, over what it gives over another.
    pub(crate) fn ratio(&self, test: &str, of: Transport, to: Transport, bytes: u64) -> Option<f64> {
        let value = |transport| Some(self.row(test, transport, bytes)?.value).filter(|value| *value > 0.0);
        Some(value(of)? / value(to)?)
    }

    /// Which raw program a test's raw row comes from.
    pub(crate) fn raw_program(&self, test: &Test, bytes: u64) -> Option<&'static str> {
        let value = |program: &str| Some(self.row(program, Transport::Raw, bytes)?.value);
        let measured = test.raw.iter().filter_map(|program| Some((*program, value(program)?)));
        test.metric.better(measured).map(|(program, _)| program)
    }
}

#[derive(Clone, Copy)]
struct Found {
    value: f64,
    spread: f64,
}

type Medians<'a> = BTreeMap<(&'a str, Transport, u64), Found>;

fn medians(measurements: &[Measurement]) -> Medians<'_> {
    let mut rounds: BTreeMap<(&str, Transport, u64), Vec<&Measurement>> = BTreeMap::new();
    for measurement in measurements {
        let key = (measurement.test.as_str(), measurement.transport, measurement.bytes);
        rounds.entry(key).or_default().push(measurement);
    }
    rounds.into_iter().map(|(key, rounds)| (key, over_rounds(&rounds))).collect()
}

fn over_rounds(rounds: &[&Measurement]) -> Found {
    let mut values: Vec<f64> = rounds.iter().map(|measurement| measurement.value).collect();
    values.sort_by(f64::total_cmp);
    let spread = match rounds {
        [only] => only.spread,
        _ => quantile(&values, 0.75) - quantile(&values, 0.25),
    };
    Found { value: quantile(&values, 0.5), spread }
}

/// Of ascending values, at least one, the quantile `at` in 0..=1, interpolated between neighbours.
#[must_use]
pub fn quantile(ascending: &[f64], at: f64) -> f64 {
    let position = at * (ascending.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    ascending[below] + (ascending[above] - ascending[below]) * (position - position.floor())
}

fn sizes(medians: &Medians, test: &Test) -> Vec<u64> {
    let of_test = |name: &str| name == test.name || test.raw.contains(&name);
    let mut sizes: Vec<u64> = medians.keys().filter(|key| of_test(key.0)).map(|key| key.2).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The better of the raw programs; of a test that has none, its own raw value.
fn raw(medians: &Medians, test: &Test, bytes: u64) -> Option<Found> {
    if test.raw.is_empty() {
        return medians.get(&(test.name, Transport::Raw, bytes)).copied();
    }
    let found = test.raw.iter().filter_map(|program| medians.get(&(*program, Transport::Raw, bytes)).copied());
    test.metric.better(found.map(|found| (found, found.value))).map(|(found, _)| found)
}

fn row(test: &Test, name: &str, transport: Transport, bytes: u64, found: Found, raw: Option<f64>) -> Row {
    Row {
        test: name.to_owned(),
        transport: transport.name().to_owned(),
        bytes,
        metric: test.metric.name().to_owned(),
        unit: test.metric.unit().to_owned(),
        value: rounded(found.value),
        spread: rounded(found.spread),
        ratio_to_raw: raw.filter(|raw| *raw > 0.0).map(|raw| rounded(found.value / raw)),
    }
}

fn raw_rows(tests: &[&'static Test], medians: &Medians) -> Vec<Row> {
    let mut rows = Vec::new();
    for program in catalogue::raw_programs(tests) {
        let Some(test) = tests.iter().find(|test| test.raw.contains(&program)) else { continue };
        for ((name, transport, bytes), found) in medians {
            if *name == program && *transport == Transport::Raw {
                rows.push(row(test, program, Transport::Raw, *bytes, *found, None));
            }
        }
    }
    rows
}

/// Six significant digits: more than any of the measurements has.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::table::with_spread;
    use super::*;

    pub(crate) fn measured(test: &str, transport: Transport, bytes: u64, value: f64) -> Measurement {
        Measurement { test: test.to_owned(), transport, bytes, value, spread: 0.5 }
    }

    #[test]
    fn a_value_is_the_median_over_the_rounds_and_its_spread_their_interquartile_range() {
        let rounds = [10.0, 50.0, 20.0, 30.0, 40.0].map(|value| measured("latency", Transport::Ibex, 8, value));
        let report = summarise("rxe0", &[catalogue::test("latency").unwrap()], &rounds);
        assert_eq!(with_spread(report.rows.first()), "30.0 ±20.0");
        assert_eq!(report.rows[0].ratio_to_raw, None);
    }

    #[test]
    fn one_round_keeps_the_spread_it_was_measured_with() {
        let report =
            summarise("rxe0", &[catalogue::test("latency").unwrap()], &[measured("latency", Transport::Tcp, 8, 1.0)]);
        assert_eq!(with_spread(report.rows.first()), "1.00 ±0.50");
    }

    #[test]
    fn a_bandwidth_is_compared_with_the_better_raw_program() {
        let measurements = [
            measured("bandwidth", Transport::Ibex, 64, 90.0),
            measured("ib_write_bw", Transport::Raw, 64, 80.0),
            measured("ib_read_bw", Transport::Raw, 64, 100.0),
        ];
        let test = catalogue::test("bandwidth").unwrap();
        let report = summarise("rxe0", &[test], &measurements);
        assert_eq!(report.row("bandwidth", Transport::Ibex, 64).unwrap().ratio_to_raw, Some(0.9));
        assert_eq!(with_spread(report.row("bandwidth", Transport::Raw, 64)), "100 ±1");
        assert_eq!(report.raw_program(test, 64), Some("ib_read_bw"));
        assert_eq!(report.row("ib_write_bw", Transport::Raw, 64).unwrap().ratio_to_raw, None);
    }

    #[test]
    fn a_latency_is_compared_with_the_smaller_raw_value() {
        let measurements =
            [measured("latency", Transport::Ibex, 8, 55.0), measured("ib_send_lat", Transport::Raw, 8, 50.0)];
        let report = summarise("rxe0", &[catalogue::test("latency").unwrap()], &measurements);
        assert_eq!(report.row("latency", Transport::Ibex, 8).unwrap().ratio_to_raw, Some(1.1));
        assert_eq!(report.row("latency", Transport::Raw, 8).unwrap().ratio_to_raw, Some(1.0));
    }

    #[test]
    fn the_json_has_the_documented_fields_and_no_others() {
        let report =
            summarise("rxe0", &[catalogue::test("latency").unwrap()], &[measured("latency", Transport::Ibex, 8, 2.0)]);
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"device":"rxe0","rows":[{"test":"latency","transport":"ibex","bytes":8,"metric":"half_round_trip","unit":"us","value":2.0,"spread":0.5,"ratio_to_raw":null}],"instructions":[]}"#
        );
    }

    fn failed(transport: &str, values: &[(&str, u64)], busy: bool) -> Failure {
        Failure {
            transport: transport.to_owned(),
            tests: vec!["latency".to_owned()],
            values: values.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect(),
            round: 1,
            reason: "it fell over".to_owned(),
            busy,
            missing: false,
        }
    }

    #[test]
    fn what_could_not_be_measured_keeps_its_column_and_its_line_and_another_round_makes_up_for_a_busy_one() {
        let measurements = [measured("latency", Transport::Ibex, 8, 2.0)];
        let mut report = summarise("rxe0", &[catalogue::test("latency").unwrap()], &measurements);
        assert!(report.is_complete());
        report.lacks(&[failed("ibex", &[("latency", 8)], true)], &measurements);
        assert!(report.is_complete() && report.sizes("latency") == [8]);
        report.lacks(&[failed("ibex", &[("latency", 8)], false)], &measurements);
        assert!(!report.is_complete() && !report.failures[0].missing);
        let failures = [failed("raw", &[("ib_send_lat", 8)], true), failed("tcp", &[("latency", 64)], false)];
        report.lacks(&failures, &measurements);
        assert!(!report.is_complete());
        assert_eq!(report.transports("latency"), [Transport::Ibex, Transport::Raw, Transport::Tcp]);
        assert_eq!(report.sizes("latency"), [8, 64]);
        assert!(!report.has_rows("bandwidth") && report.transports("bandwidth").is_empty());
    }

    #[test]
    fn a_test_without_raw_programs_has_its_own_raw_value() {
        let measurements = [
            measured("host_bandwidth", Transport::Raw, 1 << 20, 90.0),
            measured("host_bandwidth", Transport::Memory, 1 << 20, 100.0),
        ];
        let report = summarise("softhca0", &[catalogue::test("host_bandwidth").unwrap()], &measurements);
        assert_eq!(report.transports("host_bandwidth"), [Transport::Raw, Transport::Memory]);
        assert_eq!(report.ratio("host_bandwidth", Transport::Raw, Transport::Memory, 1 << 20), Some(0.9));
        assert_eq!(report.ratio("host_bandwidth", Transport::Ibex, Transport::Memory, 1 << 20), None);
    }
}

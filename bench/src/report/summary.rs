// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the rows of the report from the measurements of all rounds. A value and its spread are those of its rounds
//! ([`crate::spread`]). The raw row of a test is the better of the raw programs with which it is compared. Grade:
//! setup. Tests: below.

use super::{Report, Row};
use crate::catalogue::{Test, Transport, transport};
use crate::numbers::rounded;
use crate::programs::Measurement;
use crate::spread::{self, Cell, Rounds};
use std::collections::BTreeMap;

pub(crate) fn summarise(device: &str, tests: &[&'static Test], measurements: &[Measurement]) -> Report {
    let medians = spread::cells(measurements);
    let mut rows = Vec::new();
    for test in tests {
        for bytes in sizes(&medians, test) {
            for transport in transport::all() {
                let found = match transport {
                    Transport::Raw => raw(&medians, test, bytes),
                    _ => medians.get(&(test.name, transport, bytes)).copied(),
                };
                rows.extend(found.map(|found| row(test, transport, bytes, found)));
            }
        }
    }
    Report { device: device.to_owned(), rows, tests: tests.to_vec(), ..Report::default() }
}

type Medians<'a> = BTreeMap<Cell<'a>, Rounds>;

fn sizes(medians: &Medians, test: &Test) -> Vec<u64> {
    let of_test = |name: &str| name == test.name || test.raw.contains(&name);
    let mut sizes: Vec<u64> = medians.keys().filter(|key| of_test(key.0)).map(|key| key.2).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns the better of the raw programs; for a test without any, its own raw value.
fn raw(medians: &Medians, test: &Test, bytes: u64) -> Option<Rounds> {
    if test.raw.is_empty() {
        return medians.get(&(test.name, Transport::Raw, bytes)).copied();
    }
    let found = test.raw.iter().filter_map(|program| medians.get(&(*program, Transport::Raw, bytes)).copied());
    test.metric.better(found.map(|found| (found, found.value))).map(|(found, _)| found)
}

fn row(test: &Test, transport: Transport, bytes: u64, found: Rounds) -> Row {
    Row {
        test: test.name.to_owned(),
        transport: transport.name().to_owned(),
        bytes,
        unit: test.metric.unit().to_owned(),
        value: rounded(found.value),
        spread: rounded(found.spread),
        unsteady: found.is_unsteady(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::numbers;
    use crate::programs::tests::measured;
    use crate::run::found::Failure;

    fn with_spread(row: Option<&Row>) -> String {
        row.map_or_else(String::new, |row| numbers::with_spread(row.value, row.spread))
    }

    fn summary(test: &str, measurements: &[Measurement]) -> Report {
        summarise("rxe0", &[catalogue::test(test).unwrap()], measurements)
    }

    #[test]
    fn a_bandwidth_is_compared_with_the_better_raw_program_and_a_latency_with_the_smaller_value() {
        let measurements = [
            measured("bandwidth", Transport::Ibex, 64, 90.0),
            measured("ib_write_bw", Transport::Raw, 64, 80.0),
            measured("ib_read_bw", Transport::Raw, 64, 100.0),
        ];
        let report = summary("bandwidth", &measurements);
        let ratio = |report: &Report, test, bytes| report.ratio(test, Transport::Ibex, Transport::Raw, bytes);
        assert_eq!(ratio(&report, "bandwidth", 64), Some(0.9));
        assert_eq!(with_spread(report.row("bandwidth", Transport::Raw, 64)), "100 ±1");
        let measurements =
            [measured("latency", Transport::Ibex, 8, 55.0), measured("ib_send_lat", Transport::Raw, 8, 50.0)];
        assert_eq!(ratio(&summary("latency", &measurements), "latency", 8), Some(1.1));
    }

    #[test]
    fn the_json_has_the_documented_fields_and_no_others() {
        let report = summary("latency", &[measured("latency", Transport::Ibex, 8, 2.0)]);
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"device":"rxe0","rows":[{"test":"latency","transport":"ibex","bytes":8,"unit":"us","value":2.0,"spread":0.5}],"instructions":[]}"#
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
    fn a_missing_value_keeps_its_column_and_row_and_another_round_replaces_a_busy_one() {
        let measurements = [measured("latency", Transport::Ibex, 8, 2.0)];
        let mut report = summary("latency", &measurements);
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
        assert!(report.sizes("bandwidth").is_empty() && report.transports("bandwidth").is_empty());
    }

    #[test]
    fn a_test_without_raw_programs_has_its_own_raw_value() {
        let measurements = [
            measured("host_bandwidth", Transport::Raw, 1 << 20, 90.0),
            measured("host_bandwidth", Transport::Memory, 1 << 20, 100.0),
        ];
        let report = summary("host_bandwidth", &measurements);
        assert_eq!(report.transports("host_bandwidth"), [Transport::Raw, Transport::Memory]);
        assert_eq!(report.ratio("host_bandwidth", Transport::Raw, Transport::Memory, 1 << 20), Some(0.9));
        assert_eq!(report.ratio("host_bandwidth", Transport::Ibex, Transport::Memory, 1 << 20), None);
    }
}

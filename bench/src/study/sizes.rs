// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency and bandwidth by the size of a message, without a tool and with a tool that does nothing (Keller et al.
//! 2006, table 2 and figure 2). Called by [`super`]. Grade: setup. Tests: below.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::ways::{self, InWay, Way};
use crate::catalogue::{self, Test, Transport};
use crate::nodes::{Nodes, Where, job};
use crate::programs::Measurement;
use crate::programs::mpi;

/// In the order of the paper's table.
static WAYS: [Way; 4] = [
    Way::without_events(Transport::Ibex),
    Way::new(ways::NO_TOOL, Transport::Ibex),
    Way::new(ways::PERUSE, Transport::Peruse),
    Way::new(ways::MPI_T, Transport::MpiT),
];

/// Bandwidth leaves out the empty message.
const SIZES: [u64; 6] = [0, 8, 512, 4096, 65536, 1 << 20];
const TESTS: [&str; 2] = ["latency", "bandwidth"];

#[derive(Clone, Debug, Serialize)]
pub(super) struct Sizes {
    pub(super) rounds: usize,
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) test: &'static str,
    pub(super) unit: &'static str,
    pub(super) bytes: u64,
    pub(super) ways: Vec<InWay>,
}

pub(super) fn measured(
    nodes: &dyn Nodes,
    place: Where,
    (rounds, seconds): (usize, f64),
    has_tool: bool,
) -> Result<Sizes> {
    let ways = ways::possible(&WAYS, place, has_tool);
    let found = ways::in_turns(&ways, rounds, |way| once(nodes, way.place(place), way.transport, seconds))?;
    Ok(Sizes { rounds, rows: rows(&ways, &found) })
}

/// Runs `ibex_mpi_bench` in a way: these tests with these sizes, each for `seconds`.
pub(super) fn bench(
    nodes: &dyn Nodes,
    place: Where,
    transport: Transport,
    (tests, sizes): (&[&'static Test], &[u64]),
    seconds: Option<f64>,
) -> Result<Vec<Measurement>> {
    let mut argv = mpi::command(place, transport, tests, sizes)?;
    argv.extend(seconds.into_iter().flat_map(|seconds| ["--seconds-per-row".to_owned(), seconds.to_string()]));
    let outcome = job::run(nodes, &mpi::job(place, transport, argv))?.checked()?;
    let lines = outcome.stdout.lines().filter_map(|line| mpi::measurement(line, transport, tests).transpose());
    lines.collect()
}

fn once(nodes: &dyn Nodes, place: Where, transport: Transport, seconds: f64) -> Result<Vec<Measurement>> {
    let measured = bench(nodes, place, transport, (&tests(), &SIZES), Some(seconds))?;
    for (test, bytes) in wanted() {
        ensure!(
            measured.iter().any(|one| one.test == test.name && one.bytes == bytes),
            "ibex_mpi_bench measured no {} of {bytes} bytes",
            test.name
        );
    }
    Ok(measured)
}

fn tests() -> Vec<&'static Test> {
    TESTS.into_iter().filter_map(catalogue::test).collect()
}

fn wanted() -> impl Iterator<Item = (&'static Test, u64)> {
    let of =
        |test: &'static Test| SIZES.into_iter().filter(|bytes| *bytes >= test.sizes.0).map(move |bytes| (test, bytes));
    tests().into_iter().flat_map(of)
}

fn rows(ways: &[Way], found: &[Vec<Vec<Measurement>>]) -> Vec<Row> {
    let row = |(test, bytes): (&'static Test, u64)| {
        let is_of_row = |one: &&Measurement| one.test == test.name && one.bytes == bytes;
        let values =
            found.iter().map(|rounds| rounds.iter().flatten().filter(is_of_row).map(|one| one.value).collect());
        let ways = ways::compared(ways, values, ways::NO_EVENTS);
        Row { test: test.name, unit: test.metric.unit(), bytes, ways }
    };
    wanted().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::measured;

    #[test]
    fn each_test_has_a_row_of_each_size_with_the_values_of_all_rounds() {
        let round = |value: f64| {
            let of = |(test, bytes): (&'static Test, u64)| measured(test.name, Transport::Ibex, bytes, value);
            wanted().map(of).collect::<Vec<_>>()
        };
        let found = [1.0, 2.0, 3.0, 4.0].map(|value| vec![round(value), round(2.0 * value)]);
        let rows = rows(&WAYS, &found);
        let of = |name: &str| rows.iter().filter(|row| row.test == name).map(|row| row.bytes).collect::<Vec<_>>();
        assert_eq!((of("latency"), of("bandwidth")), (SIZES.to_vec(), SIZES[1..].to_vec()));
        let last = &rows.last().unwrap().ways;
        assert_eq!((last[1].value.median, last[1].over_first), (3.0, Some(2.0)));
        assert_eq!(last.iter().map(|way| way.value.count).collect::<Vec<_>>(), [2; 4]);
    }
}

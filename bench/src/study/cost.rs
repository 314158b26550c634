// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of events: the latency of an empty message over ibex built without events, without a tool, and with a tool
//! whose callbacks do nothing; and the instructions of a message of 8 bytes, which are exact. A latency is the median
//! of many messages; the study has the distribution over the rounds. Called by [`super`]. Grade: setup. Tests: below.

use anyhow::{Context, Result};
use serde::Serialize;

use super::distribution::Distribution;
use super::sizes;
use super::ways::{self, Way};
use crate::catalogue::{self, Kind, Test, Transport};
use crate::nodes::{Nodes, Where, is_in_path, job};
use crate::programs::instructions::{self, Count};

/// In the order of the paper's table.
static WAYS: [Way; 7] = [
    Way::without_events(Transport::Ibex),
    Way::new(ways::NO_TOOL, Transport::Ibex),
    Way::new(ways::PERUSE, Transport::Peruse),
    Way::new(ways::MPI_T, Transport::MpiT),
    Way::without_events(Transport::WithoutEvents),
    Way::new(ways::NO_TOOL, Transport::Unregistered),
    Way::new(ways::MPI_T, Transport::Callbacks),
];

#[derive(Clone, Debug, Serialize)]
pub(super) struct Cost {
    pub(super) rounds: usize,
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) face: &'static str,
    pub(super) way: &'static str,
    /// Half a round trip of an empty message, microseconds.
    pub(super) latency: Distribution,
    /// Median, divided by that of the face's first way.
    pub(super) over_first: Option<f64>,
    /// Instructions of an `MPI_Send` and an `MPI_Recv` of 8 bytes, without the adapter's.
    pub(super) instructions: Option<f64>,
}

pub(super) fn measured(nodes: &dyn Nodes, place: Where, rounds: usize, counts: bool, has_tool: bool) -> Result<Cost> {
    let ways = ways::possible(&WAYS, place, has_tool);
    let found = ways::in_turns(&ways, rounds, |way| latency(nodes, way.place(place), way.transport))?;
    let is_counted = counts && place.kind == Kind::SoftHca && is_in_path("valgrind");
    let mut counted = Vec::new();
    for way in &ways {
        let count = || instructions(nodes, way.place(place), way.transport);
        counted.push(is_counted.then(count).transpose()?);
    }
    Ok(Cost { rounds, rows: rows(&ways, found, &counted) })
}

fn rows(ways: &[Way], found: Vec<Vec<f64>>, counted: &[Option<f64>]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for ((way, values), instructions) in ways.iter().zip(found).zip(counted) {
        let Some(latency) = Distribution::of(values) else { continue };
        let face = if way.transport.is_pml() { "PML" } else { "BTL under ob1" };
        let first = rows.iter().find(|row| row.face == face && row.way == ways::NO_EVENTS);
        let over_first = first.map(|first| latency.median / first.latency.median);
        rows.push(Row { face, way: way.name, latency, over_first, instructions: *instructions });
    }
    rows
}

fn latency(nodes: &dyn Nodes, place: Where, transport: Transport) -> Result<f64> {
    let tests: Vec<&Test> = catalogue::test("latency").into_iter().collect();
    let measured = sizes::bench(nodes, place, transport, (&tests, &[0]), None)?;
    Ok(measured.first().context("ibex_mpi_bench measured nothing")?.value)
}

fn instructions(nodes: &dyn Nodes, place: Where, transport: Transport) -> Result<f64> {
    let counted = instructions::counted(place, Count::of_short_blocking(transport), |job| job::run(nodes, job))?;
    Ok(instructions::of_mpi(&counted.objects))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_compared_with_the_build_without_events_of_its_own_face() {
        let found = [1.0, 1.1, 1.2, 1.3, 2.0, 2.0, 3.0].map(|value| vec![value, value]).into();
        let rows = rows(&WAYS, found, &[None; 7]);
        let ratios: Vec<Option<f64>> = rows.iter().map(|row| row.over_first).collect();
        assert_eq!((ratios[0], ratios[4]), (None, None));
        assert!((ratios[2].unwrap() - 1.2).abs() < 1e-9 && (ratios[6].unwrap() - 1.5).abs() < 1e-9);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What events cost: the latency of a message of no bytes, built without events, with nobody listening, and with a tool
//! whose callbacks do nothing; and the instructions of a message of 8 bytes, which are exact.
//!
//! The ways take turns within each round. Their latencies are medians of many messages each; what is shown is how these
//! lie over the rounds. Grade: setup. Called by [`super`]. Tests: at the end of this file.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

use super::distribution::Distribution;
use crate::catalogue::device_kind::Kind;
use crate::catalogue::transport::Transport;
use crate::catalogue::{self, Test};
use crate::nodes::here::is_in_path;
use crate::nodes::job::{self, Job, Nodes};
use crate::nodes::place::Where;
use crate::programs::event_counts::Counts;
use crate::programs::instructions::{self, Count};
use crate::programs::mpi;

/// A way to listen to events, or not to.
#[derive(Clone, Copy, Debug)]
struct Way {
    face: &'static str,
    name: &'static str,
    transport: Transport,
    is_built_without: bool,
}

const PML: &str = "PML";
const BTL: &str = "BTL under ob1";

const fn way(face: &'static str, name: &'static str, transport: Transport) -> Way {
    Way { face, name, transport, is_built_without: false }
}

/// In the order of the paper's table; the first of a face is what the others are compared with.
static WAYS: [Way; 7] = [
    Way { is_built_without: true, ..way(PML, "no events", Transport::Ibex) },
    way(PML, "events, no callbacks", Transport::Ibex),
    way(PML, "PERUSE, empty callbacks", Transport::Peruse),
    way(PML, "MPI_T, empty callbacks", Transport::MpiT),
    Way { is_built_without: true, ..way(BTL, "no events", Transport::WithoutEvents) },
    way(BTL, "events, no callbacks", Transport::Unregistered),
    way(BTL, "MPI_T, empty callbacks", Transport::Callbacks),
];

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cost {
    pub(super) rounds: usize,
    pub(super) rows: Vec<Row>,
}

/// A way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) face: &'static str,
    pub(super) way: &'static str,
    /// Microseconds, half a round trip of a message of no bytes.
    pub(super) latency: Distribution,
    /// The median over that of the first way of the face.
    pub(super) over_first: Option<f64>,
    /// Of an `MPI_Send` and an `MPI_Recv` of 8 bytes, those of the adapter left out.
    pub(super) instructions: Option<f64>,
}

impl Way {
    fn can_run(self, place: Where, has_tool: bool) -> bool {
        let has_callbacks = matches!(self.transport, Transport::Peruse | Transport::MpiT | Transport::Callbacks);
        (place.without_events.is_some() || !self.is_built_without) && (has_tool || !has_callbacks)
    }

    /// Where it runs: its own build.
    fn place(self, place: Where<'_>) -> Where<'_> {
        if self.is_built_without { Where { components: place.without_events, ..place } } else { place }
    }
}

/// Measures in so many rounds.
///
/// # Errors
/// A program that fails, or cannot be run.
pub(super) fn measured(nodes: &dyn Nodes, place: Where, rounds: usize, counts: bool, has_tool: bool) -> Result<Cost> {
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| way.can_run(place, has_tool)).collect();
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    for round in 0..rounds {
        // What comes first in a round may be at an advantage: each does in its turn.
        for turn in 0..ways.len() {
            let at = (round + turn) % ways.len();
            found[at].push(latency(nodes, ways[at].place(place), ways[at].transport)?);
        }
    }
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
        let first = rows.iter().find(|row| row.face == way.face && row.way == WAYS[0].name);
        let over_first = first.map(|first| latency.median / first.latency.median);
        let (face, instructions) = (way.face, *instructions);
        rows.push(Row { face, way: way.name, latency, over_first, instructions });
    }
    rows
}

fn latency(nodes: &dyn Nodes, place: Where, transport: Transport) -> Result<f64> {
    let tests: Vec<&Test> = catalogue::test("latency").into_iter().collect();
    let mut job = Job::new(mpi::command(place, transport, &tests, &[0])?);
    job.env = mpi::environment(place, transport);
    let outcome = job::run(nodes, &job)?.checked()?;
    let mut lines = outcome.stdout.lines().map(|line| mpi::measurement(line, transport, &tests));
    let measured = lines.find_map(Result::transpose).context("ibex_mpi_bench measured nothing")??;
    Ok(measured.value)
}

fn instructions(nodes: &dyn Nodes, place: Where, transport: Transport) -> Result<f64> {
    let (argv, file) = instructions::command(place, Count::of_short_blocking(transport))?;
    let mut job = Job::new(argv);
    job.env = mpi::environment(place, transport);
    let outcome = job::run(nodes, &job)?.checked()?;
    let counted = instructions::read(&file, Counts::of_all(&outcome.stdout))?;
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    Ok(instructions::of_mpi(&counted.objects))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::place::tests::place;

    #[test]
    fn a_way_is_compared_with_the_build_without_events_of_its_own_face() {
        let found = [1.0, 1.1, 1.2, 1.3, 2.0, 2.0, 3.0].map(|value| vec![value, value]).into();
        let rows = rows(&WAYS, found, &[None; 7]);
        let ratios: Vec<Option<f64>> = rows.iter().map(|row| row.over_first).collect();
        assert_eq!((ratios[0], ratios[4]), (None, None));
        assert!((ratios[2].unwrap() - 1.2).abs() < 1e-9 && (ratios[6].unwrap() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_there_is_not_measured_and_each_build_has_its_own_components() {
        let here = Where { without_events: None, ..place() };
        let ways = |place, has_tool| WAYS.iter().filter(|way| way.can_run(place, has_tool)).count();
        assert_eq!((ways(place(), true), ways(here, true), ways(here, false)), (7, 5, 2));
        let environment = format!("{:?}", mpi::environment(WAYS[0].place(place()), WAYS[0].transport));
        assert!(environment.contains("/t/without/"), "{environment}");
    }
}

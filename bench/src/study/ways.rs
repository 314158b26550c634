// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways in which an experiment runs ibex: built without events, without a tool, and with various tools. Runs them
//! in turns, and compares their values. Used by the experiments of [`super`]. Grade: setup. Tests: below.

use anyhow::Result;
use serde::Serialize;

use super::distribution::Distribution;
use crate::catalogue::Transport;
use crate::nodes::Where;

#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Name in `study.json` and on the page.
    pub(super) name: &'static str,
    pub(super) transport: Transport,
    /// Whether `ibex trace` runs the job.
    pub(super) is_recorded: bool,
    is_built_without: bool,
}

/// Base of the comparison, if there is a build without events.
pub(super) const NO_EVENTS: &str = "no events";
pub(super) const NO_TOOL: &str = "events, no tool";
pub(super) const NO_CALLBACKS: &str = "a tool, no callbacks";
pub(super) const PERUSE: &str = "PERUSE, empty callbacks";
pub(super) const MPI_T: &str = "MPI_T, empty callbacks";

impl Way {
    pub(super) const fn new(name: &'static str, transport: Transport) -> Self {
        Self { name, transport, is_recorded: false, is_built_without: false }
    }

    pub(super) const fn without_events(transport: Transport) -> Self {
        Self { is_built_without: true, ..Self::new(NO_EVENTS, transport) }
    }

    /// Recorded by `ibex trace`, with the events that it records by default.
    pub(super) const fn recorded(transport: Transport) -> Self {
        Self { is_recorded: true, ..Self::new("recorded", transport) }
    }

    /// Returns the place with the way's own build.
    pub(super) fn place(self, place: Where<'_>) -> Where<'_> {
        if self.is_built_without { Where { components: place.without_events, ..place } } else { place }
    }
}

pub(super) fn possible(ways: &[Way], place: Where, has_tool: bool) -> Vec<Way> {
    let is_possible = |way: &Way| {
        (place.without_events.is_some() || !way.is_built_without) && (has_tool || !way.transport.has_every_event())
    };
    ways.iter().copied().filter(is_possible).collect()
}

/// Calls `run` for each way in each round; returns the results by way. The first in a round may be at an advantage, so
/// each is first in its turn.
pub(super) fn in_turns<T>(ways: &[Way], rounds: usize, mut run: impl FnMut(Way) -> Result<T>) -> Result<Vec<Vec<T>>> {
    let mut found: Vec<Vec<T>> = ways.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let at = (round + turn) % ways.len();
            found[at].push(run(ways[at])?);
        }
    }
    Ok(found)
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct InWay {
    pub(super) way: &'static str,
    pub(super) value: Distribution,
    /// Its median, divided by that of the base.
    pub(super) over_first: Option<f64>,
}

/// Compares the values of each way with those of the way called `first`; leaves out a way without values.
pub(super) fn compared(ways: &[Way], values: impl IntoIterator<Item = Vec<f64>>, first: &str) -> Vec<InWay> {
    let found = ways.iter().zip(values).filter_map(|(way, values)| Some((way.name, Distribution::of(values)?)));
    let found: Vec<(&'static str, Distribution)> = found.collect();
    let base = found.iter().find(|(way, _)| *way == first).map(|(_, of)| of.median);
    let row = |(way, value): (&'static str, Distribution)| {
        let over_first = base.filter(|_| way != first).map(|base| value.median / base);
        InWay { way, value, over_first }
    };
    found.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    use crate::nodes::place::tests::place;
    use crate::programs::mpi;

    const WAYS: [Way; 3] =
        [Way::without_events(Transport::Ibex), Way::new(NO_TOOL, Transport::Ibex), Way::new(PERUSE, Transport::Peruse)];

    #[test]
    fn missing_ways_are_left_out_and_each_build_has_its_own_components() {
        let here = Where { without_events: None, ..place() };
        let ways = |place, has_tool| possible(&WAYS, place, has_tool).len();
        assert_eq!((ways(place(), true), ways(here, true), ways(here, false)), (3, 2, 1));
        let environment = format!("{:?}", mpi::environment(WAYS[0].place(place()), WAYS[0].transport));
        assert!(environment.contains("/t/without/"), "{environment}");
    }

    #[test]
    fn each_way_comes_first_in_a_round_of_its_own() {
        let mut order = Vec::new();
        let found = in_turns(&WAYS, 3, |way| {
            order.push(way.name);
            Ok(order.len())
        });
        let [a, b, c] = WAYS.map(|way| way.name);
        assert_eq!(found.unwrap(), [[1, 6, 8], [2, 4, 9], [3, 5, 7]]);
        assert_eq!(order, [a, b, c, b, c, a, c, a, b]);
        assert!(in_turns(&WAYS, 1, |way| if way.name == b { bail!("it failed") } else { Ok(()) }).is_err());
    }

    #[test]
    fn ways_are_compared_by_their_medians_with_the_first_if_that_could_run() {
        let values = || vec![vec![2.0, 1.0, 9.0], vec![2.0, 2.0], vec![3.0]];
        let over = |found: &[InWay]| found.iter().map(|way| way.over_first).collect::<Vec<_>>();
        assert_eq!(over(&compared(&WAYS, values(), NO_EVENTS)), [None, Some(1.0), Some(1.5)]);
        let found = compared(&WAYS[1..], values().into_iter().skip(1), NO_EVENTS);
        assert_eq!(found.iter().map(|way| way.way).collect::<Vec<_>>(), [NO_TOOL, PERUSE]);
        assert_eq!(over(&found), [None, None]);
        assert_eq!(compared(&WAYS, [vec![1.0], Vec::new(), vec![2.0]], NO_EVENTS).len(), 2);
    }
}

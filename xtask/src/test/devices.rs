// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of `cargo xtask test` that need a device: which tests run on which device, and the runs. The tests are the
//! target `device` of hw-tests, which gets its selection by variables. It runs one test at a time and leaves about half
//! of two processors idle, so the tests on emulated adapters run beside those on soft-RoCE and with Open MPI 5. Called
//! by [`super`]. Grade: setup. Tests: below.

use super::Arguments;
use super::tally::{Lane, Tally};
use crate::build::{self, Profile, Tests};
use crate::mpis::{INTEL, MPICH, OPEN_MPI};
use crate::series;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use hw_tests::device::SOFT_ROCE;
use hw_tests::openmpi::Series;
use hw_tests::{Selection, TESTS_VARIABLE};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Devices for tests unless `--device` names one: an emulated mlx5, the least adapter that ibex accepts, a kernel's.
pub(super) const DEVICES: [&str; 3] = ["softhca:mlx5", "softhca:minimal", SOFT_ROCE];

/// Words in the names of tests that run with Open MPI 5: events, protocols, jobs that set nothing, failures.
const ON_5: [&str; 12] = [
    "what_events_show",
    "events_",
    "MPI_T",
    "PERUSE",
    "every_send_mode",
    "random_traffic",
    "no_registration_outlives",
    "one-sided_",
    "a_job_that_sets_nothing",
    "a_job_which_sets_nothing",
    "a_rank_that_ends_by",
    "ibex_names_the_peer",
];

/// Tests on soft-RoCE with `--mpi` and no `--device`: jobs in one guest and between two, and behaviour in which a
/// kernel's device differs from an emulated one.
const ON_SOFT_ROCE_WITH_MPI: [&str; 8] = [
    "every_send_mode_delivers_at_every_size_on_2_ranks",
    "what_events_show_is_what_was_sent_on_2_ranks",
    "one-sided_transfers_land_where_they_should_on_2_ranks",
    "a_rank_that_ends_by_kill_during_large_traffic",
    "ibex_names_the_peer_that_died_during_small_traffic",
    "no_registration_outlives",
    "messages_cross_between_two_nodes",
    "four_ranks_on_two_nodes_agree_on_collective_results",
];

#[derive(Clone, Debug, PartialEq)]
pub(super) struct OnDevice<'a> {
    pub(super) device: &'a str,
    selection: Selection,
    /// Words, one of which a test's name has to contain; empty: all tests.
    only: Vec<&'a str>,
}

pub(super) fn runs(arguments: &Arguments) -> Vec<OnDevice<'_>> {
    if arguments.no_device {
        return Vec::new();
    }
    let only: Vec<&str> = arguments.only.iter().map(String::as_str).collect();
    let whole = |device| OnDevice { device, selection: Selection::All, only: only.clone() };
    let quick = |device| OnDevice { selection: Selection::Quick, ..whole(device) };
    let usual = |device| {
        let is_elsewhere = device == DEVICES[1] || device == DEVICES[2];
        OnDevice { selection: if is_elsewhere { Selection::DeviceDependent } else { Selection::All }, ..whole(device) }
    };
    match (arguments.device.as_deref(), arguments.mpi) {
        (Some(device), _) if !only.is_empty() => vec![whole(device)],
        (None, _) if !only.is_empty() || arguments.list => vec![whole(DEVICES[0])],
        (Some(device), _) => vec![if arguments.all { usual(device) } else { quick(device) }],
        (None, Some(_)) if arguments.all => {
            vec![whole(DEVICES[0]), OnDevice { only: ON_SOFT_ROCE_WITH_MPI.to_vec(), ..whole(SOFT_ROCE) }]
        }
        (None, None) if arguments.all => DEVICES.map(usual).to_vec(),
        (None, _) => vec![quick(DEVICES[0]), quick(SOFT_ROCE)],
    }
}

/// Paths that device tests get by variables.
type Surroundings = Vec<(&'static str, PathBuf)>;

/// Runs the device tests, as often as asked for; with `--all` with the library in release.
pub(super) fn run(
    workspace: &Workspace,
    tests: &Tests,
    arguments: &Arguments,
    runs: &[OnDevice<'_>],
    tally: &mut Tally,
) {
    let profile = if arguments.all { Profile::Release } else { Profile::Dev };
    // It has been built beside the tests under Miri already, unless only device tests run.
    if profile == Profile::Release && tally.timed("release build", || build::library(workspace)).is_none() {
        return;
    }
    let Some(program) = tally.done("the device tests are built", tests.of("hw-tests", "device")) else { return };
    let surroundings = tally.timed("C programs", || surroundings(workspace, tests, profile));
    let Some(mut surroundings) = surroundings else { return };
    surroundings.extend(stock_mpis(workspace, arguments.all || !arguments.only.is_empty(), tally));
    if arguments.list {
        let listed = command(&program, &surroundings, &runs[0]).env("IBEX_LIST", "1").status();
        tally.done("the list", listed.context("cannot start the device tests"));
        return;
    }
    let on = |runs: &[&OnDevice<'_>], tally: &mut Tally| {
        for run in runs {
            tally.name_lines(run.device);
            tally.tests(&format!("device tests on {}", run.device), &mut command(&program, &surroundings, run));
        }
    };
    let (others, first): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.device == SOFT_ROCE);
    for _ in 0..arguments.again {
        let mut lanes: Vec<Lane<'_>> = vec![Box::new(|tally| on(&first, tally))];
        if !others.is_empty() {
            lanes.push(Box::new(|tally| {
                on(&others, tally);
                if arguments.end_with_open_mpi_5() {
                    on_open_mpi_5(workspace, tally);
                }
            }));
        }
        tally.side_by_side(lanes);
    }
}

fn surroundings(workspace: &Workspace, tests: &Tests, profile: Profile) -> Result<Surroundings> {
    for folder in ["hw-tests/mpi", "hw-tests/tools", "benches/mpi", "examples"] {
        build::programs(workspace, folder)?;
    }
    build::programs_without_mpi(workspace, "hw-tests/libfabric", "-lfabric")?;
    build::preloaded_tools(workspace, "benches/tools")?;
    Ok(vec![
        ("IBEX_COMPONENTS", workspace.components()),
        ("IBEX_PROGRAMS", workspace.programs()),
        ("IBEX_COMMAND", build::command(workspace, profile)?),
        ("IBEX_ENGINE_TESTS", tests.of("hw-tests", "engine")?),
        ("SOFTHCA_COMMAND", build::softhca(workspace)),
    ])
}

/// Returns the folders of stock MPIs; reports those that cannot be had as skipped.
fn stock_mpis(workspace: &Workspace, all: bool, tally: &mut Tally) -> Surroundings {
    let started = Instant::now();
    let stocks = if all { &[MPICH, INTEL, OPEN_MPI][..] } else { &[MPICH] };
    let ready = stocks.iter().filter_map(|stock| {
        let ready = stock.for_tests(workspace);
        ready.map_err(|error| tally.skip(&format!("tests with {} of PyPI: {error:#}", stock.name))).ok()
    });
    let ready = ready.collect();
    tally.took.push(("stock MPIs".to_owned(), started.elapsed()));
    ready
}

fn command(program: &Path, surroundings: &[(&str, PathBuf)], run: &OnDevice<'_>) -> Command {
    let mut command = Command::new(program);
    command
        .env("IBEX_DEVICE", run.device)
        .env("IBEX_ONLY", run.only.join("\n"))
        .envs(surroundings.iter().map(|(variable, path)| (*variable, path)))
        .env(TESTS_VARIABLE, run.selection.as_str());
    command
}

/// Runs the tests of [`ON_5`]; skips and reports them if no Debian 13 root can be made.
fn on_open_mpi_5(workspace: &Workspace, tally: &mut Tally) {
    if !series::is_elsewhere(Some(Series::V5)).unwrap_or(false) {
        return;
    }
    let mut arguments = ["test", "--mpi", "5", "--device", DEVICES[0]].map(OsString::from).to_vec();
    arguments.extend(ON_5.iter().flat_map(|test| ["--only", test]).map(OsString::from));
    tally.name_lines("Open MPI 5");
    match series::in_debian13(workspace, &arguments) {
        Ok(mut command) => tally.tests("device tests with Open MPI 5", &mut command),
        Err(error) => tally.skip(&format!("the tests with Open MPI 5: {error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn asked(line: &str) -> Vec<(String, Selection, usize)> {
        let words = std::iter::once("test").chain(line.split_whitespace());
        let arguments = Line::parse_from(words).arguments;
        runs(&arguments).into_iter().map(|run| (run.device.to_owned(), run.selection, run.only.len())).collect()
    }

    fn run(device: &str, selection: Selection, only: usize) -> (String, Selection, usize) {
        (device.to_owned(), selection, only)
    }

    #[test]
    fn the_quick_tier_runs_on_an_emulated_adapter_and_on_soft_roce() {
        assert_eq!(asked(""), [run(DEVICES[0], Selection::Quick, 0), run(SOFT_ROCE, Selection::Quick, 0)]);
        assert_eq!(asked("--device mlx5_0"), [run("mlx5_0", Selection::Quick, 0)]);
        assert_eq!(asked("--no-device"), []);
    }

    #[test]
    fn tests_that_are_the_same_on_every_device_run_on_the_first() {
        let each = [
            (DEVICES[0], Selection::All),
            (DEVICES[1], Selection::DeviceDependent),
            (DEVICES[2], Selection::DeviceDependent),
        ];
        assert_eq!(asked("--all"), each.map(|(device, selection)| run(device, selection, 0)));
        assert_eq!(asked("--all --device soft-roce"), [run(SOFT_ROCE, Selection::DeviceDependent, 0)]);
        assert_eq!(asked("--all --device mlx5_0"), [run("mlx5_0", Selection::All, 0)]);
    }

    #[test]
    fn named_tests_run_alone_from_either_tier() {
        assert_eq!(asked("--only rail"), [run(DEVICES[0], Selection::All, 1)]);
        assert_eq!(asked("--only rail --only link --device soft-roce"), [run(SOFT_ROCE, Selection::All, 2)]);
        assert_eq!(asked("--mpi 5 --only rail"), [run(DEVICES[0], Selection::All, 1)]);
    }

    #[test]
    fn with_an_open_mpi_a_few_tests_follow_on_soft_roce() {
        let few = ON_SOFT_ROCE_WITH_MPI.len();
        assert_eq!(asked("--all --mpi 5"), [run(DEVICES[0], Selection::All, 0), run(SOFT_ROCE, Selection::All, few)]);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask simulate`: builds `simulation/` with optimisation and all checks, and runs the programs of many seeds.
//! Grade: setup.

use crate::command::{cargo, run, step};
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use clap::builder::ArgPredicate;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Profile of the workspace's `Cargo.toml`.
const PROFILE: &str = "simulation";

/// How many seeds the command runs unless the user names a number.
const SEEDS: u64 = 20_000;

/// How many seeds the quick tier simulates, in a build without optimisation: for MPI, for libfabric, and for libfabric
/// with lost peers.
const QUICK: [u64; 3] = [1_500, 1_500, 500];

/// How many seeds `--all` simulates, in an optimised build. Same order as [`QUICK`].
const ALL: [u64; 3] = [20_000, 20_000, 10_000];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of seeds; each is a program with its schedule and its faults
    #[arg(long, value_name = "N", default_value_t = SEEDS, default_value_if("trace", ArgPredicate::IsPresent, "1"))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Number of processes of each program [default: 2 to 8, as the seed says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: Option<u32>,
    /// Programs whose processes outlive others: some die, or a connection fails
    #[arg(long)]
    lost: bool,
    /// Programs of libfabric: its endpoints, as the provider has them
    #[arg(long, conflicts_with = "trace")]
    libfabric: bool,
    /// With one seed: writes the trace of its program to this new folder, for `ibex view` and the other commands
    #[arg(long, value_name = "FOLDER")]
    trace: Option<PathBuf>,
    /// Instead, so many processes send to 32 neighbours each, then all to one: prints time and memory per peer
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "from", "processes", "lost", "libfabric", "trace"],
        value_parser = clap::value_parser!(u32).range(2..=20_000))]
    scale: Option<u32>,
}

pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { seeds, from, processes, lost, libfabric, trace, scale } = arguments;
    ensure!(trace.is_none() || *seeds == 1, "--trace is for one seed, and --seeds says {seeds}");
    let workspace = Workspace::here();
    step("Building the simulation");
    run(workspace.cargo_build().args(["--package", "ibex-simulation", "--profile", PROFILE]))?;
    step("Simulating");
    let mut words = match scale {
        Some(count) => vec!["scale".to_owned(), count.to_string()],
        None => vec![seeds.to_string(), from.to_string(), processes.unwrap_or(0).to_string()],
    };
    let semantics = match (libfabric, lost) {
        (false, false) => None,
        (false, true) => Some("lost"),
        (true, false) => Some("libfabric"),
        (true, true) => Some("libfabric-lost"),
    };
    words.splice(..0, semantics.map(str::to_owned));
    let mut simulate = Command::new(workspace.target().join(PROFILE).join("ibex-simulate"));
    let status = simulate.args(words).args(trace).status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the commands of the quick tier: they run the simulation that was built in `folder`.
pub(crate) fn of_quick_tests(folder: &Path) -> [Command; 3] {
    with_seeds(QUICK, || Command::new(folder.join("ibex-simulate")))
}

/// Returns the commands of `--all`: they build the simulation with optimisation, and run it.
pub(crate) fn of_all_tests(workspace: &Workspace) -> [Command; 3] {
    with_seeds(ALL, || {
        let mut simulate = cargo(workspace.root());
        simulate.args(["run", "--quiet", "--profile", PROFILE, "--package", "ibex-simulation", "--"]);
        simulate
    })
}

fn with_seeds([of_mpi, of_libfabric, lost]: [u64; 3], simulate: impl Fn() -> Command) -> [Command; 3] {
    [(of_mpi, None), (of_libfabric, Some("libfabric")), (lost, Some("libfabric-lost"))].map(|(seeds, semantics)| {
        let mut simulate = simulate();
        simulate.args(semantics).args([&seeds.to_string(), "0", "0"]);
        simulate
    })
}

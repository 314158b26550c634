// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench`: measures MPI over ibex, the raw adapter, and other transports on the same device.
//!
//! Builds the programs and opens the device ([`mod@device`]); [`ibex_bench`] measures and prints; [`bars`] says whether
//! ibex is as fast as it is held to be.
//!
//! Grade: setup. Tests: of the bench itself, there.

mod bars;
mod device;
mod study;

use crate::command::{cargo, output, step};
use crate::environment::Environment;
use crate::setup::Need;
use crate::workspace::Workspace;
use crate::{build, series, setup};
use anyhow::{Context, Result};
use hw_tests::Device;
use hw_tests::openmpi::Series;
use ibex_bench::{Kind, Plan, Transport, Wanted, Where};
use std::fs;
use std::process::ExitCode;
use std::time::Instant;

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `softhca` (emulated adapters; the default), `soft-roce` (a software device in a virtual machine), or an adapter
    /// of this machine such as `mlx5_0`
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,
    #[command(flatten)]
    wanted: Wanted,
    /// What events cost: ibex built without them, with nobody registered, with callbacks, buffered, logged
    #[arg(long, conflicts_with = "transports")]
    events: bool,
    /// What events cost messages and programs, where the time of messages goes in two applications, and whether planted
    /// faults are found: docs/study.md, which is written where `IBEX_WRITE_DOCS` is set
    #[arg(long, conflicts_with_all = ["events", "transports", "tests", "sizes", "rounds"])]
    study: bool,
    /// Under this Open MPI, 4.1 or 5; 5 runs in a Debian 13 root made for it where this machine has another [default:
    /// this machine's]
    #[arg(long, value_name = "SERIES")]
    mpi: Option<Series>,
}

/// `cargo xtask bench`.
pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let workspace = Workspace::here();
    if let Some(ended) = series::elsewhere(&workspace, arguments.mpi)? {
        return Ok(ended);
    }
    let device = arguments.device.clone().unwrap_or_else(device::usual);
    let kind = device::kind(&device);
    if arguments.study {
        return study::command(&workspace, &device, arguments.wanted.full);
    }
    setup::ensure(&Environment::here(), Some(&device.to_string()), &[Need::OpenMpi, Need::Device, Need::Bench])?;
    let wanted = Wanted { events: arguments.events, ..arguments.wanted.clone() };
    let plan = ibex_bench::available_beside_ibex(kind, &wanted)?;
    build(&workspace, &plan)?;
    let deliveries = arguments.events.then(|| deliveries_per_second(&workspace)).transpose()?;

    let fabric = device::opened(&workspace, &device)?;
    let (programs, components, reports) = (workspace.programs(), workspace.components(), workspace.reports());
    let without_events = workspace.without_events().components();
    fs::create_dir_all(&reports).with_context(|| format!("cannot make {}", reports.display()))?;
    let command = workspace.target().join("release/ibex");
    let place = Where {
        programs: &programs,
        command: &command,
        components: Some(&components),
        without_events: Some(&without_events),
        reports: &reports,
        device: fabric.device_name(),
        interface: fabric.interface(),
        kind,
        processors: if kind == Kind::SoftHca { ibex_bench::pair() } else { None },
        hosts: None,
    };
    step(&format!("Measuring on {}: {} values in {} rounds", place.device, plan.values(), plan.rounds()));
    let nodes = device::OfFabric(&fabric);
    let finished = ibex_bench::measure(&nodes, place, &plan, &device::title(&device, place.device), deliveries)?;
    println!("{finished}\n{}", bars::judged(kind, finished.report()));
    println!("Wrote {}", workspace.shown(&finished.write(&reports)?).display());
    println!("Done in {:.0} s.", started.elapsed().as_secs_f64());
    Ok(if finished.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Events that a thread raises and delivers through a buffer, per second: the median of a micro-benchmark without MPI.
fn deliveries_per_second(workspace: &Workspace) -> Result<f64> {
    const BENCH: &str = "event/buffer_in_and_out";
    const BATCH: f64 = 1024.0;
    step("Measuring the delivery through a buffer");
    let mut bench = cargo(workspace.root());
    bench.args(["bench", "--package", "ibex", "--bench", "events", "--"]);
    bench.args(["--warm-up-time", "0.5", "--measurement-time", "2", "--output-format", "bencher", BENCH]);
    ibex_bench::rate(&output(&mut bench)?, BENCH, BATCH)
}

fn build(workspace: &Workspace, plan: &Plan) -> Result<()> {
    let transports = plan.transports();
    if transports.contains(&Transport::WithoutEvents) {
        build::library(workspace)?;
    } else if transports.iter().any(|transport| transport.is_ibex()) {
        build::library_alone(workspace)?;
    }
    if transports.contains(&Transport::WithoutEvents) {
        build::library_without_events(workspace)?;
        build::preloaded_tools(workspace, "benches/tools")?;
    }
    build::programs(workspace, "benches/mpi")?;
    if plan.has_host_memory() {
        build::verbs_programs(workspace, "benches/verbs")?;
    }
    Ok(())
}

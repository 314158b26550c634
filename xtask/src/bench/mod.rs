// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench`: measures MPI over ibex, the raw adapter, and other transports on the same device. Builds the
//! programs ([`stock`] for a stock MPI) and opens the device ([`mod@device`]); [`ibex_bench`] measures and prints;
//! [`bars`] compares with the speeds that ibex has to reach; [`docs`] puts the tables into docs/. Grade: setup. Tests:
//! below; of the bench itself, there.

mod bars;
mod device;
mod docs;
mod stock;
mod study;

use crate::command::{cargo, output, step};
use crate::environment::Environment;
use crate::setup::Need;
use crate::workspace::Workspace;
use crate::{build, series, setup};
use anyhow::{Context, Result};
use hw_tests::Device;
use ibex_bench::{Kind, Mpi, Plan, Report, Wanted, Where};
use std::fs;
use std::process::ExitCode;
use std::time::Instant;
use stock::{Named, Parts};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `softhca` (emulated adapters; the default), `soft-roce` (a software device in a virtual machine), or an adapter
    /// of this machine such as `mlx5_0`
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,
    #[command(flatten)]
    wanted: Wanted,
    /// Measure the cost of events: ibex built without them, without a tool, with callbacks, buffered, logged, recorded
    #[arg(long, conflicts_with = "transports")]
    events: bool,
    /// Repeat the experiments of two papers on events: their cost for messages and programs, the time of messages in
    /// two applications, and the detection of injected faults (docs/study.md, which `IBEX_WRITE_DOCS` has it write)
    #[arg(long, conflicts_with_all = ["events", "transports", "tests", "sizes", "rounds"])]
    study: bool,
    /// The MPI to measure: Open MPI 4.1 or 5, or a stock MPI over the libfabric provider, mpich or intel. If this
    /// machine has no Open MPI 5, it runs in a Debian 13 root file system [default: this machine's Open MPI]
    #[arg(long, value_name = "MPI")]
    mpi: Option<Named>,
}

pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let workspace = Workspace::here();
    let (series, stock) = match arguments.mpi {
        Some(Named::Stock(family)) => (None, Some(Parts::of(&workspace, family))),
        Some(Named::OpenMpi(series)) => (Some(series), None),
        None => (None, None),
    };
    if let Some(ended) = series::elsewhere(&workspace, series)? {
        return Ok(ended);
    }
    let device = arguments.device.clone().unwrap_or_else(device::usual);
    let kind = device::kind(&device);
    if let Some(stock) = &stock {
        stock.refuse(kind, arguments.events || arguments.study)?;
    }
    if arguments.study {
        return study::command(&workspace, &device, arguments.wanted.full);
    }
    let environment = Environment::here();
    setup::ensure(&environment, Some(&device.to_string()), &[Need::OpenMpi, Need::Device, Need::Bench])?;
    if stock.is_some()
        && let Err(error) = setup::ensure(&environment, None, &[Need::Mpich])
    {
        eprintln!("warning: there is no Debian's MPICH to compare with: {error:#}");
    }
    let mpi = stock.as_ref().map_or(Mpi::OpenMpi, Parts::mpi);
    let wanted = Wanted { events: arguments.events, ..arguments.wanted.clone() };
    // Refuses a wrong plan before minutes of building.
    let chosen = Plan::chosen(kind, mpi, &wanted)?;
    ibex_bench::refuse_missing(mpi, &wanted, &ibex_bench::is_in_path)?;
    match &stock {
        Some(stock) => stock.build(&workspace, &environment)?,
        None => build(&workspace, kind, arguments.events)?,
    }
    if chosen.has_libfabric() {
        build::provider_alone(&workspace)?;
        build::programs_without_mpi(&workspace, "benches/libfabric", "-lfabric")?;
    }
    let deliveries = arguments.events.then(|| deliveries_per_second(&workspace)).transpose()?;

    let fabric = device::opened(&workspace, &device)?;
    let programs = stock.as_ref().map_or_else(|| workspace.programs(), Parts::programs);
    let (components, reports) = (workspace.components(), workspace.reports());
    let without_events = workspace.without_events().components();
    fs::create_dir_all(&reports).with_context(|| format!("cannot make {}", reports.display()))?;
    let command = workspace.target().join("release/ibex");
    let place = Where {
        mpi,
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
    let plan = ibex_bench::available(place, &wanted, &mpi.transports(kind), &ibex_bench::is_in_path)?;
    step(&format!("Measuring on {}: {} values in {} rounds", place.device, plan.values(), plan.rounds()));
    let nodes = device::OfFabric(&fabric);
    let report = Report::measured(&nodes, place, &plan, deliveries)?;
    let tables = format!("{report}\n{}", bars::judged(kind, mpi, &report));
    println!("{tables}");
    println!("Wrote {}", workspace.shown(&report.write(&reports)?).display());
    let page = if arguments.events { "events-cost.md" } else { "benchmarks.md" };
    docs::write(&workspace, page, &format!("```text\n{}\n```", tables.trim()))?;
    println!("Done in {:.0} s.", started.elapsed().as_secs_f64());
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the events that a thread raises and delivers through a buffer per second: the median of a micro-benchmark.
fn deliveries_per_second(workspace: &Workspace) -> Result<f64> {
    const BENCH: &str = "event/buffer_in_and_out";
    const BATCH: f64 = 1024.0;
    step("Measuring the delivery through a buffer");
    let mut bench = cargo(workspace.root());
    bench.args(["bench", "--package", "ibex", "--bench", "events", "--"]);
    bench.args(["--warm-up-time", "0.5", "--measurement-time", "2", "--output-format", "bencher", BENCH]);
    rate(&output(&mut bench)?, BENCH, BATCH)
}

fn build(workspace: &Workspace, kind: Kind, events: bool) -> Result<()> {
    if events {
        build::library(workspace)?;
        build::library_without_events(workspace)?;
        build::preloaded_tools(workspace, "benches/tools")?;
    } else {
        build::library_alone(workspace)?;
    }
    build::programs(workspace, "benches/mpi")?;
    if kind == Kind::SoftHca {
        build::programs_without_mpi(workspace, "benches/verbs", "-libverbs")?;
    }
    Ok(())
}

/// Returns the events per second of a bench that delivers `batch` events, from the median that criterion printed.
fn rate(output: &str, bench: &str, batch: f64) -> Result<f64> {
    let named = output.lines().find(|line| line.starts_with(&format!("test {bench} ")));
    let line = named.with_context(|| format!("the bench {bench} printed nothing:\n{output}"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "ns/iter").and_then(|at| words.get(at.checked_sub(1)?));
    let nanoseconds: f64 = at
        .and_then(|number| number.replace(',', "").parse().ok())
        .with_context(|| format!("the bench {bench} printed no time: {line}"))?;
    Ok(batch * 1e9 / nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_output_of_the_bench() {
        let output = "test event/clock ... bench:          20 ns/iter (+/- 1)\n\
                      test event/buffer_in_and_out ... bench:      51,200 ns/iter (+/- 99)\n";
        assert!((rate(output, "event/buffer_in_and_out", 1024.0).unwrap() - 20e6).abs() < 1.0);
        assert!(rate(output, "event/other", 1.0).unwrap_err().to_string().contains("event/other"));
    }
}

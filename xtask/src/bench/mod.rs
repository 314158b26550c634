// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench`: what MPI through ibex gives, beside the raw adapter and beside other transports on the same
//! device.
//!
//! [`catalogue`] says what can be measured and [`transport`] over what, [`plan`] what is in which order, [`run`] does
//! it ([`mpi`], [`perftest`], [`ucx_perftest`], [`instructions`] with [`callgrind`], and [`host_memory`] know the
//! programs), [`report`] condenses it, [`table`], [`plot`] and [`html`] show it, [`bars`] judges it. [`events`] is what
//! `--events` adds.
//!
//! Grade: setup. Tests: in each file.

mod bars;
mod callgrind;
mod catalogue;
mod events;
mod host_memory;
mod html;
mod instructions;
mod mpi;
mod perftest;
mod plan;
mod plot;
mod processors;
mod progress;
mod ratios;
mod report;
mod run;
mod table;
mod transport;
mod ucx_perftest;

use crate::command::{cargo, output, step};
use crate::workspace::Workspace;
use crate::{build, setup};
use anyhow::{Context, Result, bail};
use catalogue::{By, Test};
use clap::builder::PossibleValuesParser;
use events::Cost;
use hw_tests::{Device, Fabric, Job, Options, device};
use plan::{Kind, Plan};
use report::Report;
use std::fs;
use std::process::ExitCode;
use std::time::Instant;
use transport::Transport;

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `softhca` (emulated adapters; the default), `soft-roce` (a software device in a virtual machine), or an adapter
    /// of this machine such as `mlx5_0`
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,
    /// Fewer sizes and rounds: a first look in a minute or two
    #[arg(long)]
    quick: bool,
    /// Only these tests
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(catalogue::test_names()))]
    tests: Vec<String>,
    /// Only these transports [default: all on softhca; elsewhere ibex,raw,tcp]
    #[arg(long, value_delimiter = ',')]
    transports: Vec<Transport>,
    /// What events cost: ibex built without them, with nobody registered, with callbacks, buffered, logged
    #[arg(long, conflicts_with = "transports")]
    events: bool,
}

/// What `--events` measures unless the arguments say otherwise.
const OF_EVENTS: [&str; 3] = ["latency", "bandwidth", "instructions"];

/// `cargo xtask bench`.
pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let workspace = Workspace::here();
    let device = arguments.device.clone().unwrap_or_else(default_device);
    let kind = Kind::of(&device);
    let tests =
        if arguments.events { tests_of_events(kind, &arguments.tests)? } else { tests(kind, &arguments.tests)? };
    let plan = match &arguments.transports[..] {
        _ if arguments.events => Plan::of_events(kind, arguments.quick, tests),
        [] => Plan::new(kind, arguments.quick, tests, kind.transports()),
        chosen => Plan::new(kind, arguments.quick, tests, chosen.to_vec()),
    };
    setup::ensure_for_bench(&device.to_string())?;
    transport::ensure_available(&plan.transports)?;
    build(&workspace, &plan.tests, &plan.transports)?;
    let deliveries = arguments.events.then(|| deliveries_per_second(&workspace)).transpose()?;

    step(&format!("Opening {device}"));
    let mut options = Options::new(1);
    options.adapters = Some(workspace.root().join("hw-tests/softhca/one-rail.toml"));
    let fabric = Fabric::open_with(&device, &options)?;
    let (programs, components, reports) = (workspace.programs(), workspace.components(), workspace.reports());
    let without_events = workspace.without_events().components();
    fs::create_dir_all(&reports).with_context(|| format!("cannot make {}", reports.display()))?;
    let place = mpi::Place {
        programs: &programs,
        components: &components,
        without_events: &without_events,
        reports: &reports,
        device: fabric.device_name(),
        interface: fabric.interface(),
        kind,
        processors: if kind == Kind::SoftHca { processors::pair() } else { None },
    };
    step(&format!("Measuring on {}: {} values in {} rounds", place.device, plan.values(), plan.rounds));
    let found = run::run(&fabric, place, &plan)?;
    let environment = environment(&fabric, found.repeated)?;
    drop(fabric);

    let mut report = report::summarise(&device_title(&device, &environment), &plan.tests, &found.measured);
    report.instructions = report::parts(&found.instructions);
    report.events = arguments.events.then(|| Cost::new(&found, deliveries));
    println!("\n{}", table::tables(&report, &plan.tests));
    print!("{}", table::bars(&bars::verdicts(kind, &report)));
    println!("{}", kind.remark());
    write(&workspace, kind, &report, &plan, &environment)?;
    println!("Done in {:.0} s.", started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

/// Emulated adapters, which any machine can have; an adapter of this machine is measured when it is asked for.
fn default_device() -> Device {
    let here = device::local_names();
    if let Some(first) = here.first() {
        println!(
            "This machine has an RDMA adapter ({}); it is measured with `cargo xtask bench --device {first}`, and emulated \
             adapters without.",
            here.join(", ")
        );
    }
    Device::SoftHca
}

/// The tests to run, in the order of the report.
fn tests(kind: Kind, names: &[String]) -> Result<Vec<&'static Test>> {
    let wanted = |name: &str| names.iter().any(|wanted| wanted == name);
    let tests = catalogue::TESTS.iter();
    if names.is_empty() {
        return Ok(tests.filter(|test| kind.has(test)).collect());
    }
    let tests: Vec<_> = tests.filter(|test| wanted(test.name)).collect();
    if let Some(test) = tests.iter().find(|test| !kind.has(test)) {
        bail!("the test {} needs emulated adapters: --device {}", test.name, device::SOFTHCA);
    }
    Ok(tests)
}

/// The same for `--events`: messages alone.
fn tests_of_events(kind: Kind, names: &[String]) -> Result<Vec<&'static Test>> {
    let default = || OF_EVENTS.into_iter().filter(|name| catalogue::test(name).is_some_and(|test| kind.has(test)));
    let names = if names.is_empty() { default().map(str::to_owned).collect() } else { names.to_vec() };
    let tests = tests(kind, &names)?;
    if let Some(test) = tests.iter().find(|test| !matches!(test.by, By::Messages | By::InstructionCounter(_))) {
        bail!("the test {} is not among those of --events", test.name);
    }
    Ok(tests)
}

/// Events that a thread raises and delivers through a buffer, per second: the median of a micro-benchmark without MPI.
fn deliveries_per_second(workspace: &Workspace) -> Result<f64> {
    const BENCH: &str = "event/buffer_in_and_out";
    const BATCH: f64 = 1024.0;
    step("Measuring the delivery through a buffer");
    let mut bench = cargo(workspace.root());
    bench.args(["bench", "--package", "ibex", "--bench", "events", "--"]);
    bench.args(["--warm-up-time", "0.5", "--measurement-time", "2", "--output-format", "bencher", BENCH]);
    events::rate(&output(&mut bench)?, BENCH, BATCH)
}

fn build(workspace: &Workspace, tests: &[&Test], transports: &[Transport]) -> Result<()> {
    if transports.iter().any(|transport| transport.is_ibex()) {
        build::library(workspace)?;
    }
    if transports.contains(&Transport::WithoutEvents) {
        build::library_without_events(workspace)?;
        build::preloaded_tools(workspace, "benches/tools")?;
    }
    build::programs(workspace, "benches/mpi")?;
    if tests.iter().any(|test| test.by == By::HostMemory) {
        build::verbs_programs(workspace, "benches/verbs")?;
    }
    Ok(())
}

fn write(
    workspace: &Workspace,
    kind: Kind,
    report: &Report,
    plan: &Plan,
    environment: &[(String, String)],
) -> Result<()> {
    let save = |name: &str, text: &str| -> Result<()> {
        let path = workspace.reports().join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("Wrote {}", workspace.shown(&path).display());
        Ok(())
    };
    println!();
    save("report.json", &(serde_json::to_string_pretty(report)? + "\n"))?;
    save("report.html", &html::page(kind, report, &plan.tests, environment)?)
}

/// What the numbers depend on, as name and value, from the node they were measured in.
fn environment(fabric: &Fabric, repeated: usize) -> Result<Vec<(String, String)>> {
    let facts = [
        ("Kernel", "uname -sr"),
        ("Processors", "nproc"),
        ("Processor", "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1"),
        ("Virtual machine", "grep -q hypervisor /proc/cpuinfo && echo yes || echo no"),
        ("Open MPI", "mpirun --version | head -n 1"),
        ("UCX", "dpkg-query --show --showformat='${Version}' libucx0 2>/dev/null || echo unknown"),
        ("perftest", "dpkg-query --show --showformat='${Version}' perftest 2>/dev/null || echo unknown"),
    ];
    let mut found = vec![("ibex".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    found.push(("Device".to_owned(), fabric.device_name().to_owned()));
    found.push(("Interface".to_owned(), fabric.interface().to_owned()));
    for (name, script) in facts {
        let outcome = fabric.run(&Job::new(["sh", "-c", script]))?.checked()?;
        found.push((name.to_owned(), outcome.stdout.trim().to_owned()));
    }
    if repeated > 0 {
        found.push(("Runs of perftest repeated, as the machine was busy".to_owned(), repeated.to_string()));
    }
    Ok(found)
}

fn device_title(device: &Device, environment: &[(String, String)]) -> String {
    let name = environment.iter().find(|(name, _)| name == "Device").map_or("", |(_, value)| value);
    match device {
        Device::SoftRoce => format!("{device} ({name} in a virtual machine)"),
        Device::SoftHca | Device::SoftHcaAs(_) => format!("{device} ({name}, an emulated adapter)"),
        Device::Local(_) => name.to_owned(),
    }
}

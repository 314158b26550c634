// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench`: what MPI through ibex gives, beside the raw adapter and beside TCP on the same device.
//!
//! [`plan`] says what is measured, [`run`] does it ([`mpi`] and [`perftest`] know the programs), [`report`] condenses it,
//! [`table`], [`plot`] and [`html`] show it, [`bars`] judges it.
//!
//! Grade: setup. Tests: in each file.

mod bars;
mod html;
mod mpi;
mod perftest;
mod plan;
mod plot;
mod report;
mod run;
mod table;

use crate::command::step;
use crate::workspace::Workspace;
use crate::{build, setup};
use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use hw_tests::{Device, Fabric, Job};
use plan::{Plan, Test};
use report::{Report, Transport};
use std::fs;
use std::process::ExitCode;
use std::time::Instant;

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `soft-roce` (a software device in a virtual machine), `softhca` (emulated adapters), or an adapter of this machine
    /// such as `mlx5_0`
    #[arg(long, value_name = "NAME", default_value = hw_tests::device::SOFT_ROCE)]
    device: String,
    /// Fewer sizes and rounds: a first look in some minutes
    #[arg(long)]
    quick: bool,
    /// Only these tests
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(plan::test_names()))]
    tests: Vec<String>,
    /// Only these transports
    #[arg(long, value_delimiter = ',', default_values = ["ibex", "raw", "tcp"])]
    transports: Vec<Transport>,
}

/// `cargo xtask bench`.
pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let workspace = Workspace::here();
    let device: Device = arguments.device.parse()?;
    setup::ensure(Some(&arguments.device))?;
    if arguments.transports.contains(&Transport::Ibex) {
        build::library(&workspace)?;
    }
    let programs = build::programs(&workspace, "benches/mpi")?;
    let program = programs.first().context("benches/mpi holds no program")?;

    step(&format!("Opening {device}"));
    let fabric = Fabric::open(&device, 1)?;
    let plan = Plan::new(arguments.quick, tests(&arguments.tests), arguments.transports.clone());
    let components = workspace.components();
    let place = mpi::Place {
        program,
        components: &components,
        device: fabric.device_name(),
        interface: fabric.interface(),
        software: device == Device::SoftRoce,
    };
    step(&format!(
        "Measuring on {}: {} values in each of {} rounds",
        place.device,
        plan.values_of_a_round(),
        plan.rounds
    ));
    let measurements = run::run(&fabric, place, &plan)?;
    let environment = environment(&fabric)?;
    drop(fabric);

    let report = report::summarise(&device_title(&device, &environment), &plan.tests, &measurements);
    println!("\n{}", table::tables(&report, &plan.tests));
    print!("{}", table::bars(&bars::verdicts(&report)));
    write(&workspace, &report, &plan, &environment)?;
    println!("Done in {:.0} s.", started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn tests(names: &[String]) -> Vec<&'static Test> {
    let wanted = |name: &&str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    plan::test_names().filter(wanted).filter_map(plan::test).collect()
}

fn write(workspace: &Workspace, report: &Report, plan: &Plan, environment: &[(String, String)]) -> Result<()> {
    let folder = workspace.reports();
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let save = |name: &str, text: &str| -> Result<()> {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("Wrote {}", workspace.shown(&path).display());
        Ok(())
    };
    println!();
    save("report.json", &(serde_json::to_string_pretty(report)? + "\n"))?;
    save("report.html", &html::page(report, &plan.tests, environment)?)
}

/// What the numbers depend on, as name and value, from the node they were measured in.
fn environment(fabric: &Fabric) -> Result<Vec<(String, String)>> {
    let facts = [
        ("Kernel", "uname -sr"),
        ("Processors", "nproc"),
        ("Processor", "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1"),
        ("Virtual machine", "grep -q hypervisor /proc/cpuinfo && echo yes || echo no"),
        ("Open MPI", "mpirun --version | head -n 1"),
        ("perftest", "dpkg-query --show --showformat='${Version}' perftest 2>/dev/null || echo unknown"),
    ];
    let mut found = vec![("ibex".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    found.push(("Device".to_owned(), fabric.device_name().to_owned()));
    found.push(("Interface".to_owned(), fabric.interface().to_owned()));
    for (name, script) in facts {
        let outcome = fabric.run(&Job::new(["sh", "-c", script]))?.checked()?;
        found.push((name.to_owned(), outcome.stdout.trim().to_owned()));
    }
    Ok(found)
}

fn device_title(device: &Device, environment: &[(String, String)]) -> String {
    let name = environment.iter().find(|(name, _)| name == "Device").map_or("", |(_, value)| value);
    match device {
        Device::SoftRoce => format!("{device} ({name} in a virtual machine)"),
        Device::SoftHca => format!("{device} ({name}, an emulated adapter)"),
        Device::Local(_) => name.to_owned(),
    }
}

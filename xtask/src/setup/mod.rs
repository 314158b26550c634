// SPDX-License-Identifier: MIT OR Apache-2.0
//! System requirements: finds missing ones. The first step of `install`, `bench` and `test`, and a command of its own.
//! With apt-get (Debian, Ubuntu) it installs what is missing. Elsewhere it checks each requirement, and lists the
//! packages of missing ones. [`requirements`] has the list, [`system`] checks. Grade: setup. Tests: setup/tests.rs.

use crate::command::{run, shown, step};
use crate::environment::Environment;
use anyhow::{Result, bail};
use hw_tests::device::SOFT_ROCE;
use std::process::ExitCode;

mod requirements;
mod system;
#[cfg(test)]
mod tests;

pub(crate) use requirements::Need;
use requirements::{Manager, REQUIREMENTS, Requirement};
use system::System;
pub(crate) use system::is_root;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Say what is missing, and install nothing
    #[arg(long)]
    dry_run: bool,
    /// The device that is going to be used: `soft-roce` needs a virtual machine, an adapter does not
    #[arg(long, value_name = "NAME", default_value = "soft-roce")]
    device: String,
}

pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let environment = Environment::here();
    let system = System::of(&environment);
    let all = [Need::OpenMpi, Need::Device, Need::Bench, Need::Study, Need::Test, Need::Root];
    let missing = system.missing(needed(Some(&arguments.device), &all))?;
    if missing.is_empty() {
        println!("Everything that is needed is there.");
    } else if arguments.dry_run {
        print!("{}", listed(&missing, system.manager));
    } else {
        install(&system, &missing)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that all requirements are installed to build, for `device` if one is named, and for `more`.
pub(crate) fn ensure(environment: &Environment, device: Option<&str>, more: &[Need]) -> Result<()> {
    ensure_all(environment, needed(device, more))
}

pub(crate) fn ensure_for_root() -> Result<()> {
    ensure_all(&Environment::here(), REQUIREMENTS.iter().filter(|thing| thing.need == Need::Root).collect())
}

/// Returns Debian's packages of a root file system to build, test and measure on emulated adapters and soft-RoCE.
pub(crate) fn packages_of_a_root() -> Vec<&'static str> {
    let needed = needed(Some(SOFT_ROCE), &[Need::OpenMpi, Need::Device, Need::Bench]);
    needed.into_iter().map(|thing| thing.name).collect()
}

fn ensure_all(environment: &Environment, things: Vec<&'static Requirement>) -> Result<()> {
    let system = System::of(environment);
    let missing = system.missing(things)?;
    if missing.is_empty() { Ok(()) } else { install(&system, &missing) }
}

fn needed(device: Option<&str>, more: &[Need]) -> Vec<&'static Requirement> {
    let is_needed = |thing: &&Requirement| match thing.need {
        Need::Build => true,
        Need::VirtualMachine => device == Some(SOFT_ROCE),
        Need::OpenMpi
        | Need::Device
        | Need::Bench
        | Need::Mpich
        | Need::Study
        | Need::Test
        | Need::Package
        | Need::Root => more.contains(&thing.need),
    };
    REQUIREMENTS.iter().filter(is_needed).collect()
}

/// Lists each missing package by its name on this system, with its purpose.
fn listed(missing: &[&Requirement], manager: Option<&Manager>) -> String {
    let count = missing.len();
    let Some(manager) = manager else {
        let line = |thing: &&Requirement| format!("    {} (Debian calls the package {})\n", thing.why, thing.name);
        return format!("{count} things are missing:\n{}", missing.iter().map(line).collect::<String>());
    };
    let name = |thing: &Requirement| thing.package(manager).unwrap_or("-");
    let width = missing.iter().map(|thing| name(thing).len()).max().unwrap_or(0);
    let line = |thing: &&Requirement| match name(thing) {
        "-" => {
            format!("    {:width$}  {} (no package of it is known there; Debian's is {})\n", "-", thing.why, thing.name)
        }
        package => format!("    {package:width$}  {}\n", thing.why),
    };
    let lines: String = missing.iter().map(line).collect();
    format!("{count} packages are missing, by their names in {}:\n{lines}", manager.name)
}

/// Returns the command that installs the packages; several requirements may be in one.
fn command_line(missing: &[&Requirement], manager: &Manager) -> String {
    let mut packages: Vec<&str> = missing.iter().filter_map(|thing| thing.package(manager)).collect();
    let mut seen = std::collections::HashSet::new();
    packages.retain(|package| seen.insert(*package));
    format!("{} {}", manager.install, packages.join(" "))
}

fn install(system: &System, missing: &[&Requirement]) -> Result<()> {
    let listed = listed(missing, system.manager);
    let Some(manager) = system.manager else {
        bail!(
            "{listed}no package manager that is known here (apt-get, dnf, zypper, pacman, spack, conda) is in PATH; install them as \
             this system does, then try again"
        );
    };
    if !system.may_install() {
        bail!("{listed}{}:\n    {}", manager.advice, command_line(missing, manager));
    }
    print!("{listed}");
    let mut update = system::apt_get();
    update.arg("update").arg("--quiet");
    let mut install = system::apt_get();
    install.args(["install", "--quiet", "--yes", "--no-install-recommends"]);
    install.args(missing.iter().map(|thing| thing.name));
    step(&format!("Installing them: {}", shown(&install)));
    // A fresh container has no lists, and old lists name files that are gone. If one of many lists is unreachable, the
    // installation may still succeed.
    if let Err(error) = run(&mut update) {
        eprintln!("warning: {error:#}; going on with the lists there are");
    }
    run(&mut install)
}

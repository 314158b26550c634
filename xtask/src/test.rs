// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask test`: the quick tier, which every change passes, and `--all`, which a release has passed.
//!
//! | | quick | `--all` |
//! |---|---|---|
//! | formatting, clippy, unit, doc and compile-fail tests | all crates | the same |
//! | loom, Miri, programs of others, installation | | all |
//! | the library | dev: one build for all | release, as users have it |
//! | device tests | those marked as quick, on `softhca:mlx5` and soft-RoCE | all, on each of [`devices::DEVICES`], and with Open MPI 5 |
//!
//! Every part runs even where an earlier one failed; the last lines say how long each took, and count all of it. A part
//! that is not made of tests (formatting, lints, a build) counts as one. Tests that a device cannot do are listed, and
//! counted as skipped; what was done once more is counted as flaky.
//!
//! What is the same with every Open MPI is tested with this machine's alone; with another (`--mpi`) what is linked with
//! it, and the device tests.
//!
//! [`tally`] counts, [`without_device`] and [`devices`] have the parts. Grade: setup. Tests: there.

mod arguments;
mod devices;
mod installation;
mod tally;
mod without_device;

use crate::environment::Environment;
use crate::setup::Need;
use crate::workspace::Workspace;
use crate::{build, series, setup};
use anyhow::Result;
use devices::OnDevice;
use std::process::ExitCode;
use std::time::Instant;
use tally::Tally;

pub(crate) use arguments::Arguments;

/// `cargo xtask test`.
pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let workspace = Workspace::here();
    if series::place(arguments.mpi)? == series::Place::Debian13 {
        return series::again_in_debian13(&workspace);
    }
    let runs = devices::runs(arguments);
    make_ready(arguments, &runs)?;
    let mut tally = Tally::default();
    match (arguments.are_of_devices(), arguments.mpi) {
        (true, _) => {}
        (false, Some(_)) => without_device::lints_of_what_open_mpi_loads(&workspace, &mut tally),
        (false, None) => without_device::lints(&workspace, &mut tally),
    }
    let packages = if arguments.mpi.is_some() { build::Packages::OfDeviceTests } else { build::Packages::All };
    let built = tally.timed("build of the workspace and its tests", || build::tests(&workspace, packages));
    if let Some(tests) = built {
        for _ in 0..arguments.again {
            match (arguments.are_of_devices(), arguments.mpi) {
                (true, _) => {}
                (false, Some(_)) => without_device::of_what_open_mpi_loads(&workspace, &tests, &mut tally),
                (false, None) => without_device::tests(&workspace, &tests, arguments.all, &mut tally),
            }
        }
        if arguments.all && !arguments.are_of_devices() && arguments.mpi.is_none() {
            installation::comes_and_goes(&workspace, &mut tally);
        }
        if !arguments.no_device {
            devices::run(&workspace, &tests, arguments, &runs, &mut tally);
        }
    }
    if arguments.list {
        return Ok(if tally.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }

    println!();
    for (name, took) in &tally.took {
        println!("{:6.0} s  {name}", took.as_secs_f64());
    }
    println!("{:6.0} s  in all", started.elapsed().as_secs_f64());
    for name in &tally.failures {
        println!("FAILED: {name}");
    }
    println!("{tally}");
    Ok(if tally.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Refuses a wrong name before anything is built, and installs what is missing.
fn make_ready(arguments: &Arguments, runs: &[OnDevice<'_>]) -> Result<()> {
    let needs_all = arguments.all && !arguments.are_of_devices() && arguments.mpi.is_none();
    let needs: &[Need] =
        if needs_all { &[Need::OpenMpi, Need::Device, Need::Test] } else { &[Need::OpenMpi, Need::Device] };
    let mut devices: Vec<&str> = runs.iter().map(|run| run.device).collect();
    if devices.is_empty() {
        devices.push(devices::DEVICES[0]);
    }
    for device in devices {
        let _: hw_tests::Device = device.parse()?;
        setup::ensure(&Environment::here(), Some(device), needs)?;
    }
    Ok(())
}

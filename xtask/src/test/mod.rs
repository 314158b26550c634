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
//! Every part runs even if an earlier one failed. A part that is not made of tests (formatting, lints, a build) counts
//! as one. With another Open MPI (`--mpi`) only the packages linked with it, and the device tests, run. [`tally`]
//! counts, [`without_device`] and [`devices`] have the parts and their tests. Grade: setup.

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
use hw_tests::openmpi::Series;
use std::process::ExitCode;
use std::time::Instant;
use tally::Tally;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Everything, 39 to 80 minutes on two processors: every test on every device, the library as users have it, Open
    /// MPI 5, loom, Miri, third-party programs [default: the quick tier, 6 to 12 minutes]
    #[arg(long)]
    all: bool,
    /// Only the device tests, on `softhca` (emulated adapters), `softhca:PROFILE` (the same, that behave as mlx5, rxe,
    /// irdma, `bnxt_re` or minimal), `soft-roce` (a software device in a virtual machine), or an adapter of this
    /// machine such as `mlx5_0`
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Only the device tests of either tier whose name contains this, on softhca:mlx5 unless --device names another;
    /// given several times, one of these
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Only what needs no device
    #[arg(long, conflicts_with_all = ["device", "only", "list", "mpi"])]
    no_device: bool,
    /// List the device tests, each with its tier and the devices that it needs, and run none
    #[arg(long)]
    list: bool,
    /// Run the tests so many times, after one build
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    again: u32,
    /// With this Open MPI, 4.1 or 5; 5 runs in a Debian 13 root made for it where this machine has another, and without
    /// what is the same with every Open MPI [default: this machine's]
    #[arg(long, value_name = "SERIES")]
    mpi: Option<Series>,
}

impl Arguments {
    fn are_of_devices(&self) -> bool {
        self.device.is_some() || !self.only.is_empty() || self.list
    }

    fn end_with_open_mpi_5(&self) -> bool {
        self.all && !self.are_of_devices() && !self.no_device && self.mpi.is_none()
    }
}

pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let workspace = Workspace::here();
    if let Some(ended) = series::elsewhere(&workspace, arguments.mpi)? {
        return Ok(ended);
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
            let what = "install and uninstall with Open MPI's own ompi_info";
            tally.timed(what, || installation::comes_and_goes(&workspace));
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

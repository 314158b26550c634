// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of the README, as `cargo xtask COMMAND`: one file per command.
//!
//! Calls cargo, package managers, mpicc and Open MPI as programs, and [`hw_tests`] for a place with a device; links
//! neither the engine nor any C library, so that it builds on a machine that has nothing installed yet. Grade: setup.
//! Tests: in each file; `cargo test -p xtask`.

mod bench;
mod build;
mod command;
mod debian13;
mod environment;
mod install;
mod manifest;
mod miri;
mod mmdebstrap;
mod mpis;
mod openmpi;
mod package;
mod python;
mod readers;
mod series;
mod setup;
mod simulate;
mod test;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Builds, measures, tests and installs ibex.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find what building and running ibex needs and lacks; on Debian and Ubuntu install it
    Setup(setup::Arguments),
    /// Measure MPI through ibex beside the raw adapter and beside other transports, on one device, in one run
    Bench(bench::Arguments),
    /// Run every test: formatting, clippy, unit, doc and compile-fail tests, then the tests on a device
    Test(test::Arguments),
    /// Run random programs of many processes over the engine and a simulated network, each from a seed
    Simulate(simulate::Arguments),
    /// Put the library where Open MPI finds it
    Install(install::InstallArguments),
    /// Build Debian packages for the Open MPI that is installed here, or a Python wheel
    Package(package::Arguments),
    /// Remove exactly what `install` put there
    Uninstall(install::UninstallArguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Setup(arguments) => setup::command(&arguments),
        Command::Bench(arguments) => bench::command(&arguments),
        Command::Test(arguments) => test::command(&arguments),
        Command::Simulate(arguments) => simulate::command(&arguments),
        Command::Install(arguments) => install::install(&arguments),
        Command::Package(arguments) => package::command(&arguments),
        Command::Uninstall(arguments) => install::uninstall(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

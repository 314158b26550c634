// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex info`: what there is on this host, and what ibex would make of it.
//!
//! [`adapters`] asks verbs and the engine's own choice of ports, so that the reasons are those that a job prints;
//! [`openmpi`] looks for the Open MPI of `PATH` and for the components in it; [`host`] for limits. Grade: setup. Tests:
//! in the files; with a device, `hw-tests/tests/device/command.rs`.

mod adapters;
mod host;
mod openmpi;

use crate::answer::{self, Form};
use crate::parameters::{self, Given};
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::process::ExitCode;

/// Arguments of `ibex info`.
#[derive(clap::Args)]
#[command(after_help = "Example: which ports a job would use that is kept from one adapter\n  \
                        ibex info --mca btl_ibex_if_exclude mlx5_1")]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    given: Given,
}

/// What was found.
#[derive(Serialize)]
struct Info {
    /// The version of this command.
    ibex: &'static str,
    host: host::Host,
    adapters: adapters::Adapters,
    openmpi: Option<openmpi::OpenMpi>,
}

/// Looks, and prints what was found.
///
/// # Errors
/// A parameter that is not permitted.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let parameters = parameters::of_a_job(&arguments.given)?;
    let info = Info {
        ibex: env!("CARGO_PKG_VERSION"),
        host: host::look(),
        adapters: adapters::look(&parameters),
        openmpi: openmpi::look(),
    };
    answer::print(&arguments.form, &info)?;
    Ok(ExitCode::SUCCESS)
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ibex {}\n\n{}\n{}", self.ibex, self.host, self.adapters)?;
        match &self.openmpi {
            Some(openmpi) => openmpi.fmt(f),
            None => writeln!(f, "Open MPI\n  none: there is no mpirun in PATH"),
        }
    }
}

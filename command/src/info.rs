// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex info`: shows this host's adapters and Open MPI, and the ports that ibex would use ([`crate::facts`]). Grade:
//! setup. Tests: there; with a device, `hw-tests/tests/device/command.rs`.

use crate::answer::{self, Form};
use crate::facts::Facts;
use crate::parameters::{self, Given};
use anyhow::Result;
use std::process::ExitCode;

#[derive(clap::Args)]
#[command(after_help = "Example: which ports a job would use without one adapter\n  \
                        ibex info --mca btl_ibex_if_exclude mlx5_1")]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    given: Given,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let parameters = parameters::of_a_job(&arguments.given)?;
    answer::print(&arguments.form, &Facts::here(&parameters))?;
    Ok(ExitCode::SUCCESS)
}

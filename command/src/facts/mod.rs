// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about a host: its adapters, its Open MPI, its libfabric provider and its limits. [`adapters`] takes the choice
//! of ports from the engine, so that the reasons are those that a job prints. `ibex info` prints the facts, `ibex
//! doctor` checks them, also those of other hosts, which arrive as JSON. Grade: setup. Tests: in the files.

pub(crate) mod adapters;
pub(crate) mod counters;
pub(crate) mod host;
pub(crate) mod openmpi;
pub(crate) mod provider;

use crate::parameters::Parameters;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Version of the command that collected them.
    pub(crate) ibex: String,
    pub(crate) host: host::Host,
    pub(crate) adapters: adapters::Adapters,
    /// `None`: there is no `mpirun` in `PATH`.
    pub(crate) openmpi: Option<openmpi::OpenMpi>,
    #[serde(default)]
    pub(crate) provider: provider::Provider,
}

impl Facts {
    pub(crate) fn here(parameters: &Parameters) -> Self {
        Facts {
            ibex: env!("CARGO_PKG_VERSION").to_owned(),
            host: host::look(),
            adapters: adapters::look(parameters),
            openmpi: openmpi::look(),
            provider: provider::look(),
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ibex {}\n\n{}\n{}", self.ibex, self.host, self.adapters)?;
        match &self.openmpi {
            Some(openmpi) => openmpi.fmt(f)?,
            None => writeln!(f, "Open MPI\n  none: there is no mpirun in PATH")?,
        }
        write!(f, "\n{}", self.provider)
    }
}

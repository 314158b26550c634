// SPDX-License-Identifier: MIT OR Apache-2.0
//! What there is on a host, and what ibex would make of it.
//!
//! [`adapters`] asks verbs and the engine's own choice of ports, so that the reasons are those that a job prints;
//! [`openmpi`] looks for the Open MPI of `PATH` and for the components in it; [`host`] for limits. `ibex info` prints
//! them, `ibex doctor` judges them, also those of another host, from which they come as JSON. Grade: setup. Tests: in
//! the files.

pub(crate) mod adapters;
pub(crate) mod counters;
pub(crate) mod host;
pub(crate) mod openmpi;

use crate::parameters::Parameters;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What was found on a host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The version of the command that looked.
    pub(crate) ibex: String,
    pub(crate) host: host::Host,
    pub(crate) adapters: adapters::Adapters,
    /// None: there is no `mpirun` in `PATH`.
    pub(crate) openmpi: Option<openmpi::OpenMpi>,
}

impl Facts {
    /// Of this host.
    pub(crate) fn here(parameters: &Parameters) -> Self {
        Facts {
            ibex: env!("CARGO_PKG_VERSION").to_owned(),
            host: host::look(),
            adapters: adapters::look(parameters),
            openmpi: openmpi::look(),
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ibex {}\n\n{}\n{}", self.ibex, self.host, self.adapters)?;
        match &self.openmpi {
            Some(openmpi) => openmpi.fmt(f),
            None => writeln!(f, "Open MPI\n  none: there is no mpirun in PATH"),
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device to measure: chooses the default one, tells its kind, opens it, and gives its node, which runs the jobs.
//! Grade: setup. Called by [`super`] and [`super::study`]. Tested by the bench.

use crate::build;
use crate::command::step;
use crate::workspace::Workspace;
use anyhow::Result;
use hw_tests::{Device, Fabric, Options, device};
use ibex_bench::{Job, Kind, Nodes, Outcome, Stream};

pub(super) fn kind(device: &Device) -> Kind {
    match device {
        Device::SoftRoce => Kind::SoftRoce,
        Device::SoftHca | Device::SoftHcaAs(_) => Kind::SoftHca,
        Device::Local(_) => Kind::Adapter,
    }
}

/// Returns emulated adapters, which any machine can have.
pub(super) fn usual() -> Device {
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

pub(super) fn opened(workspace: &Workspace, device: &Device) -> Result<Fabric> {
    step(&format!("Opening {device}"));
    build::agent(workspace)?;
    let mut options = Options::new(1);
    options.adapters = Some(workspace.root().join("softhca/one-rail.toml"));
    Fabric::open_with(device, &options)
}

pub(super) struct OfFabric<'a>(pub(super) &'a Fabric);

impl Nodes for OfFabric<'_> {
    fn run(&self, job: &Job, line: &mut dyn FnMut(Stream, &str)) -> Result<Outcome> {
        self.0.run_with(job, line)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the numbers of a bench depend on: kernel, processor, versions.
//!
//! Grade: setup. Called by the bench and the study.

use super::job::{self, Job, Nodes};
use super::place::Where;
use anyhow::Result;

/// What the numbers depend on, as name and value, from the node they were measured in.
pub(crate) fn environment(nodes: &dyn Nodes, place: Where) -> Result<Vec<(String, String)>> {
    let facts = [
        ("Kernel", "uname -sr"),
        ("Processors", "nproc"),
        ("Processor", "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1"),
        ("Virtual machine", "grep -q hypervisor /proc/cpuinfo && echo yes || echo no"),
        ("Open MPI", "mpirun --version | head -n 1"),
        ("UCX", "dpkg-query --show --showformat='${Version}' libucx0 2>/dev/null || echo unknown"),
        ("perftest", "dpkg-query --show --showformat='${Version}' perftest 2>/dev/null || echo unknown"),
    ];
    let mut found = vec![("ibex".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    found.push(("Device".to_owned(), place.device.to_owned()));
    found.push(("Interface".to_owned(), place.interface.to_owned()));
    if let Some(hosts) = place.hosts {
        found.push(("Hosts".to_owned(), hosts.names().join(", ")));
    }
    for (name, script) in facts {
        let outcome = job::run(nodes, &Job::new(["sh", "-c", script]))?.checked()?;
        found.push((name.to_owned(), outcome.stdout.trim().to_owned()));
    }
    Ok(found)
}

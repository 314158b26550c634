// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a bench runs: programs, libraries, the device.
//!
//! Given by the caller of the bench; read by what makes command lines. Grade: setup. Plain data.

use super::hosts::Hosts;
use crate::catalogue::device_kind::Kind;
use std::path::Path;

/// What a run over a transport needs to know of the place it runs in.
#[derive(Clone, Copy, Debug)]
pub struct Where<'a> {
    /// The folder of the compiled programs.
    pub programs: &'a Path,
    /// The command `ibex`, which records for the study.
    pub command: &'a Path,
    /// The folder of the component links; none: Open MPI finds them by itself.
    pub components: Option<&'a Path>,
    /// The same of the build without events, where what events cost is measured.
    pub without_events: Option<&'a Path>,
    /// The folder of what a run leaves.
    pub reports: &'a Path,
    /// The RDMA device.
    pub device: &'a str,
    /// Its network interface, or the subnet of it, for the tcp BTL; empty where it has none.
    pub interface: &'a str,
    /// What sort of device it is.
    pub kind: Kind,
    /// Where both sides of a program that does not choose its processor itself are bound to.
    pub processors: Option<[usize; 2]>,
    /// The two hosts; none: both sides run where jobs run.
    pub hosts: Option<&'a Hosts>,
}

impl Where<'_> {
    /// What the numbers mean.
    pub(crate) fn remark(&self) -> String {
        match self.hosts {
            Some(hosts) if self.kind == Kind::Adapter => {
                format!(
                    "The two ranks, and the two sides of perftest, are on {} and {}.",
                    hosts.names()[0],
                    hosts.names()[1]
                )
            }
            _ => self.kind.remark().to_owned(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An adapter of this machine, and folders that are not there.
    pub(crate) fn place() -> Where<'static> {
        Where {
            programs: Path::new("/t/mpi"),
            command: Path::new("/t/bin/ibex"),
            components: Some(Path::new("/t/lib/openmpi")),
            without_events: Some(Path::new("/t/without/lib/openmpi")),
            reports: Path::new("/t/bench"),
            device: "rxe0",
            interface: "veth0",
            kind: Kind::Adapter,
            processors: None,
            hosts: None,
        }
    }
}

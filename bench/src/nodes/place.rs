// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of a bench: programs, libraries, the device, and the environment on which the numbers depend. The caller
//! of the bench fills it in; the files that make command lines read it. Grade: setup.

use super::hosts::Hosts;
use super::job::{self, Job, Nodes};
use crate::catalogue::{Kind, Mpi, Transport};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Place of a run.
#[derive(Clone, Copy, Debug)]
pub struct Where<'a> {
    /// The MPI that is measured.
    pub mpi: Mpi<'a>,
    /// Folder of the programs that it compiled.
    pub programs: &'a Path,
    /// The command `ibex`, which records for the study.
    pub command: &'a Path,
    /// Folder of the component links; `None`: Open MPI finds the components by itself.
    pub components: Option<&'a Path>,
    /// Folder of the component links of the build without events, if the cost of events is measured.
    pub without_events: Option<&'a Path>,
    /// Folder for the files of a run.
    pub reports: &'a Path,
    /// The RDMA device.
    pub device: &'a str,
    /// Its network interface, or the interface's subnet, for the tcp BTL; empty if it has none.
    pub interface: &'a str,
    /// Kind of the device.
    pub kind: Kind,
    /// Processors for both sides of a program that does not bind itself.
    pub processors: Option<[usize; 2]>,
    /// The two hosts; `None`: both sides run on one.
    pub hosts: Option<&'a Hosts>,
}

impl<'a> Where<'a> {
    /// Returns the folder of the programs for a transport.
    pub(crate) fn programs_over(&self, transport: Transport) -> &'a Path {
        match self.mpi {
            Mpi::Stock(stock) if transport == Transport::Ucx => stock.of_debian,
            _ => self.programs,
        }
    }

    /// Describes the device and the hosts for a reader.
    pub fn title(&self) -> String {
        let kind = match self.kind {
            Kind::SoftHca => " (an emulated adapter)",
            Kind::SoftRoce => " (a software adapter)",
            Kind::Adapter => "",
        };
        let between = self.hosts.map(|hosts| format!(" between {}", hosts.names().join(" and ")));
        format!("{}{kind}{}", self.device, between.unwrap_or_default())
    }

    /// Returns the folder of the libfabric provider, beside that of the components.
    pub(crate) fn provider(&self) -> Option<PathBuf> {
        self.components.map(|components| components.with_file_name("libfabric"))
    }

    /// Returns the environment of a program over the provider.
    pub(crate) fn of_provider(&self) -> impl Iterator<Item = (String, String)> {
        let path = self.provider().map(|folder| ("FI_PROVIDER_PATH".to_owned(), folder.display().to_string()));
        path.into_iter().chain([("FI_PROVIDER".to_owned(), "ibex".to_owned())])
    }

    pub(crate) fn remark(&self) -> String {
        let emulated = |what| {
            format!(
                "These numbers come from {what}: use them to compare software overhead, not to predict the speed of an \
                 adapter."
            )
        };
        match (self.kind, self.hosts) {
            (Kind::Adapter, Some(hosts)) => {
                format!("The two ranks, and the two sides of perftest, are on {}.", hosts.names().join(" and "))
            }
            (Kind::Adapter, None) => "Both ranks are on this machine.".to_owned(),
            (Kind::SoftRoce, _) => emulated("a software adapter"),
            (Kind::SoftHca, _) => emulated("an emulated adapter, which moves data with the processor"),
        }
    }

    /// Returns the environment on which the numbers depend, as names and values: kernel, processor, versions.
    pub(crate) fn environment(&self, nodes: &dyn Nodes) -> Result<Vec<(String, String)>> {
        let mut facts = vec![
            ("Kernel", "uname -sr"),
            ("Processors", "nproc"),
            ("Processor", "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1"),
            ("Virtual machine", "grep -q hypervisor /proc/cpuinfo && echo yes || echo no"),
            ("UCX", "dpkg-query --show --showformat='${Version}' libucx0 2>/dev/null || echo unknown"),
            ("perftest", "dpkg-query --show --showformat='${Version}' perftest 2>/dev/null || echo unknown"),
        ];
        let launcher;
        match self.mpi {
            Mpi::OpenMpi => facts.push(("Open MPI", "mpirun --version | head -n 1")),
            Mpi::Stock(stock) => {
                launcher = format!("{} --version | grep -m 1 Version", stock.folder.join("bin/mpiexec").display());
                facts.push((stock.family.name(), &launcher));
                facts.push(("MPICH over UCX", "mpiexec.mpich --version 2>&1 | grep -m 1 -e Version -e 'not found'"));
            }
        }
        let mut found = vec![("ibex".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        found.push(("Device".to_owned(), self.device.to_owned()));
        found.push(("Interface".to_owned(), self.interface.to_owned()));
        if let Some(hosts) = self.hosts {
            found.push(("Hosts".to_owned(), hosts.names().join(", ")));
        }
        for (name, script) in facts {
            let outcome = job::run(nodes, &Job::new(["sh", "-c", script]))?.checked()?;
            found.push((name.to_owned(), outcome.stdout.trim().to_owned()));
        }
        Ok(found)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::catalogue::{Family, Stock};

    pub(crate) fn stock_place(family: Family) -> Where<'static> {
        let [folder, provider, of_debian] = ["/t/stock", "/t/lib/libfabric", "/t/debian"].map(Path::new);
        Where { mpi: Mpi::Stock(Stock { family, folder, provider, of_debian }), ..place() }
    }

    pub(crate) fn place() -> Where<'static> {
        Where {
            mpi: Mpi::OpenMpi,
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

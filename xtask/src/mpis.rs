// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs the MPIs of the Python package index for the libfabric provider, as users of mpi4py install them. Each is
//! pinned by checksums and gets a Python environment of its own in the target folder, where programs are compiled: for
//! `test` those of hw-tests/mpi that need no Open MPI, for `bench` those that measure. Grade: setup. Tests: below.

use crate::workspace::Workspace;
use crate::{build, python};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// An MPI, its list of packages, and the variable by which tests find its environment.
pub(crate) struct Stock {
    pub(crate) name: &'static str,
    variable: &'static str,
    pub(crate) list: &'static str,
}

pub(crate) const MPICH: Stock = Stock { name: "MPICH", variable: "IBEX_MPICH", list: "hw-tests/mpis/mpich.txt" };

pub(crate) const OPEN_MPI: Stock =
    Stock { name: "Open MPI", variable: "IBEX_OPEN_MPI", list: "hw-tests/mpis/openmpi.txt" };

pub(crate) const INTEL: Stock =
    Stock { name: "Intel MPI", variable: "IBEX_INTEL_MPI", list: "hw-tests/mpis/intel.txt" };

impl Stock {
    /// Its folder, whether it is there or not.
    pub(crate) fn folder(&self, workspace: &Workspace) -> PathBuf {
        workspace.shared_target().join("mpis").join(Path::new(self.list).file_stem().unwrap_or_default())
    }

    /// Installs it and compiles the programs of a folder into `to` of its own.
    pub(crate) fn ensure(&self, workspace: &Workspace, programs: &str, to: &str) -> Result<()> {
        let (folder, list) = (self.folder(workspace), workspace.root().join(self.list));
        python::ensure(&folder, &list).with_context(|| format!("{} cannot be installed", self.name))?;
        build::programs_of(workspace, programs, &folder.join("bin/mpicc"), &folder.join(to))
    }

    /// Installs it for the tests. Returns its variable and folder.
    pub(crate) fn for_tests(&self, workspace: &Workspace) -> Result<(&'static str, PathBuf)> {
        self.ensure(workspace, "hw-tests/mpi", "programs")?;
        Ok((self.variable, self.folder(workspace)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_package_has_one_version_and_its_checksums() {
        for stock in [MPICH, INTEL, OPEN_MPI] {
            let list = fs::read_to_string(Workspace::here().root().join(stock.list)).unwrap();
            let packages = list.split('\n').filter(|line| !line.starts_with(['#', ' ']) && !line.is_empty());
            for package in packages {
                assert!(package.contains("==") && package.ends_with(" \\"), "{package}");
            }
            assert!(list.contains("--hash=sha256:"), "{list}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs the MPIs of the Python package index for tests of the libfabric provider, as users of mpi4py install them.
//! Each is pinned by checksums and gets a Python environment of its own in the target folder, where the programs of
//! hw-tests/mpi are compiled that need no Open MPI. Called by `test`. Grade: setup. Tests: below.

use crate::workspace::Workspace;
use crate::{build, python};
use anyhow::{Context, Result};
use std::path::PathBuf;

/// An MPI, its list of packages, and the variable by which tests find its environment.
pub(crate) struct Stock {
    pub(crate) name: &'static str,
    variable: &'static str,
    pub(crate) list: &'static str,
}

pub(crate) const MPICH: Stock = Stock { name: "MPICH", variable: "IBEX_MPICH", list: "hw-tests/mpis/mpich.txt" };

pub(crate) const OPEN_MPI: Stock =
    Stock { name: "Open MPI", variable: "IBEX_OPEN_MPI", list: "hw-tests/mpis/openmpi.txt" };

impl Stock {
    /// Installs it and compiles the programs into `programs` of its folder. Returns its variable and folder.
    pub(crate) fn ensure(&self, workspace: &Workspace) -> Result<(&'static str, PathBuf)> {
        let list = workspace.root().join(self.list);
        let name = list.file_stem().context("a list has a name")?;
        let folder = workspace.shared_target().join("mpis").join(name);
        python::ensure(&folder, &list).with_context(|| format!("{} cannot be installed", self.name))?;
        build::programs_of(workspace, &folder.join("bin/mpicc"), &folder.join("programs"))?;
        Ok((self.variable, folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_package_has_one_version_and_its_checksums() {
        for stock in [MPICH, OPEN_MPI] {
            let list = fs::read_to_string(Workspace::here().root().join(stock.list)).unwrap();
            let packages = list.split('\n').filter(|line| !line.starts_with(['#', ' ']) && !line.is_empty());
            for package in packages {
                assert!(package.contains("==") && package.ends_with(" \\"), "{package}");
            }
            assert!(list.contains("--hash=sha256:"), "{list}");
        }
    }
}

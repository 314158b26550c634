// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places of an installation's parts (docs/installing.md): a user's home, or a chosen folder. Called by [`super`].
//! Setup grade. Tests: tests.rs.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Place {
    pub(super) library: PathBuf,
    pub(super) components: PathBuf,
    /// Folder of the libfabric provider: a libfabric under the same prefix looks there.
    pub(super) provider: PathBuf,
    /// Folder of libraries as the component links name it.
    pub(super) link_to: PathBuf,
    pub(super) headers: PathBuf,
    pub(super) programs: PathBuf,
    /// Folder of manual pages and of completions for shells.
    pub(super) share: PathBuf,
    /// Folder that has, for each Open MPI, a folder of the programs that `ibex bench` runs.
    pub(super) bench: PathBuf,
    pub(super) manifests: PathBuf,
    /// Whether Open MPI looks there without a variable.
    pub(super) found_by_itself: bool,
}

/// Paths of the files for one Open MPI.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) library: PathBuf,
    pub(super) bench: PathBuf,
    pub(super) manifest: PathBuf,
}

impl Place {
    /// Returns the place in a user's home, where Open MPI looks by itself.
    pub(super) fn of_user(home: &Path) -> Self {
        let local = home.join(".local");
        Self {
            components: home.join(".openmpi/components"),
            link_to: local.join("lib"),
            found_by_itself: true,
            ..Self::under(&local)
        }
    }

    pub(super) fn under(prefix: &Path) -> Self {
        Self {
            library: prefix.join("lib"),
            components: prefix.join("lib/openmpi"),
            provider: prefix.join("lib/libfabric"),
            link_to: "..".into(),
            headers: prefix.join("include/ibex"),
            programs: prefix.join("bin"),
            share: prefix.join("share"),
            bench: prefix.join("libexec/ibex"),
            manifests: prefix.join("share/ibex"),
            found_by_itself: false,
        }
    }

    /// Returns the given folder, or the user's home.
    pub(super) fn chosen(prefix: Option<&Path>) -> Result<Self> {
        if let Some(prefix) = prefix {
            let prefix = std::path::absolute(prefix).with_context(|| format!("{} is not a path", prefix.display()))?;
            return Ok(Self::under(&prefix));
        }
        let home = std::env::home_dir().context("this user has no home folder; give --prefix DIR")?;
        Ok(Self::of_user(&home))
    }

    pub(super) fn set(&self, name: &str) -> Set {
        Set {
            name: name.to_owned(),
            library: self.library.join("ibex").join(name),
            bench: self.bench.join(name),
            manifest: self.manifests.join(format!("{name}.json")),
        }
    }

    /// Returns the manifest of the files that all Open MPIs share.
    pub(super) fn manifest(&self) -> PathBuf {
        self.manifests.join("manifest.json")
    }

    /// Returns the variable and value by which Open MPI finds the components.
    pub(super) fn variable(&self) -> (&'static str, String) {
        ("OMPI_MCA_mca_base_component_path", format!("{}:SYSTEM_DEFAULT", self.components.display()))
    }
}

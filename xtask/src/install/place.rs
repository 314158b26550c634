// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the parts of an installation go: a user's home, or a folder of one's choice.
//!
//! ```text
//! lib/ibex/openmpi-4.1.4/          libibex.so and the logger for one Open MPI; a link `openmpi` to its libopen-pal.so
//! lib/ibex/ibex-chooser.so         what each Open MPI loads, and which hands it its libibex.so
//! lib/libibex.so, libibex-log.so   links to those of the Open MPI that was installed for first
//! lib/openmpi/                     the component links (in a home: ~/.openmpi/components)
//! libexec/ibex/openmpi-4.1.4/      the programs of `ibex bench`, compiled with that Open MPI
//! bin/, include/ibex/, share/      what is the same for every Open MPI
//! share/ibex/manifest.json         of what is the same for all; openmpi-4.1.4.json: of one
//! ```
//!
//! Grade: setup. Called by [`super`]. Tests: tests.rs.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Place {
    pub(super) library: PathBuf,
    pub(super) components: PathBuf,
    /// What these links say to be in the folder of libraries.
    pub(super) link_to: PathBuf,
    pub(super) headers: PathBuf,
    pub(super) programs: PathBuf,
    /// Folder of manual pages and of completions for shells.
    pub(super) share: PathBuf,
    /// Folder with a folder for each Open MPI, of the programs that `ibex bench` runs.
    pub(super) bench: PathBuf,
    pub(super) manifests: PathBuf,
    /// Whether Open MPI looks there without being told.
    pub(super) found_by_itself: bool,
}

/// Where that goes which is for one Open MPI.
#[derive(Debug)]
pub(super) struct Set {
    /// `openmpi-4.1.4`
    pub(super) name: String,
    pub(super) library: PathBuf,
    pub(super) bench: PathBuf,
    pub(super) manifest: PathBuf,
}

impl Place {
    /// In a user's home, where Open MPI looks by itself.
    pub(super) fn of_user(home: &Path) -> Self {
        let local = home.join(".local");
        Self {
            components: home.join(".openmpi/components"),
            link_to: local.join("lib"),
            found_by_itself: true,
            ..Self::under(&local)
        }
    }

    /// Everything under one folder.
    pub(super) fn under(prefix: &Path) -> Self {
        Self {
            library: prefix.join("lib"),
            components: prefix.join("lib/openmpi"),
            link_to: "..".into(),
            headers: prefix.join("include/ibex"),
            programs: prefix.join("bin"),
            share: prefix.join("share"),
            bench: prefix.join("libexec/ibex"),
            manifests: prefix.join("share/ibex"),
            found_by_itself: false,
        }
    }

    /// The folder that was given; the user's home where none was.
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

    /// The manifest of what is the same for every Open MPI.
    pub(super) fn manifest(&self) -> PathBuf {
        self.manifests.join("manifest.json")
    }

    /// What Open MPI has to be told to look for components there: a variable and its value.
    pub(super) fn variable(&self) -> (&'static str, String) {
        ("OMPI_MCA_mca_base_component_path", format!("{}:SYSTEM_DEFAULT", self.components.display()))
    }
}

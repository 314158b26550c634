// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the parts of an installation go: a user's home, or a folder of one's choice.
//!
//! Grade: setup. Called by [`super`]. Tests: tests.rs.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Where an installation goes.
#[derive(Debug)]
pub(super) struct Place {
    /// Folder of `libibex.so`.
    pub(super) library: PathBuf,
    /// Folder of the component links.
    pub(super) components: PathBuf,
    /// What the links say, followed by the library's name.
    pub(super) link_to: PathBuf,
    /// Folder of the headers.
    pub(super) headers: PathBuf,
    /// Folder of the command `ibex`.
    pub(super) programs: PathBuf,
    /// Folder of manual pages and of completions for shells.
    pub(super) share: PathBuf,
    /// Folder of the programs that `ibex bench` runs, which it finds from where it is itself.
    pub(super) bench: PathBuf,
    pub(super) manifest: PathBuf,
    /// Whether Open MPI looks there without being told.
    found_by_itself: bool,
}

impl Place {
    /// In a user's home, where Open MPI looks by itself.
    pub(super) fn of_user(home: &Path) -> Self {
        let local = home.join(".local");
        Self {
            library: local.join("lib"),
            components: home.join(".openmpi/components"),
            link_to: local.join("lib"),
            headers: local.join("include/ibex"),
            programs: local.join("bin"),
            share: local.join("share"),
            bench: local.join("libexec/ibex"),
            manifest: local.join("share/ibex/manifest.json"),
            found_by_itself: true,
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
            manifest: prefix.join("share/ibex/manifest.json"),
            found_by_itself: false,
        }
    }

    /// The folder that was given; the user's home where none was.
    ///
    /// # Errors
    /// It is no path, or the user has no home.
    pub(super) fn chosen(prefix: Option<&Path>) -> Result<Self> {
        if let Some(prefix) = prefix {
            let prefix = std::path::absolute(prefix).with_context(|| format!("{} is not a path", prefix.display()))?;
            return Ok(Self::under(&prefix));
        }
        let home = std::env::home_dir().context("this user has no home folder; give --prefix DIR")?;
        Ok(Self::of_user(&home))
    }

    /// The variable Open MPI needs to find the components, where it needs one.
    pub(super) fn variable(&self) -> Option<String> {
        let value = format!("{}:SYSTEM_DEFAULT", self.components.display());
        (!self.found_by_itself).then(|| format!("OMPI_MCA_mca_base_component_path={value}"))
    }
}

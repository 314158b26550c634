// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things are: the checkout, cargo's target folder, and what the commands put under it.
//!
//! ```text
//! target/ibex/lib/libibex.so               the one real file
//! target/ibex/lib/libibex-log.so           the logger, which looks for libibex.so beside it
//! target/ibex/lib/openmpi/mca_btl_ibex.so  -> ../libibex.so; nothing else is in this folder
//! target/ibex/mpi/                         the compiled MPI programs, and tools to preload
//! target/without-events/                   a target folder of its own: libibex.so without events
//! target/bench/                            report.json, report.html; study.json, study.md, study/ with traces
//! ```
//!
//! Grade: setup. Tests: at the end of this file.

use std::env;
use std::path::{Path, PathBuf};

/// The folders of one checkout.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// The checkout this program was built from, with cargo's own choice of target folder.
    pub(crate) fn here() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the package xtask is a folder of the workspace")
            .to_path_buf();
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Self { root, target }
    }

    /// The top folder of the checkout.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target folder.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// The same checkout with a target folder for the build without events.
    pub(crate) fn without_events(&self) -> Self {
        Self { root: self.root.clone(), target: self.target.join("without-events") }
    }

    /// Where the library of this build is.
    pub(crate) fn library(&self) -> PathBuf {
        self.target.join("ibex/lib/libibex.so")
    }

    /// The folder to name in `mca_base_component_path`.
    pub(crate) fn components(&self) -> PathBuf {
        self.target.join("ibex/lib/openmpi")
    }

    /// Where compiled MPI programs go.
    pub(crate) fn programs(&self) -> PathBuf {
        self.target.join("ibex/mpi")
    }

    /// Where the bench leaves its reports.
    pub(crate) fn reports(&self) -> PathBuf {
        self.target.join("bench")
    }

    /// The C headers tools compile against.
    pub(crate) fn headers(&self) -> PathBuf {
        self.root.join("plugin-abi/include")
    }

    /// Where the manual pages and completions of the command go that is built to be installed.
    pub(crate) fn share(&self) -> PathBuf {
        self.target.join("ibex/share")
    }

    /// A path as a reader wants it: relative to the checkout where it is inside.
    pub(crate) fn shown<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_folder_of_the_workspace_manifest() {
        let workspace = Workspace::here();
        let manifest = std::fs::read_to_string(workspace.root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"), "{}", workspace.root().display());
    }

    #[test]
    fn a_path_inside_the_checkout_is_shown_relative_to_it() {
        let workspace = Workspace::here();
        assert_eq!(workspace.shown(&workspace.root().join("a/b")), Path::new("a/b"));
        assert_eq!(workspace.shown(Path::new("/elsewhere")), Path::new("/elsewhere"));
    }
}

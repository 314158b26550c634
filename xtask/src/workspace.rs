// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths: the checkout, cargo's target folder, and the outputs of the commands under it. Grade: setup. Tests: below.
//!
//! ```text
//! target/ibex/lib/libibex.so               the one real file
//! target/ibex/lib/libibex-log.so           the logger, which looks for libibex.so beside it
//! target/ibex/lib/openmpi/mca_btl_ibex.so  -> ../libibex.so; nothing else is in this folder
//! target/ibex/lib/libfabric/               libibex-fi.so, the libfabric provider; libibex-mpi4.so for its recorder
//! target/ibex/mpi/                         the compiled MPI programs, and tools to preload
//! target/ibex/openmpi                      which Open MPI this folder was built for by `install`
//! target/openmpi-5.0.7-1a2b3c4d/           target folder for another Open MPI
//! target/without-events/                   target folder for libibex.so without events
//! target/bench/                            report.json; study.json, study.md, study/ with traces
//! ```

use crate::command::cargo;
use crate::manifest::{hash_of, replace_file};
use crate::openmpi::OpenMpi;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    /// Target folder of packages that are the same for every Open MPI.
    shared: PathBuf,
    /// `None`: the build scripts find one.
    openmpi: Option<OpenMpi>,
}

impl Workspace {
    /// Returns the checkout of this program, with cargo's own choice of target folder.
    pub(crate) fn here() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the package xtask is a folder of the workspace")
            .to_path_buf();
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Self { root, shared: target.clone(), target, openmpi: None }
    }

    /// Returns the same checkout for another Open MPI. The first one has cargo's target folder, each further one a
    /// folder in it, so that changing between them compiles nothing again.
    pub(crate) fn for_openmpi(&self, openmpi: &OpenMpi) -> Result<Self> {
        let stamp = self.shared.join("ibex/openmpi");
        let this = format!("{} {}\n", openmpi.release, openmpi.prefix.display());
        let target = match fs::read_to_string(&stamp) {
            Ok(built_for) if built_for != this => {
                self.shared.join(format!("openmpi-{}-{}", openmpi.release, &hash_of(this.as_bytes())[..8]))
            }
            Ok(_) => self.shared.clone(),
            Err(_) => {
                let folder = self.shared.join("ibex");
                fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
                replace_file(&stamp, this.as_bytes())?;
                self.shared.clone()
            }
        };
        Ok(Self { target, openmpi: Some(openmpi.clone()), ..self.clone() })
    }

    /// Returns a cargo command that builds for this Open MPI into its target folder.
    pub(crate) fn cargo_build(&self) -> Command {
        let mut command = cargo(&self.root);
        command.args(["build", "--target-dir"]).arg(&self.target);
        command.envs(self.openmpi.iter().flat_map(OpenMpi::variables));
        command
    }

    pub(crate) fn mpicc(&self) -> PathBuf {
        self.openmpi.as_ref().map_or_else(|| "mpicc".into(), |openmpi| openmpi.mpicc.clone())
    }

    pub(crate) fn shared_target(&self) -> &Path {
        &self.shared
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn without_events(&self) -> Self {
        Self { target: self.target.join("without-events"), ..self.clone() }
    }

    #[cfg(test)]
    pub(crate) fn in_target(&self, target: &Path) -> Self {
        Self { target: target.to_path_buf(), shared: target.to_path_buf(), ..self.clone() }
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.target.join("ibex/lib/libibex.so")
    }

    /// Returns the folder to name in `mca_base_component_path`.
    pub(crate) fn components(&self) -> PathBuf {
        self.target.join("ibex/lib/openmpi")
    }

    pub(crate) fn programs(&self) -> PathBuf {
        self.target.join("ibex/mpi")
    }

    pub(crate) fn chooser(&self) -> PathBuf {
        self.shared.join("ibex/lib/ibex-chooser.so")
    }

    pub(crate) fn reports(&self) -> PathBuf {
        self.target.join("bench")
    }

    pub(crate) fn headers(&self) -> PathBuf {
        self.root.join("plugin-abi/include")
    }

    /// Returns the folder for manual pages and completions of the installed command.
    pub(crate) fn share(&self) -> PathBuf {
        self.shared.join("ibex/share")
    }

    /// Returns a path relative to the checkout, if it is inside.
    pub(crate) fn shown<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::install::tests::scratch;
    use crate::openmpi::tests::open_mpi;

    #[test]
    fn a_path_inside_the_checkout_is_shown_relative_to_it() {
        let workspace = Workspace::here();
        assert_eq!(workspace.shown(&workspace.root().join("a/b")), Path::new("a/b"));
        assert_eq!(workspace.shown(Path::new("/elsewhere")), Path::new("/elsewhere"));
    }

    #[test]
    fn each_open_mpi_keeps_the_target_folder_that_it_was_built_in() {
        let folder = scratch();
        let target = folder.path().join("target");
        let workspace = Workspace::here().in_target(&target);
        let openmpi = |name: &str, release: &str| {
            let prefix = folder.path().join(name);
            open_mpi(&prefix, release);
            OpenMpi::choose(Some(&prefix), &Environment::default()).unwrap().openmpi
        };
        let (first, second) = (openmpi("a", "4.1.6"), openmpi("b", "5.0.7"));
        assert_eq!(workspace.for_openmpi(&first).unwrap().target(), target);
        let other = workspace.for_openmpi(&second).unwrap();
        assert!(other.target().display().to_string().contains("target/openmpi-5.0.7-"), "{other:?}");
        assert_eq!((other.shared_target(), other.mpicc()), (target.as_path(), second.mpicc.clone()));
        assert_eq!(workspace.for_openmpi(&second).unwrap().target(), other.target());
        assert_eq!(workspace.for_openmpi(&first).unwrap().target(), target);
        assert_eq!(workspace.mpicc(), Path::new("mpicc"));
    }
}

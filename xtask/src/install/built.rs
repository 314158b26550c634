// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a build that are installed.
//!
//! Grade: setup. Read by [`super::put`]. Tests: tests.rs.

use crate::workspace::Workspace;
use std::path::{Path, PathBuf};

/// The programs of `benches/mpi`, with which `ibex bench` measures.
pub(super) const BENCH_PROGRAMS: [&str; 2] = ["ibex_mpi_bench", "ibex_mpi_instructions"];

/// Built files to install.
pub(super) struct Built {
    /// `libibex.so`; the logger is in the same folder.
    pub(super) library: PathBuf,
    /// The component that loads the library of the running Open MPI.
    pub(super) chooser: PathBuf,
    /// The folder of the headers.
    pub(super) headers: PathBuf,
    /// The command `ibex`.
    pub(super) command: PathBuf,
    /// The folder of its manual pages and completions.
    pub(super) share: PathBuf,
    /// The folder of [`BENCH_PROGRAMS`].
    pub(super) bench: PathBuf,
    /// The folder of the emulated adapter: the command `softhca` and its library.
    pub(super) adapter: PathBuf,
    /// The library `libopen-pal.so` of the Open MPI that it was built for, if found.
    pub(super) openmpi: Option<PathBuf>,
}

impl Built {
    /// From this checkout.
    pub(super) fn of(workspace: &Workspace, library: &Path, command: &Path, openmpi: Option<&Path>) -> Self {
        Self {
            library: library.to_path_buf(),
            chooser: workspace.chooser(),
            headers: workspace.headers(),
            command: command.to_path_buf(),
            share: workspace.share(),
            bench: workspace.programs(),
            adapter: workspace.shared_target().join("debug"),
            openmpi: openmpi.map(Path::to_path_buf),
        }
    }
}

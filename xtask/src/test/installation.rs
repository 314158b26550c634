// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of `cargo xtask test --all` that installs under a folder of the target folder, asks `ompi_info`,
//! uninstalls, and checks that nothing is left. Called by [`super`]. Grade: setup.

use crate::build::{self, Profile};
use crate::install;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::fs;

pub(super) fn comes_and_goes(workspace: &Workspace) -> Result<()> {
    build::library(workspace)?;
    build::command(workspace, Profile::Release)?;
    let prefix = workspace.target().join("ibex/installed");
    if prefix.exists() {
        fs::remove_dir_all(&prefix).with_context(|| format!("cannot remove {}", prefix.display()))?;
    }
    build::programs(workspace, "benches/mpi")?;
    build::emulated_adapter_pages(workspace)?;
    install::put_under(&prefix, workspace)?;
    for program in ["ibex", "softhca"] {
        let (program, page) = (prefix.join("bin").join(program), format!("share/man/man1/{program}.1"));
        if !program.is_file() || !prefix.join(&page).is_file() {
            bail!("an installation under {} has not both {} and its {page}", prefix.display(), program.display());
        }
    }
    for file in ["lib/libfabric/libibex-fi.so", "lib/libfabric/libibex-mpi4.so", "share/man/man7/fi_ibex.7"] {
        if !prefix.join(file).is_file() {
            bail!("an installation under {} has no {file}", prefix.display());
        }
    }
    install::take_away_from(&prefix)?;
    if prefix.exists() {
        bail!("uninstall left something in {}", prefix.display());
    }
    Ok(())
}

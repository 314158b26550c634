// SPDX-License-Identifier: MIT OR Apache-2.0
//! `install` puts the library where Open MPI finds it; `uninstall` removes exactly that.
//!
//! Without `--prefix`, the library goes under `~/.local` and its component link into `~/.openmpi/components`, where a
//! stock Open MPI looks by itself. With `--prefix DIR` everything goes under DIR, and Open MPI is told by a variable.
//! The library is one file, and each component a symlink, because two copies would be two instances. The MPI programs
//! of `ibex bench` are compiled here, because they depend on the Open MPI, and the hosts of a cluster often have no
//! compiler.
//!
//! [`crate::openmpi`] finds the Open MPI to build for. Each Open MPI has its own library ([`sets`]), and one component
//! that all of them load chooses it (`plugin-abi/chooser`). [`place`] has the paths, [`put`] copies the files,
//! [`check`] checks that Open MPI finds the components. Grade: setup. Tests: install/tests.rs.

use crate::build;
use crate::command::step;
use crate::environment::Environment;
use crate::manifest::{Manifest, Owner};
use crate::openmpi::{Choice, OpenMpi};
use crate::setup::{self, Need};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod check;
mod place;
mod put;
mod sets;

use place::Place;
use put::Built;
pub(crate) use put::files_under;

#[derive(clap::Args)]
pub(crate) struct InstallArguments {
    /// Install under this folder [default: your own home, where Open MPI looks by itself]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// The Open MPI to install for: the folder it was installed under, or its mpicc [default: what MPICC, `OMPI_DIR` or
    /// `MPI_HOME` name, else the mpicc of PATH]
    #[arg(long, value_name = "PREFIX")]
    mpi: Option<PathBuf>,
    /// A source tree of the same tag, for headers that the installation lacks
    #[arg(long, value_name = "DIR")]
    openmpi_source: Option<PathBuf>,
    /// Only list the Open MPIs for which ibex is installed here
    #[arg(long, conflicts_with_all = ["mpi", "openmpi_source"])]
    list: bool,
}

#[derive(clap::Args)]
pub(crate) struct UninstallArguments {
    /// The folder that was given to `install`
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Remove only the files for this Open MPI, named by its prefix or its release [default: everything]
    #[arg(long, value_name = "PREFIX")]
    mpi: Option<PathBuf>,
}

pub(crate) fn install(arguments: &InstallArguments) -> Result<ExitCode> {
    let place = Place::chosen(arguments.prefix.as_deref())?;
    if arguments.list {
        return list(&place);
    }
    let openmpi = openmpi(arguments)?;
    let workspace = Workspace::here().for_openmpi(&openmpi)?;
    build::library(&workspace)?;
    build::command(&workspace, build::Profile::Release)?;
    build::programs(&workspace, "benches/mpi")?;
    build::emulated_adapter(&workspace)?;
    build::chooser(&workspace)?;
    step(&format!("Installing for {openmpi}"));
    let manifests = put::put(&place, &Built::of(&workspace, &openmpi), &owner(&openmpi))?;
    for path in manifests.iter().flat_map(Manifest::paths) {
        println!("    {}", path.display());
    }
    check::ensure_that_open_mpi_sees_it(&place, &openmpi)?;
    let library = manifests[0].files.first().map_or_else(|| workspace.library(), |file| file.path.clone());
    print!("{}", check::how_to_run(&place, &library, check::path_of_ranks(&openmpi).as_deref()));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn uninstall(arguments: &UninstallArguments) -> Result<ExitCode> {
    let place = Place::chosen(arguments.prefix.as_deref())?;
    let removed = match &arguments.mpi {
        Some(name) => put::take_away_one(&place, name)?,
        None => put::take_away(&place)?,
    };
    for path in removed {
        println!("removed {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn list(place: &Place) -> Result<ExitCode> {
    let all = sets::all(place)?;
    if all.is_empty() {
        println!("ibex is installed for no Open MPI here ({}).", place.library.display());
    }
    for installed in &all {
        println!("{installed} (ibex {})", installed.manifest.version);
        for changed in installed.manifest.changed() {
            println!("    changed since: {changed}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the Open MPI to install for, after all requirements of the build are met.
fn openmpi(arguments: &InstallArguments) -> Result<OpenMpi> {
    let environment = Environment::here();
    let choose = || OpenMpi::choose(arguments.mpi.as_deref(), &environment);
    let Choice { openmpi, others } = match choose() {
        Ok(choice) => {
            setup::ensure(&environment, None, &[])?;
            choice
        }
        Err(error) if arguments.mpi.is_some() || environment.variable("MPICC").is_some() => return Err(error),
        Err(error) => {
            println!("{error:#}");
            setup::ensure(&environment, None, &[Need::OpenMpi])?;
            choose()?
        }
    };
    for other in others {
        println!("{other}");
    }
    println!("Building for {openmpi}.");
    openmpi.with_source(arguments.openmpi_source.as_deref())
}

fn owner(openmpi: &OpenMpi) -> Owner {
    Owner { release: openmpi.release.clone(), prefix: openmpi.prefix.clone() }
}

/// Installs under a prefix for the Open MPI that the build scripts find, and asks that Open MPI.
pub(crate) fn put_under(prefix: &Path, workspace: &Workspace) -> Result<()> {
    let openmpi = OpenMpi::choose(None, &Environment::here())?.openmpi;
    build::chooser(workspace)?;
    openmpi.program("ompi_info").context("there is no ompi_info beside mpicc to ask")?;
    let place = Place::under(prefix);
    put::put(&place, &Built::of(workspace, &openmpi), &owner(&openmpi))?;
    check::ensure_that_open_mpi_sees_it(&place, &openmpi)
}

pub(crate) fn take_away_from(prefix: &Path) -> Result<()> {
    put::take_away(&Place::under(prefix)).map(drop)
}

#[cfg(test)]
pub(crate) mod tests;

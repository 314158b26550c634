// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that Open MPI finds the installed components, and advises the user.
//!
//! An Open MPI 5 may need two variables. Its `mpirun` passes PMIx' parameters to the ranks as Open MPI's own, including
//! `mca_base_component_path`: if PMIx sets it, as Debian's does, the ranks look nowhere else. And PMIx complains about
//! the files in Open MPI's folder, unless it has a path of its own. Grade: setup. Called by [`super`]. Tests: tests.rs.

use super::place::Place;
use crate::command::output;
use crate::openmpi::OpenMpi;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

const COMPONENT_PATH: &str = "OMPI_MCA_mca_base_component_path";

pub(super) fn ensure_that_open_mpi_sees_it(place: &Place, openmpi: &OpenMpi) -> Result<()> {
    let Some(program) = openmpi.program("ompi_info") else {
        println!(
            "There is no ompi_info beside {}, so nothing checked that Open MPI finds it.",
            openmpi.mpicc.display()
        );
        return Ok(());
    };
    let mut ompi_info = Command::new(&program);
    ompi_info.arg("--parsable").env_remove(COMPONENT_PATH);
    let (name, value) = place.variable();
    if !place.found_by_itself {
        ompi_info.env(name, &value);
    }
    let listing = output(&mut ompi_info)?;
    let is_listed = |component: &&str| listing.lines().any(|line| line.starts_with(*component));
    // The last is a component of Open MPI's own, which a fault in the folder would hide.
    if ["mca:pml:ibex:", "mca:btl:ibex:", "mca:btl:self:"].iter().all(is_listed) {
        return Ok(());
    }
    bail!(
        "it is installed, but {} does not list it beside its own; `ompi_info --mca mca_base_component_show_load_errors 1{}` says why",
        program.display(),
        if place.found_by_itself { String::new() } else { format!("` with {name}={value} in the environment `") }
    )
}

/// Returns the path that `mpirun` passes to the ranks for their components, if it does.
pub(super) fn path_of_ranks(openmpi: &OpenMpi) -> Option<String> {
    let is_older = openmpi.release.split('.').next().and_then(|major| major.parse::<u32>().ok()) < Some(5);
    let mpirun = openmpi.program("mpirun").filter(|_| !is_older)?;
    let mut job = Command::new("timeout");
    job.arg("30").arg(mpirun).args(["-n", "1", "printenv", COMPONENT_PATH]);
    job.env_remove(COMPONENT_PATH).env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let said = job.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?.stdout;
    String::from_utf8_lossy(&said).lines().next().map(str::trim).filter(|path| !path.is_empty()).map(str::to_owned)
}

/// Returns the advice for the user. `path_of_ranks` is the result of [`path_of_ranks`].
pub(super) fn how_to_run(place: &Place, library: &Path, path_of_ranks: Option<&str>) -> String {
    let (name, value) = place.variable();
    let found = match path_of_ranks {
        Some(path) => format!(
            "The mpirun of this Open MPI has its ranks look for components in {path} alone, as PMIx is told to. Tell both where\n    \
             export {name}={value}\n    export {}={path}\n",
            name.replace("OMPI", "PMIX"),
        ),
        None if place.found_by_itself => String::new(),
        None => format!(
            "Open MPI finds it with\n    export {name}={value}\n\
             or, for every user of the machine, with this line in openmpi-mca-params.conf\n    \
             mca_base_component_path = {value}\n",
        ),
    };
    let ibex = place.programs.join("ibex");
    let ibex = ibex.display();
    format!(
        "\n{found}See what it makes of this host:\n    {ibex} info\n\
         Measure it:\n    {ibex} bench\n\
         Run a program over it:\n    mpirun -n 2 ./app\n\
         Record one, and look at its messages:\n    {ibex} trace -o run -- mpirun -n 2 ./app\n    {ibex} view run\n\
         See its parameters:\n    ompi_info --param pml ibex --level 9\n    ompi_info --param btl ibex --level 9\n\
         See its events:\n    mpirun -n 2 -x LD_PRELOAD={} -x IBEX_LOG_EVENTS=all ./app\n",
        library.with_file_name("libibex-log.so").display()
    )
}

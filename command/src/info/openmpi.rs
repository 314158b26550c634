// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Open MPI of `PATH`: its version, where it looks for components, and which of ibex' it finds there.
//!
//! Asked of its own `ompi_info`, which opens no component. Called by [`super`]. Grade: setup. Tests: below.

use crate::answer::rows;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What was found.
#[derive(Serialize)]
pub(super) struct OpenMpi {
    mpirun: PathBuf,
    version: String,
    /// Folders in which it looks, in order.
    folders: Vec<PathBuf>,
    components: Vec<Component>,
}

/// A component of ibex in one of these folders.
#[derive(Serialize)]
struct Component {
    name: &'static str,
    /// The file it is, links followed; none: no folder has it.
    file: Option<PathBuf>,
}

const COMPONENTS: [&str; 2] = ["mca_pml_ibex.so", "mca_btl_ibex.so"];

/// Looks for `mpirun` and asks the `ompi_info` beside it.
pub(super) fn look() -> Option<OpenMpi> {
    let mpirun = in_path("mpirun")?;
    let info = mpirun.with_file_name("ompi_info");
    let answer = Command::new(info).args(["--parsable", "--all"]).output().ok()?;
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    let folders = folders(&answer);
    let component = |name| Component { name, file: folders.iter().find_map(|folder| found(folder, name)) };
    let components = COMPONENTS.into_iter().map(component).collect();
    Some(OpenMpi {
        mpirun,
        version: value(&answer, "ompi:version:full:").unwrap_or("unknown").to_owned(),
        folders,
        components,
    })
}

fn in_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The file of a component, if the folder has one that can be opened.
fn found(folder: &Path, name: &str) -> Option<PathBuf> {
    fs::canonicalize(folder.join(name)).ok()
}

fn value<'a>(answer: &'a str, key: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(key))
}

/// `mca_base_component_path`: `SYSTEM_DEFAULT` and `USER_DEFAULT` stand for two folders.
fn folders(answer: &str) -> Vec<PathBuf> {
    let path =
        value(answer, "mca:mca:base:param:mca_base_component_path:value:").unwrap_or("SYSTEM_DEFAULT:USER_DEFAULT");
    // Colons are escaped in what can be parsed.
    let path = path.replace("\\:", ":");
    let path = path.trim_matches('"').split(':').filter(|folder| !folder.is_empty());
    let folder = |name: &str| match name {
        "SYSTEM_DEFAULT" => value(answer, "path:pkglibdir:").map(PathBuf::from),
        "USER_DEFAULT" => env::home_dir().map(|home| home.join(".openmpi/components")),
        other => Some(PathBuf::from(other)),
    };
    path.filter_map(folder).collect()
}

impl fmt::Display for OpenMpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders: Vec<String> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        let found = [("mpirun", self.mpirun.display().to_string()), ("looks for components in", folders.join("\n"))];
        write!(f, "Open MPI {}\n{}", self.version, rows(2, found))?;
        let file = |component: &Component| match &component.file {
            Some(file) => file.display().to_string(),
            None => "not installed: `cargo xtask install` does it".to_owned(),
        };
        write!(f, "{}", rows(2, self.components.iter().map(|component| (component.name, file(component)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "ompi:version:full:4.1.4\npath:pkglibdir:/usr/lib/openmpi\n\
                          mca:mca:base:param:mca_base_component_path:value:/opt/ibex/openmpi:SYSTEM_DEFAULT\n";

    #[test]
    fn open_mpi_looks_for_components_where_it_says() {
        assert_eq!(folders(ANSWER), ["/opt/ibex/openmpi", "/usr/lib/openmpi"].map(PathBuf::from));
        let default = folders("path:pkglibdir:/usr/lib/openmpi\n");
        assert_eq!(default[0], Path::new("/usr/lib/openmpi"));
        assert!(default.len() < 2 || default[1].ends_with(".openmpi/components"));
    }

    #[test]
    fn a_component_that_is_not_there_is_told_with_what_to_do() {
        let components = vec![Component { name: COMPONENTS[0], file: None }];
        let openmpi =
            OpenMpi { mpirun: "/usr/bin/mpirun".into(), version: "4.1.4".into(), folders: vec![], components };
        assert!(openmpi.to_string().contains("mca_pml_ibex.so  not installed: `cargo xtask install`"));
    }
}

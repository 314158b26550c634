// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party programs that read exports in tests and are in no Debian package: Python packages (85 MB to fetch, 300
//! MB on the disk), and a program with Paraver's parser, built if the sources of Paraver's kernel are there (LGPL,
//! neither copied nor linked into ibex). They are kept in the target folder until the list of packages changes. Called
//! by `test.rs`, which passes their paths to the tests by variables (export/tests/readers). Grade: setup. Tests: below.

use crate::command::quietly;
use crate::python;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: &str = "export/tests/readers/requirements.txt";
const PROGRAM: &str = "export/tests/readers/read_paraver.cpp";
/// Variable with the folder of the sources of Paraver's kernel (bsc-performance-tools/paraver-kernel).
const KERNEL: &str = "IBEX_PARAVER_KERNEL";
const PARSER: &str = "utils/traceparser";

/// Returns the readers, each with its variable for the tests, and the reasons why others are missing.
pub(crate) fn ensure(workspace: &Workspace) -> (Vec<(&'static str, PathBuf)>, Vec<String>) {
    let (mut ready, mut missing) = (Vec::new(), Vec::new());
    let mut sort = |variable, what: &str, reader: Result<PathBuf>| match reader {
        Ok(place) => ready.push((variable, place)),
        Err(error) => missing.push(format!("exports read by {what}: {error:#}")),
    };
    sort("IBEX_PYTHON", "Python packages", python_with_packages(workspace));
    sort("IBEX_PARAVER_READER", "Paraver's parser", paraver(workspace));
    (ready, missing)
}

fn python_with_packages(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("readers/python");
    python::ensure(&folder, &workspace.root().join(PACKAGES))?;
    Ok(folder.join("bin/python"))
}

fn paraver(workspace: &Workspace) -> Result<PathBuf> {
    let kernel = std::env::var_os(KERNEL).with_context(|| format!("{KERNEL} names no sources of its kernel"))?;
    let folder = workspace.target().join("readers");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (source, program) = (workspace.root().join(PROGRAM), folder.join("read_paraver"));
    // An interrupted compiler leaves no program under the final name.
    let built = folder.join("reader.part");
    let parser = Path::new(&kernel).join(PARSER);
    quietly(Command::new("g++").args(["-std=c++17", "-w", "-I"]).arg(parser).arg("-o").args([&built, &source]))?;
    fs::rename(&built, &program).with_context(|| format!("cannot write {}", program.display()))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_has_one_version() {
        let list = fs::read_to_string(Workspace::here().root().join(PACKAGES)).unwrap();
        let packages: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(packages.iter().all(|line| line.split("==").count() == 2), "{packages:?}");
        assert!(packages.len() >= 3);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party programs that read exports in tests and are in no Debian package: Python packages, and Paraver's parser.
//!
//! Called by `test.rs`, which hands their places to the tests by variables (export/tests/readers). They are kept under the
//! target folder until what is asked for changes. The packages are 85 MB to fetch and 300 MB on the disk. Paraver's parser
//! is used by who has the sources of its kernel (LGPL, neither copied nor linked into ibex): a program of ours is built
//! with it. Grade: setup. Tests: at the end of this file.

use crate::command::quietly;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages, with their versions.
const PACKAGES: &str = "export/tests/readers/requirements.txt";
/// The program that reads with Paraver's parser.
const PROGRAM: &str = "export/tests/readers/read_paraver.cpp";
/// Names the folder with the sources of Paraver's kernel (bsc-performance-tools/paraver-kernel).
const KERNEL: &str = "IBEX_PARAVER_KERNEL";
/// The folder of it that has the parser.
const PARSER: &str = "utils/traceparser";

/// The readers that are there now, by the variables that tests know them by, and why others are not.
pub(crate) fn ensure(workspace: &Workspace) -> (Vec<(&'static str, PathBuf)>, Vec<String>) {
    let (mut ready, mut missing) = (Vec::new(), Vec::new());
    let mut sort = |variable, what: &str, reader: Result<PathBuf>| match reader {
        Ok(place) => ready.push((variable, place)),
        Err(error) => missing.push(format!("exports read by {what}: {error:#}")),
    };
    sort("IBEX_PYTHON", "Python packages", python(workspace));
    sort("IBEX_PARAVER_READER", "Paraver's parser", paraver(workspace));
    (ready, missing)
}

/// A virtual environment with the packages.
fn python(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("readers/python");
    let list = workspace.root().join(PACKAGES);
    // Written last: an environment that was interrupted has none.
    let kept = folder.join("requirements.txt");
    let interpreter = folder.join("bin/python");
    let wanted = fs::read(&list).with_context(|| format!("cannot read {}", list.display()))?;
    if fs::read(&kept).is_ok_and(|had| had == wanted) && works(&interpreter) {
        return Ok(interpreter);
    }
    // The one in PATH may be too old for the packages, or have no venv: then Debian's.
    let made = environment("python3", &folder, &list);
    made.or_else(|error| environment("/usr/bin/python3", &folder, &list).map_err(|_| error))?;
    fs::write(&kept, wanted).with_context(|| format!("cannot write {}", kept.display()))?;
    Ok(interpreter)
}

/// Whether the Python that the environment was made by is still there.
fn works(interpreter: &Path) -> bool {
    quietly(Command::new(interpreter).args(["-c", "pass"])).is_ok()
}

fn environment(base: &str, folder: &Path, list: &Path) -> Result<()> {
    quietly(Command::new(base).args(["-m", "venv", "--clear"]).arg(folder))?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-compile"]);
    // Nothing is compiled: what has no wheel for this Python is not to be had.
    install.args(["--only-binary", ":all:", "--retries", "1", "--timeout", "30", "--requirement"]).arg(list);
    quietly(&mut install)
}

/// The program that reads with Paraver's own parser.
fn paraver(workspace: &Workspace) -> Result<PathBuf> {
    let kernel = std::env::var_os(KERNEL).with_context(|| format!("{KERNEL} names no sources of its kernel"))?;
    let folder = workspace.target().join("readers");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (source, program) = (workspace.root().join(PROGRAM), folder.join("read_paraver"));
    // To a name of its own first: an interrupted compiler leaves no program that looks whole.
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

    #[test]
    fn a_python_that_is_missing_makes_no_environment_and_says_so() {
        let error = environment("no-such-python", Path::new("/nowhere"), Path::new("/nothing")).unwrap_err();
        assert!(error.to_string().contains("no-such-python"), "{error}");
    }
}

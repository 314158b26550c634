// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party programs that read exports in tests and are in no Debian package: Python packages (85 MB to fetch, 300
//! MB on the disk), and a program with Paraver's parser, built if the sources of Paraver's kernel are there (LGPL,
//! neither copied nor linked into ibex). They are kept in the target folder until the list of packages changes. Called
//! by `test.rs`, which passes their paths to the tests by variables (export/tests/readers). Grade: setup. Tests: below.

use crate::command::quietly;
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
    sort("IBEX_PYTHON", "Python packages", python(workspace));
    sort("IBEX_PARAVER_READER", "Paraver's parser", paraver(workspace));
    (ready, missing)
}

/// Makes a virtual environment with the packages.
fn python(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("readers/python");
    let list = workspace.root().join(PACKAGES);
    // Written last, so an interrupted environment has none.
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

fn works(interpreter: &Path) -> bool {
    quietly(Command::new(interpreter).args(["-c", "pass"])).is_ok()
}

fn environment(base: &str, folder: &Path, list: &Path) -> Result<()> {
    quietly(Command::new(base).args(["-m", "venv", "--clear"]).arg(folder))?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-compile"]);
    // Installs wheels only, to compile nothing.
    install.args(["--only-binary", ":all:", "--retries", "1", "--timeout", "30", "--requirement"]).arg(list);
    quietly(&mut install)
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

    #[test]
    fn a_python_that_is_missing_makes_no_environment_and_says_so() {
        let error = environment("no-such-python", Path::new("/nowhere"), Path::new("/nothing")).unwrap_err();
        assert!(error.to_string().contains("no-such-python"), "{error}");
    }
}

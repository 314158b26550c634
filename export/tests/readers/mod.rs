// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party programs that read exports. `cargo xtask test` installs them (xtask/src/readers.rs) and names them by
//! variables: `IBEX_PYTHON` is a Python with the packages of requirements.txt, `IBEX_PARAVER_READER` the parser of
//! Paraver's kernel. Without its variable a reader is skipped, which the test reports past its captured output; with
//! it, a missing reader is a failure.

#![allow(dead_code, reason = "each test program reads with some of these")]

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a script of this folder with the Python that has the packages of requirements.txt; it must succeed.
pub(crate) fn python<A: AsRef<OsStr>>(script: &str, modules: &str, arguments: &[A]) {
    let interpreter = std::env::var_os("IBEX_PYTHON").unwrap_or_else(|| "python3".into());
    run(&interpreter, script, modules, "pip install -r export/tests/readers/requirements.txt", arguments);
}

/// Runs a script with Debian's own Python, which has the modules of Debian's packages.
pub(crate) fn debian_python<A: AsRef<OsStr>>(script: &str, module: &str, package: &str, arguments: &[A]) {
    run("/usr/bin/python3".as_ref(), script, module, &format!("apt-get install {package}"), arguments);
}

fn run<A: AsRef<OsStr>>(interpreter: &OsStr, script: &str, modules: &str, remedy: &str, arguments: &[A]) {
    let has = Command::new(interpreter).args(["-c", &format!("import {modules}")]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        let lacks = format!("{} has no {modules} ({remedy})", interpreter.display());
        assert!(std::env::var_os("IBEX_PYTHON").is_none(), "{lacks}");
        return skip(script, &lacks);
    }
    let script = path(script);
    let output = Command::new(interpreter).arg(&script).args(arguments).output().expect("Python starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{errors}", script.display());
}

/// Returns the lines in which Paraver's own parser reports its records of a `.prv`, each as words; `None` without the
/// parser. Fails if the parser complains of a record.
pub(crate) fn paraver(records: &Path) -> Option<Vec<Vec<String>>> {
    let Some(reader) = std::env::var_os("IBEX_PARAVER_READER") else {
        skip("read_paraver.cpp", "IBEX_PARAVER_READER is not set (cargo xtask test with IBEX_PARAVER_KERNEL)");
        return None;
    };
    let output = Command::new(&reader).arg(records).output().expect("Paraver's parser starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let first: Vec<&str> = errors.lines().take(4).collect();
    assert!(output.status.success() && errors.is_empty(), "{} complaints: {first:#?}", errors.lines().count());
    let text = String::from_utf8(output.stdout).expect("text");
    Some(text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect())
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers").join(name)
}

/// Reports a skipped check. The test harness captures `eprintln`.
fn skip(script: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skip {script}: {why}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a script of the tests by Python, where it has the modules that the script needs.
//!
//! Neither pandas, pyarrow nor Perfetto's definitions are needed to work on ibex: where one lacks, the check is skipped and
//! says so. `IBEX_NEED_PYTHON=1` makes that a failure.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Runs it; it must succeed.
pub(crate) fn run(script: &str, modules: &str, arguments: &[OsString]) {
    let has = Command::new("python3").args(["-c", &format!("import {modules}")]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("IBEX_NEED_PYTHON").is_none(), "python3 has no {modules}");
        eprintln!("SKIPPED: {script}: python3 has no {modules} (pip install them, and set PYTHONPATH)");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new("python3").arg(&script).args(arguments).output().expect("python3 starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{errors}", script.display());
}

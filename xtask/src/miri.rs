// SPDX-License-Identifier: MIT OR Apache-2.0
//! Miri, the interpreter that finds undefined behaviour: what of the tests runs under it, and whether it is there.
//!
//! Called by `test.rs`. Miri runs what needs no device and calls no C: tests that would are ignored under it
//! (`cfg_attr(miri, ignore)`), each with its reason, or not named here. It comes with the nightly toolchain and is
//! asked of rustup where it is missing. Grade: setup. Tests: at the end of this file.

use crate::command::shown;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// The arguments of `cargo miri test`, for each package, and which of its unit tests: those of unsafe code, and of what
/// threads share, as far as they call no C and wait for no time. The engine has no unsafe code, and is there for the
/// latter, and for lists whose links are numbers.
pub(crate) const RUNS: [&[&str]; 2] = [
    &["--package", "ibex-ffi", "--lib", "--", "verbs::"],
    &[
        "--package",
        "ibex",
        "--lib",
        "--",
        "::ring::",
        "counters::",
        "matching::",
        "transport::completion",
        "transport::tx",
    ],
];

/// A command of the nightly toolchain's cargo. What it builds has a folder of its own.
fn nightly(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "miri"])
        .args(arguments)
        .current_dir(workspace.root())
        .env("CARGO_TARGET_DIR", workspace.target().join("miri"))
        // Tests read clocks, which Miri keeps from what it runs unless it is told not to; and adapters are given
        // addresses as numbers, of which it would warn each time.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance")
        // A thousand times slower: what properties are tried with is enough to see each step of a test.
        .env("PROPTEST_CASES", "2");
    command
}

/// The tests of one entry of [`RUNS`].
pub(crate) fn tests(workspace: &Workspace, run: &[&str]) -> Command {
    nightly(workspace, &[&["test", "--no-fail-fast"], run].concat())
}

/// Makes Miri ready; installs it where it is missing.
///
/// # Errors
/// It is not there and cannot be had, as where there is no rustup, or no network.
pub(crate) fn ensure(workspace: &Workspace) -> Result<()> {
    let setup = || quietly(&mut nightly(workspace, &["setup"]));
    if setup().is_ok() {
        return Ok(());
    }
    let parts = ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"];
    quietly(Command::new("rustup").args(parts).arg("--no-self-update"))?;
    setup()
}

/// Runs a command of which only the outcome is of interest; an error has the last line it wrote.
fn quietly(command: &mut Command) -> Result<()> {
    let line = shown(command);
    let ended = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        bail!("`{line}` failed ({}): {}", ended.status, said.lines().last().unwrap_or("it said nothing"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_or_fails_is_an_error_with_what_it_said() {
        assert!(quietly(&mut Command::new("no-such-program-of-ibex")).is_err());
        let error = quietly(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err().to_string();
        assert_eq!(error, "`sh -c 'echo why >&2; exit 3'` failed (exit status: 3): why");
        quietly(&mut Command::new("true")).unwrap();
    }

    #[test]
    fn each_run_names_a_package_of_the_workspace() {
        let workspace = Workspace::here();
        let manifests = ["ffi", "."];
        for (run, folder) in RUNS.iter().zip(manifests) {
            let manifest = std::fs::read_to_string(workspace.root().join(folder).join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("name = {:?}\n", run[1])), "{folder} is not {}", run[1]);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Miri, the interpreter that finds undefined behaviour: the tests that run under it, and its installation.
//!
//! Called by `test.rs`. Miri runs what needs no device and calls no C: tests that would are ignored under it
//! (`cfg_attr(miri, ignore)`), each with its reason, or not named here. It comes with the nightly toolchain and is
//! asked of rustup where it is missing. Grade: setup.

use crate::command::quietly;
use crate::workspace::Workspace;
use anyhow::Result;
use std::process::Command;

/// Arguments of `cargo miri test` for each package, with the unit tests to run: those of unsafe code and of data that
/// threads share, unless they call C or wait for time. The engine has no unsafe code; its tests are of shared data, and
/// of lists whose links are numbers. The plugin's are those of the PML in a box.
pub(crate) const RUNS: [&[&str]; 3] = [
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
    &["--package", "ibex-plugin-abi", "--lib", "--", "pml::tests::"],
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
pub(crate) fn ensure(workspace: &Workspace) -> Result<()> {
    let setup = || quietly(&mut nightly(workspace, &["setup"]));
    if setup().is_ok() {
        return Ok(());
    }
    let parts = ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"];
    quietly(Command::new("rustup").args(parts).arg("--no-self-update"))?;
    setup()
}

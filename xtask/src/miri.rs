// SPDX-License-Identifier: MIT OR Apache-2.0
//! Miri, which finds undefined behaviour: its installation, and the tests that run under it. Tests that need a device
//! or call C are ignored under it (`cfg_attr(miri, ignore)`), or not named here. Called by `test.rs`. Grade: setup.

use crate::command::quietly;
use crate::workspace::Workspace;
use anyhow::Result;
use std::process::Command;

/// Arguments of `cargo miri test` for each package: unit tests of unsafe code and of data that threads share, unless
/// they call C or wait for time. The plugin's tests run the PML in a simulated fabric.
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

/// Returns a command of the nightly toolchain's cargo, with a target folder of its own.
fn nightly(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "miri"])
        .args(arguments)
        .current_dir(workspace.root())
        .env("CARGO_TARGET_DIR", workspace.target().join("miri"))
        // Tests read clocks, which Miri otherwise forbids, and give adapters addresses as integers.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance")
        // Miri is a thousand times slower; two cases show each step of a test.
        .env("PROPTEST_CASES", "2");
    command
}

pub(crate) fn tests(workspace: &Workspace, run: &[&str]) -> Command {
    nightly(workspace, &[&["test", "--no-fail-fast"], run].concat())
}

/// Asks rustup for Miri if it is missing.
pub(crate) fn ensure(workspace: &Workspace) -> Result<()> {
    let setup = || quietly(&mut nightly(workspace, &["setup"]));
    if setup().is_ok() {
        return Ok(());
    }
    let parts = ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"];
    quietly(Command::new("rustup").args(parts).arg("--no-self-update"))?;
    setup()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library as cargo builds it, for tests that use it from outside: beside them in `IBEX_BUILT`, where `cargo xtask
//! test` has put all in one build, or built now.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The directory with the library: cargo builds a cdylib for no test of its own accord.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(built) = std::env::var_os("IBEX_BUILT") {
            return built.into();
        }
        let target =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("cargo's directory lies in the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "ibex-plugin-abi", "--lib", "--target-dir"]).arg(target);
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        if profile == "release" {
            cargo.arg("--release");
        }
        done(&cargo);
        target.join(profile)
    })
}

/// Runs a command that must succeed.
pub(crate) fn done(command: &Command) -> Output {
    let mut limited = Command::new("timeout");
    limited.args(["-k", "5", "1200"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    let output = limited.output().unwrap_or_else(|error| panic!("{limited:?}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of this workspace that a fabric runs: the agent of its nodes, and the command of the emulated adapters.
//! Called by [`crate::fabric`]. Setup grade; any thread. Tests: at the end of this file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};

/// Variable with the path of the command of the emulated adapters, instead of the one that cargo builds.
const SOFTHCA_VARIABLE: &str = "SOFTHCA_COMMAND";

/// Returns the agent's program beside this program (or beside its `deps` folder), or builds it.
pub(crate) fn agent() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("find this program's folder")?;
    let folders = program.ancestors().skip(1).take(2);
    if let Some(agent) = folders.map(|folder| folder.join("fabric-agent")).find(|file| file.is_file()) {
        return Ok(agent);
    }
    let (folder, target) = build_folders(&program)?;
    let profile = if folder.ends_with("release") { "release" } else { "dev" };
    eprintln!("building fabric-agent");
    build("ibex-hw-tests", "fabric-agent", profile, target)?;
    built(folder.join("fabric-agent"), "ibex-hw-tests")
}

/// Returns the command `softhca`, beside its library: the one that the environment names, else cargo builds it once.
pub(crate) fn softhca() -> anyhow::Result<PathBuf> {
    static FOUND: Mutex<Option<PathBuf>> = Mutex::new(None);
    if let Some(named) = std::env::var_os(SOFTHCA_VARIABLE).filter(|value| !value.is_empty()) {
        let named = PathBuf::from(named);
        return named.canonicalize().with_context(|| format!("{SOFTHCA_VARIABLE} is {}", named.display()));
    }
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = &*found {
        return Ok(there.clone());
    }
    let program = std::env::current_exe().context("find this program's folder")?;
    let (_, target) = build_folders(&program)?;
    eprintln!("building softhca");
    build("softhca", "softhca", "dev", target)?;
    let there = built(target.join("debug/softhca"), "softhca")?;
    Ok(found.insert(there).clone())
}

/// The folder of build outputs that `program` lies in, and the target folder.
fn build_folders(program: &Path) -> anyhow::Result<(&Path, &Path)> {
    let folder =
        program.parent().filter(|folder| !folder.ends_with("deps")).or(program.parent().and_then(Path::parent));
    let folder = folder.context("find the folder of build outputs")?;
    Ok((folder, folder.parent().context("find the target folder")?))
}

fn build(package: &str, program: &str, profile: &str, target: &Path) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", package, "--bin", program, "--lib"]);
    build.args(["--profile", profile, "--target-dir"]).arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = build.status().with_context(|| format!("run cargo to build {program}"))?;
    if !status.success() {
        bail!("cargo did not build {program}; try `cargo build -p {package}`");
    }
    Ok(())
}

fn built(program: PathBuf, package: &str) -> anyhow::Result<PathBuf> {
    if !program.is_file() {
        bail!("cargo built no {}; try `cargo build -p {package}`", program.display());
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_and_a_command_find_the_same_folders_of_build_outputs() {
        let folders = |program| build_folders(Path::new(program)).unwrap();
        let expected = (Path::new("/t/debug"), Path::new("/t"));
        assert_eq!(folders("/t/debug/deps/device-0123"), expected);
        assert_eq!(folders("/t/debug/xtask"), expected);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identifies an `mpicc`: Open MPI's with release and folders, or that of another MPI.
//!
//! Called by [`super`]. Grade: setup. Tests: tests.rs.

use crate::environment::Environment;
use std::path::{Path, PathBuf};

/// What an Open MPI says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) release: String,
    pub(super) prefix: PathBuf,
    /// The folders of its headers.
    pub(super) includes: Vec<PathBuf>,
    /// The folders of its libraries.
    pub(super) libraries: Vec<PathBuf>,
}

/// Asks a compiler wrapper.
///
/// # Errors
/// It is not Open MPI's; the text says whose it is, as the end of a sentence.
pub(super) fn identify(mpicc: &Path, environment: &Environment) -> Result<Answer, String> {
    let said = said(mpicc, "--showme:version", environment);
    let Some(release) = release(&said) else { return Err(whose(mpicc, environment)) };
    let folders = |option: &str| {
        let text = self::said(mpicc, option, environment);
        text.split_whitespace().map(PathBuf::from).collect::<Vec<_>>()
    };
    let (includes, libraries) = (folders("--showme:incdirs"), folders("--showme:libdirs"));
    let prefix = prefix(mpicc, environment);
    Ok(Answer { release, prefix, includes, libraries })
}

/// `4.1.4` of `mpicc: Open MPI 4.1.4rc1 (Language: C)`.
pub(super) fn release(said: &str) -> Option<String> {
    let version = said.split("Open MPI ").nth(1)?.trim_start_matches('v');
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    (end > 0).then(|| version[..end].to_owned())
}

/// The prefix as the `ompi_info` beside it has it; the folder above it where there is none.
fn prefix(mpicc: &Path, environment: &Environment) -> PathBuf {
    let info = mpicc.with_file_name("ompi_info");
    let told = said_by(&info, &["--parsable", "--path", "prefix"], environment);
    let told = told.lines().find_map(|line| line.strip_prefix("path:prefix:")).map(PathBuf::from);
    told.unwrap_or_else(|| mpicc.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_path_buf())
}

/// Whose wrapper it is, that is not Open MPI's.
fn whose(mpicc: &Path, environment: &Environment) -> String {
    let said = said(mpicc, "-v", environment) + &self::said(mpicc, "-show", environment);
    let known = [
        ("Intel(R) MPI", "Intel MPI's"),
        ("MVAPICH", "MVAPICH's"),
        ("mvapich", "MVAPICH's"),
        ("MPICH", "MPICH's"),
        ("-lmpich", "MPICH's"),
        ("-lmpi_cray", "Cray MPICH's"),
        ("Open MPI", "an Open MPI's that does not say its release"),
    ];
    match known.iter().find(|(mark, _)| said.contains(mark)) {
        Some((_, whose)) => format!("it is {whose} compiler wrapper"),
        None => format!("it does not say that it is Open MPI's ({:?})", said.lines().next().unwrap_or("nothing")),
    }
}

fn said(mpicc: &Path, option: &str, environment: &Environment) -> String {
    said_by(mpicc, &[option], environment)
}

/// What a program prints; nothing where it cannot be started, as a program that is missing says nothing either.
fn said_by(program: &Path, options: &[&str], environment: &Environment) -> String {
    let Ok(output) = environment.command(program).args(options).stdin(std::process::Stdio::null()).output() else {
        return String::new();
    };
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--mpi SERIES`: the Open MPI of a command. If this machine has another one, the command runs again, with the same
//! arguments, in a Debian 13 root that has it.
//!
//! Called by `test.rs` and `bench.rs`. Grade: setup. Tests: at the end of this file.

use crate::command::{shown, step};
use crate::debian13::Root;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use hw_tests::openmpi::Series;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, ExitCode};

/// Where a command with an Open MPI of some series runs.
#[derive(Debug, PartialEq)]
pub(crate) enum Place {
    /// On this machine as it is.
    Here,
    /// In a Debian 13 root.
    Debian13,
}

/// Where what is asked for runs; who asks for nothing gets what is here.
///
/// # Errors
/// The series is neither this machine's nor that of Debian 13.
pub(crate) fn place(asked: Option<Series>) -> Result<Place> {
    let Some(asked) = asked else { return Ok(Place::Here) };
    // A Debian 13 on which nothing is installed yet gets its own.
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let here = Series::installed()?.or_else(|| of_release(&release));
    place_of(asked, here)
}

fn place_of(asked: Series, here: Option<Series>) -> Result<Place> {
    match (asked, here) {
        (Series::V5, Some(Series::V5)) | (Series::V4_1, Some(Series::V4_1)) => Ok(Place::Here),
        (Series::V5, _) => Ok(Place::Debian13),
        (Series::V4_1, Some(other)) => {
            bail!("the Open MPI here is of series {other}, and one of series 4.1 is to be had on Debian 12 alone")
        }
        (Series::V4_1, None) => bail!("there is no Open MPI here; install one of series 4.1 (`cargo xtask setup`)"),
    }
}

/// The series that a Debian release has, by its `/etc/os-release`.
fn of_release(text: &str) -> Option<Series> {
    let of = |codename: &str| text.lines().any(|line| line.trim() == format!("VERSION_CODENAME={codename}"));
    let known = [("bookworm", Series::V4_1), ("trixie", Series::V5)];
    known.into_iter().find(|(codename, _)| of(codename)).map(|(_, series)| series)
}

/// Runs this very command in a Debian 13 root.
///
/// # Errors
/// The root cannot be made or entered, or the command cannot be started.
pub(crate) fn again_in_debian13(workspace: &Workspace) -> Result<ExitCode> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let mut command = command_in_debian13(workspace, &arguments)?;
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(&command)))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `cargo xtask` with these arguments, in a Debian 13 root.
///
/// # Errors
/// The root cannot be made or entered.
pub(crate) fn command_in_debian13(workspace: &Workspace, arguments: &[OsString]) -> Result<Command> {
    let root = Root::ready(workspace)?;
    let words: Vec<OsString> =
        ["cargo", "xtask"].map(OsString::from).into_iter().chain(arguments.iter().cloned()).collect();
    let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    step(&format!("In a Debian 13 root, with Open MPI 5: {line}"));
    root.command(workspace, &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_here_is_used_and_5_is_to_be_had_elsewhere() {
        assert_eq!(place(None).unwrap(), Place::Here);
        assert_eq!(place_of(Series::V5, Some(Series::V5)).unwrap(), Place::Here);
        assert_eq!(place_of(Series::V5, Some(Series::V4_1)).unwrap(), Place::Debian13);
        assert_eq!(place_of(Series::V5, None).unwrap(), Place::Debian13);
        assert_eq!(place_of(Series::V4_1, Some(Series::V4_1)).unwrap(), Place::Here);
        let refusal = place_of(Series::V4_1, Some(Series::V5)).unwrap_err().to_string();
        assert!(refusal.contains("series 5") && refusal.contains("Debian 12"), "{refusal}");
    }

    #[test]
    fn a_debian_without_open_mpi_is_known_by_its_release() {
        assert_eq!(of_release("ID=debian\nVERSION_CODENAME=trixie\n"), Some(Series::V5));
        assert_eq!(of_release("VERSION_CODENAME=noble\n"), None);
    }
}

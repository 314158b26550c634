// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--mpi SERIES`: the Open MPI of a command. If this machine has another one, the command runs again, with the same
//! arguments, in a Debian 13 root that has it. Called by `test` and `bench`. Grade: setup. Tests: below.

use crate::command::{shown, step};
use crate::debian13;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use hw_tests::openmpi::Series;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, ExitCode};

/// Runs this command in a Debian 13 root, if only that has the series.
pub(crate) fn elsewhere(workspace: &Workspace, asked: Option<Series>) -> Result<Option<ExitCode>> {
    if !is_elsewhere(asked)? {
        return Ok(None);
    }
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let mut command = in_debian13(workspace, &arguments)?;
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(&command)))?;
    Ok(Some(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Whether the series is in a Debian 13 root; without `--mpi`, this machine's Open MPI is meant.
pub(crate) fn is_elsewhere(asked: Option<Series>) -> Result<bool> {
    let Some(asked) = asked else { return Ok(false) };
    // A machine without an Open MPI gets the series of its Debian release.
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    is_not_that(asked, Series::installed()?.or_else(|| of_release(&release)))
}

fn is_not_that(asked: Series, here: Option<Series>) -> Result<bool> {
    match (asked, here) {
        (Series::V5, Some(Series::V5)) | (Series::V4_1, Some(Series::V4_1)) => Ok(false),
        (Series::V5, _) => Ok(true),
        (Series::V4_1, Some(other)) => {
            bail!("the Open MPI here is of series {other}, and one of series 4.1 is to be had on Debian 12 alone")
        }
        (Series::V4_1, None) => bail!("there is no Open MPI here; install one of series 4.1 (`cargo xtask setup`)"),
    }
}

fn of_release(text: &str) -> Option<Series> {
    let of = |codename: &str| text.lines().any(|line| line.trim() == format!("VERSION_CODENAME={codename}"));
    let known = [("bookworm", Series::V4_1), ("trixie", Series::V5)];
    known.into_iter().find(|(codename, _)| of(codename)).map(|(_, series)| series)
}

/// Returns `cargo xtask` with these arguments, in a Debian 13 root.
pub(crate) fn in_debian13(workspace: &Workspace, arguments: &[OsString]) -> Result<Command> {
    let words: Vec<OsString> =
        ["cargo", "xtask"].map(OsString::from).into_iter().chain(arguments.iter().cloned()).collect();
    let command = debian13::command(workspace, &words)?;
    let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    step(&format!("In a Debian 13 root, with Open MPI 5: {line}"));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_series_is_used_and_series_5_runs_in_a_root_otherwise() {
        assert!(!is_elsewhere(None).unwrap());
        let places = [
            (Series::V5, Some(Series::V5), false),
            (Series::V5, Some(Series::V4_1), true),
            (Series::V5, None, true),
            (Series::V4_1, Some(Series::V4_1), false),
        ];
        for (asked, here, elsewhere) in places {
            assert_eq!(is_not_that(asked, here).unwrap(), elsewhere, "{asked} where {here:?} is");
        }
        let refusal = is_not_that(Series::V4_1, Some(Series::V5)).unwrap_err().to_string();
        assert!(refusal.contains("series 5") && refusal.contains("Debian 12"), "{refusal}");
    }

    #[test]
    fn a_debian_without_open_mpi_is_known_by_its_release() {
        assert_eq!(of_release("ID=debian\nVERSION_CODENAME=trixie\n"), Some(Series::V5));
        assert_eq!(of_release("VERSION_CODENAME=noble\n"), None);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex run -- mpiexec ... ./app` and `eval "$(ibex env)"`: any MPI over ibex, with nothing rebuilt. [`find`] finds
//! out which MPI a job uses ([`libraries`] asks what a program loads, [`implementation`] knows the MPIs), and
//! [`settings`] has the variables that this MPI needs. Grade: setup. Tests: in the files; with a device,
//! hw-tests/tests/device/mpis.rs.

mod find;
mod implementation;
mod libraries;
mod settings;

use crate::installed::Installed;
use crate::launcher::launched;
use anyhow::{Context, Result};
use implementation::Implementation;
use settings::Settings;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

#[derive(clap::Args)]
struct How {
    /// Send messages within a host by the adapter, too, instead of shared memory
    #[arg(long)]
    no_shared_memory: bool,
    /// Print which MPI was found, and the variables
    #[arg(short, long)]
    verbose: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example: a program of MPICH, whose messages go by ibex\n  ibex run -- mpiexec -n 4 ./app")]
pub(crate) struct RunArguments {
    #[command(flatten)]
    how: How,
    /// The command that starts the job
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
#[command(
    after_help = "Example: jobs of this shell, by the mpiexec in PATH\n  eval \"$(ibex env)\"\n  mpiexec -n 4 ./app"
)]
pub(crate) struct EnvArguments {
    #[command(flatten)]
    how: How,
    /// A program, or the command that starts a job [default: the mpiexec in PATH]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Replaces this process by the job's command, in the environment that its MPI needs. Returns only if that fails.
pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let settings = settings(&arguments.how, &arguments.command)?;
    let mut command: Command = launched(&arguments.command, &settings.of_ranks);
    let name = command.get_program().to_owned();
    Err(command.envs(settings.variables).exec()).with_context(|| format!("cannot start {}", name.display()))
}

pub(crate) fn env(arguments: &EnvArguments) -> Result<ExitCode> {
    let settings = settings(&arguments.how, &arguments.command)?;
    for (name, value) in &settings.variables {
        println!("export {name}={}", quoted(&value.to_string_lossy()));
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(how: &How, command: &[OsString]) -> Result<Settings> {
    let installed = Installed::here()?;
    let found = find::mpi_of(command, &installed)?;
    let settings = Settings::of(&found, &installed, !how.no_shared_memory)?;
    if let Some(warning) = found.warning {
        eprintln!("ibex: warning: {warning}");
    }
    if how.verbose {
        eprintln!("ibex: {}", found.reason);
        for (name, value) in &settings.variables {
            eprintln!("ibex: {name}={}", value.display());
        }
        if settings.variables.is_empty() {
            eprintln!("ibex: no variable is needed");
        }
    }
    Ok(settings)
}

/// What the processes preload of a job whose messages go by the libfabric provider, which records its traces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overrides {
    /// They have no MPI.
    Nothing,
    /// The calls of MPI 3.
    Mpi3,
    /// Those that MPI 4 has added, too.
    Mpi4,
}

/// Whether the job's messages go by the libfabric provider, and then what its processes preload.
pub(crate) fn by_libfabric(command: &[OsString]) -> Result<Option<Overrides>> {
    let installed = Installed::here()?;
    let Ok(found) = find::mpi_of(command, &installed) else { return Ok(None) };
    let is_by_libfabric = match found.mpi {
        Implementation::OpenMpi if !found.is_of_program => {
            return Ok(libraries::has_libfabric(command).then_some(Overrides::Nothing));
        }
        Implementation::OpenMpi => is_run_by_ibex(command) && !settings::has_components(&found, &installed),
        Implementation::Mpich(_) | Implementation::Intel => true,
    };
    Ok(is_by_libfabric.then(|| if found.has_mpi_4() { Overrides::Mpi4 } else { Overrides::Mpi3 }))
}

/// Whether `ibex run` is among the words: it chooses libfabric for an Open MPI that has no components.
fn is_run_by_ibex(words: &[OsString]) -> bool {
    words.windows(2).any(|pair| Path::new(&pair[0]).file_name() == Some(OsStr::new("ibex")) && pair[1] == "run")
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ibex_run_is_found_among_the_words_of_a_command() {
        let is = |text: &str| is_run_by_ibex(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(is("ibex run -- mpiexec ./app") && is("timeout 9 /opt/bin/ibex run -v -- mpiexec ./app"));
        assert!(!is("mpirun ./ibex ./run") && !is("mpirun run ibex") && !is("ibex trace -- run"));
    }

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        for word in ["plain", "two words", "it's", "$HOME `a`", "", "a:b=c;d"] {
            let said = Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(word))).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&said.stdout), word);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The launcher in the command of a job, and variables for the ranks that it starts. Called by `trace` and `run`.
//! Grade: setup. Tests: below.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// Launchers, by the first part of their names. Those of Open MPI accept variables for the ranks by `-x`.
const LAUNCHERS: [&str; 6] = ["mpirun", "mpiexec", "orterun", "prterun", "oshrun", "shmemrun"];

/// Returns the job's command with these variables for its ranks. Commands such as `timeout 60` may precede it.
pub(crate) fn launched(words: &[OsString], variables: &[(&'static str, OsString)]) -> Command {
    let mut command = Command::new(&words[0]);
    let Some(launcher) = words.iter().position(|word| is_launcher(word)) else {
        command.args(&words[1..]).envs(variables.iter().map(|(name, value)| (name, value)));
        return command;
    };
    let options: Vec<OsString> = variables
        .iter()
        .flat_map(|(name, value)| {
            let mut given = OsString::from(format!("{name}="));
            given.push(value);
            [OsString::from("-x"), given]
        })
        .collect();
    command.args(words.get(1..=launcher).unwrap_or_default()).args(&options);
    for word in &words[launcher + 1..] {
        command.arg(word);
        // Each program of a job has its own options.
        if word == ":" {
            command.args(&options);
        }
    }
    command
}

/// Whether a word is a launcher, by its name: `mpirun`, `/opt/bin/mpiexec.hydra`.
pub(crate) fn is_launcher(word: &OsStr) -> bool {
    let name = Path::new(word).file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    LAUNCHERS.contains(&name.split('.').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn shown(command: &Command) -> String {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn mpirun_gets_the_variables_for_each_program() {
        let variables = [("A", OsString::from("1")), ("B", OsString::from("2,3"))];
        for (given, made) in [
            ("mpirun -n 2 ./app -x", "mpirun -x A=1 -x B=2,3 -n 2 ./app -x"),
            ("timeout 9 /opt/bin/mpiexec ./app", "timeout 9 /opt/bin/mpiexec -x A=1 -x B=2,3 ./app"),
            ("mpirun -n 1 ./a : -n 1 ./b", "mpirun -x A=1 -x B=2,3 -n 1 ./a : -x A=1 -x B=2,3 -n 1 ./b"),
        ] {
            let command = launched(&words(given), &variables);
            assert_eq!(shown(&command), made);
            assert_eq!(command.get_envs().count(), 0, "the launcher itself is left alone");
        }
    }

    #[test]
    fn other_launchers_pass_on_their_environment() {
        let variables = [("A", OsString::from("1"))];
        for given in ["srun -n 2 ./app", "./app"] {
            let command = launched(&words(given), &variables);
            assert_eq!(shown(&command), given);
            assert_eq!(command.get_envs().collect::<Vec<_>>(), [(OsStr::new("A"), Some(OsStr::new("1")))]);
        }
    }

    #[test]
    fn a_launcher_is_known_by_its_name() {
        for launcher in ["mpirun", "/opt/bin/mpiexec", "mpiexec.hydra", "mpirun.openmpi"] {
            assert!(is_launcher(OsStr::new(launcher)), "{launcher}");
        }
        for other in ["./mpirunner", "srun", "mpirun/app", ""] {
            assert!(!is_launcher(OsStr::new(other)), "{other}");
        }
    }
}

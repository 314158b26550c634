// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs: prints the command line, and makes an error with it if they fail. Grade: setup. Tests: below.

use anyhow::{Context, Result, anyhow, ensure};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

pub(crate) fn step(text: &str) {
    println!("==> {text}");
}

/// Returns a command of the cargo that started this program.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a command with the terminal's input and output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status();
    ensure_success(command, status.with_context(|| cannot_start(command))?)
}

/// Runs a command and returns its standard output; its errors go to the terminal.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| cannot_start(command))?;
    ensure_success(command, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command without showing its output; an error has the last line of it.
pub(crate) fn quietly(command: &mut Command) -> Result<()> {
    let ended = command.stdin(Stdio::null()).output().with_context(|| cannot_start(command))?;
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let last = said.lines().last().unwrap_or("it said nothing");
    ensure_success(command, ended.status).map_err(|error| anyhow!("{error}: {last}"))
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start `{}`", shown(command))
}

fn ensure_success(command: &Command, status: ExitStatus) -> Result<()> {
    ensure!(status.success(), "`{}` failed ({status})", shown(command));
    Ok(())
}

pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_command_is_returned() {
        assert_eq!(output(Command::new("echo").arg("a b")).unwrap(), "a b\n");
    }

    #[test]
    fn a_missing_or_failed_program_is_an_error_with_the_command_line_the_status_and_the_last_output() {
        let missing = || Command::new("no-such-program-of-ibex");
        assert!(run(&mut missing()).is_err() && quietly(&mut missing()).is_err());
        let failed = "`sh -c 'echo why >&2; exit 3'` failed (exit status: 3)";
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2; exit 3"]);
        assert_eq!(run(&mut command).unwrap_err().to_string(), failed);
        assert_eq!(quietly(&mut command).unwrap_err().to_string(), format!("{failed}: why"));
        quietly(&mut Command::new("true")).unwrap();
    }
}

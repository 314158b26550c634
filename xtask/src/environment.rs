// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment of a command: variables, and the programs in `PATH`. Read once, and passed as a value, so that a
//! test can describe another machine. Grade: setup. Tested by its callers.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    pub(crate) fn here() -> Self {
        Self { variables: env::vars_os().collect() }
    }

    /// Returns a variable; `None` if it is not set, or empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Returns the first program of that name in `PATH`.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.variable("PATH")?;
        env::split_paths(path).map(|folder| folder.join(name)).find(|file| is_program(file))
    }

    /// Returns a command that has these variables and no other.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.variables);
        command
    }

    #[cfg(test)]
    pub(crate) fn of(variables: &[(&str, &str)]) -> Self {
        Self { variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

pub(crate) fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

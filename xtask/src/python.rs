// SPDX-License-Identifier: MIT OR Apache-2.0
//! Python environments in the target folder, with exactly the packages of a list; kept until the list changes. Called
//! by [`crate::readers`] and [`crate::mpis`]. Grade: setup. Tests: below.

use crate::command::quietly;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes a virtual environment in a folder with the packages of a list, if there is none of this list.
pub(crate) fn ensure(folder: &Path, list: &Path) -> Result<()> {
    // Written last, so an interrupted environment has none.
    let kept = folder.join("requirements.txt");
    let wanted = fs::read(list).with_context(|| format!("cannot read {}", list.display()))?;
    if fs::read(&kept).is_ok_and(|had| had == wanted) && works(&folder.join("bin/python")) {
        return Ok(());
    }
    // The one in PATH may be too old for the packages, or have no venv: then Debian's.
    let made = environment("python3", folder, list);
    made.or_else(|error| environment("/usr/bin/python3", folder, list).map_err(|_| error))?;
    fs::write(&kept, wanted).with_context(|| format!("cannot write {}", kept.display()))
}

fn works(interpreter: &Path) -> bool {
    quietly(Command::new(interpreter).args(["-c", "pass"])).is_ok()
}

fn environment(base: &str, folder: &Path, list: &Path) -> Result<()> {
    quietly(Command::new(base).args(["-m", "venv", "--clear"]).arg(folder))?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-compile"]);
    // Installs wheels only, to compile nothing.
    install.args(["--only-binary", ":all:", "--retries", "1", "--timeout", "30", "--requirement"]).arg(list);
    quietly(&mut install)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_that_is_missing_makes_no_environment_and_says_so() {
        let error = environment("no-such-python", Path::new("/nowhere"), Path::new("/nothing")).unwrap_err();
        assert!(error.to_string().contains("no-such-python"), "{error}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The test programs that cargo has built, as its messages name them. Read here, so that one build serves every part of
//! `cargo xtask test`. Grade: setup. Tests: below.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A program that runs the tests of one target: a library, a command, or a file in `tests`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestProgram {
    pub(crate) folder: PathBuf,
    pub(crate) target: String,
    pub(crate) is_integration: bool,
    pub(crate) program: PathBuf,
}

impl TestProgram {
    pub(crate) fn is(&self, folder: &str, target: &str) -> bool {
        self.is_integration && self.target == target && self.folder.ends_with(folder)
    }

    /// Returns the package's folder and the target.
    pub(crate) fn shown(&self, root: &Path) -> String {
        let folder = self.folder.strip_prefix(root).unwrap_or(&self.folder);
        let kind = if self.is_integration { "tests" } else { "unit tests of" };
        let place = if folder == Path::new("") { ".".into() } else { folder.display().to_string() };
        format!("{place}: {kind} {}", self.target)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tests {
    /// Sorted by folder and name.
    pub(crate) programs: Vec<TestProgram>,
    folder: PathBuf,
}

impl Tests {
    /// Reads cargo's messages, one JSON object per line, about programs built into this folder.
    pub(super) fn of_messages(messages: &str, folder: &Path) -> Self {
        Self { programs: of_messages(messages), folder: folder.to_path_buf() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the program of a file in `tests` of a package, by the package's folder and the file's name.
    pub(crate) fn of(&self, folder: &str, target: &str) -> Result<PathBuf> {
        let program = self.programs.iter().find(|program| program.is(folder, target));
        Ok(program.with_context(|| format!("cargo built no test program {target} of {folder}"))?.program.clone())
    }
}

fn of_messages(messages: &str) -> Vec<TestProgram> {
    #[derive(serde::Deserialize)]
    struct Artifact {
        manifest_path: PathBuf,
        target: Target,
        profile: Profile,
        executable: Option<PathBuf>,
    }
    #[derive(serde::Deserialize)]
    struct Target {
        name: String,
        kind: Vec<String>,
    }
    #[derive(serde::Deserialize)]
    struct Profile {
        test: bool,
    }
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let mut programs: Vec<TestProgram> = artifacts
        .filter(|artifact| artifact.profile.test)
        .filter_map(|artifact| {
            Some(TestProgram {
                folder: artifact.manifest_path.parent()?.to_path_buf(),
                is_integration: artifact.target.kind == ["test"],
                target: artifact.target.name,
                program: artifact.executable?,
            })
        })
        .collect();
    programs.sort_by(|one, other| (&one.folder, &one.target).cmp(&(&other.folder, &other.target)));
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_programs_are_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/w/b/Cargo.toml","target":{"kind":["lib"],"name":"b"},"profile":{"test":false},"executable":null}
not json
{"reason":"compiler-artifact","manifest_path":"/w/b/Cargo.toml","target":{"kind":["test"],"name":"device"},"profile":{"test":true},"executable":"/t/device-1"}
{"reason":"compiler-artifact","manifest_path":"/w/b/Cargo.toml","target":{"kind":["bin"],"name":"b"},"profile":{"test":false},"executable":"/t/b"}
{"reason":"compiler-artifact","manifest_path":"/w/Cargo.toml","target":{"kind":["lib"],"name":"a"},"profile":{"test":true},"executable":"/t/a-2"}
{"reason":"build-finished","success":true}"#;
        let programs = of_messages(messages);
        let root = Path::new("/w");
        let shown: Vec<String> = programs.iter().map(|program| program.shown(root)).collect();
        assert_eq!(shown, [".: unit tests of a", "b: tests device"]);
        assert!(programs[1].is("b", "device") && !programs[0].is("", "a") && !programs[1].is("a", "device"));
        assert_eq!(programs[1].program, Path::new("/t/device-1"));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the members of the workspace are built into: libraries, programs, tests, benches, examples, build scripts.
//!
//! Grade: setup. Asks cargo. Tests: in `main`, which reads them all.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde::Deserialize;

/// The root file of a target.
pub(crate) struct Target {
    /// Its path from the root of the workspace on.
    pub(crate) root: String,
}

/// The workspace.
pub(crate) struct Workspace {
    folder: PathBuf,
    pub(crate) targets: Vec<Target>,
}

/// What cargo says of it.
#[derive(Deserialize)]
struct Metadata {
    workspace_root: PathBuf,
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Root>,
}

#[derive(Deserialize)]
struct Root {
    src_path: PathBuf,
}

impl Workspace {
    /// The one that this test is of.
    pub(crate) fn here() -> Workspace {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
        let said = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo starts");
        assert!(said.status.success(), "{cargo:?}: {}", String::from_utf8_lossy(&said.stderr));
        let Metadata { workspace_root: folder, packages } =
            serde_json::from_slice(&said.stdout).expect("cargo describes the workspace");
        let mut targets = Vec::new();
        for Package { targets: roots } in packages {
            for Root { src_path } in roots {
                let root = src_path.strip_prefix(&folder).expect("members are in the folder of the workspace");
                let root = root.to_str().expect("a path in UTF-8").to_owned();
                targets.push(Target { root });
            }
        }
        Workspace { folder, targets }
    }

    /// The text of the file at this path from the root of the workspace on, if there is one.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(Path::new(path))).ok()
    }
}

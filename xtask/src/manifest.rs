// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manifest of an installation: written before the first file, read by `uninstall`, which removes nothing else. It
//! lists regular files with their SHA-256, symlinks with their targets, and new folders. Grade: setup. Called by
//! [`crate::install`]. Tests: below, and install/tests.rs.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: String,
    /// Symlinks, removed first: a link whose target is gone would stop Open MPI's search for components.
    pub(crate) links: Vec<Link>,
    pub(crate) files: Vec<File>,
    /// Folders the installation made, outermost first; removed if empty.
    pub(crate) folders: Vec<PathBuf>,
    /// The Open MPI of these files; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) openmpi: Option<Owner>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) release: String,
    pub(crate) prefix: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    pub(crate) path: PathBuf,
    pub(crate) target: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) sha256: String,
}

impl Manifest {
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .with_context(|| format!("{} is not a manifest of cargo xtask install", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        replace_file(path, format!("{}\n", serde_json::to_string_pretty(self)?).as_bytes())
    }

    /// Returns the listed paths that have changed since the installation, each with the difference.
    pub(crate) fn changed(&self) -> Vec<String> {
        let links = self.links.iter().filter_map(|link| match fs::symlink_metadata(&link.path) {
            Err(_) => None,
            Ok(_) => match fs::read_link(&link.path) {
                Ok(target) if target == link.target => None,
                Ok(target) => Some(format!("{} points to {}", link.path.display(), target.display())),
                Err(_) => Some(format!("{} is not a symlink", link.path.display())),
            },
        });
        let files = self.files.iter().filter_map(|file| match fs::symlink_metadata(&file.path) {
            Err(_) => None,
            Ok(metadata) if !metadata.is_file() => Some(format!("{} is not a regular file", file.path.display())),
            Ok(_) => match hash(&file.path) {
                Ok(sha256) if sha256 == file.sha256 => None,
                Ok(_) => Some(format!("{} has other contents", file.path.display())),
                Err(error) => Some(format!("{error:#}")),
            },
        });
        links.chain(files).collect()
    }

    pub(crate) fn lists(&self, path: &Path) -> bool {
        self.links.iter().any(|link| link.path == path) || self.files.iter().any(|file| file.path == path)
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.links.iter().map(|link| &link.path).chain(self.files.iter().map(|file| &file.path))
    }

    pub(crate) fn ensure_unchanged(&self) -> Result<()> {
        let changed = self.changed();
        if changed.is_empty() {
            return Ok(());
        }
        bail!(
            "these are not what was installed, so nothing was removed:\n    {}\n\
             remove them by hand, or run `cargo xtask install` again, then try again",
            changed.join("\n    ")
        )
    }

    /// Removes what is listed, links first, and returns what was removed. Removes nothing if a file has changed.
    pub(crate) fn remove(&self) -> Result<Vec<PathBuf>> {
        self.ensure_unchanged()?;
        let mut removed = Vec::new();
        for path in self.paths() {
            match fs::remove_file(path) {
                Ok(()) => removed.push(path.clone()),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("cannot remove {}", path.display())),
            }
        }
        Ok(removed)
    }

    pub(crate) fn remove_folders(&self) {
        for folder in self.folders.iter().rev() {
            // Fails, as it should, if a user put files there.
            let _ = fs::remove_dir(folder);
        }
    }
}

pub(crate) fn hash(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hash_of(&bytes))
}

pub(crate) fn hash_of(bytes: &[u8]) -> String {
    let digits: Vec<String> = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// Replaces a file in one step: no process sees half of it, and a program that has mapped the old file keeps it.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = beside(path);
    fs::write(&beside, bytes).with_context(|| format!("cannot write {}", beside.display()))?;
    fs::rename(&beside, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces a file by a copy of another, with its permissions.
pub(crate) fn replace_by_copy(path: &Path, from: &Path) -> Result<()> {
    let beside = beside(path);
    fs::copy(from, &beside).with_context(|| format!("cannot copy {} to {}", from.display(), beside.display()))?;
    fs::rename(&beside, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces a symlink in one step. Refuses a missing target, because a dangling link stops Open MPI's search.
pub(crate) fn replace_link(link: &Link) -> Result<()> {
    let folder = link.path.parent().unwrap_or(Path::new("/"));
    let target = folder.join(&link.target);
    if !target.exists() {
        bail!("{} would point to {}, which does not exist", link.path.display(), target.display());
    }
    let beside = beside(&link.path);
    let _ = fs::remove_file(&beside);
    std::os::unix::fs::symlink(&link.target, &beside).with_context(|| format!("cannot write {}", beside.display()))?;
    fs::rename(&beside, &link.path).with_context(|| format!("cannot write {}", link.path.display()))
}

/// Returns a name in the same folder which Open MPI does not take for a component.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.new", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::tests::scratch;
    use hw_tests::Folder;

    fn installed(folder: &Folder) -> Manifest {
        let file = folder.path().join("libibex.so");
        replace_file(&file, b"library").unwrap();
        let link = Link { path: folder.path().join("mca_btl_ibex.so"), target: "libibex.so".into() };
        replace_link(&link).unwrap();
        Manifest {
            version: "0".into(),
            links: vec![link],
            files: vec![File { sha256: hash(&file).unwrap(), path: file }],
            ..Manifest::default()
        }
    }

    #[test]
    fn a_link_that_points_elsewhere_is_not_removed() {
        let folder = scratch();
        let manifest = installed(&folder);
        fs::write(folder.path().join("other"), "").unwrap();
        replace_link(&Link { path: folder.path().join("mca_btl_ibex.so"), target: "other".into() }).unwrap();
        let error = manifest.remove().unwrap_err().to_string();
        assert!(error.contains("mca_btl_ibex.so points to other"), "{error}");
    }

    #[test]
    fn a_file_that_is_gone_already_is_no_obstacle() {
        let folder = scratch();
        let manifest = installed(&folder);
        fs::remove_file(folder.path().join("mca_btl_ibex.so")).unwrap();
        assert_eq!(manifest.remove().unwrap(), [folder.path().join("libibex.so")]);
        assert_eq!(manifest.remove().unwrap(), [] as [PathBuf; 0]);
    }

    #[test]
    fn a_link_to_nothing_is_refused() {
        let folder = scratch();
        let link = Link { path: folder.path().join("link"), target: "missing".into() };
        assert!(replace_link(&link).unwrap_err().to_string().contains("does not exist"));
        assert!(fs::symlink_metadata(&link.path).is_err());
    }
}

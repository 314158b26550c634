// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Open MPIs for which ibex is installed in one place. Each is identified by the release and the prefix in its
//! manifest. Its name is that of its folder, which begins with the release: the chooser (`plugin-abi/chooser`) and the
//! command `ibex` rely on it. Grade: setup. Called by [`super`]. Tests: tests.rs.

use super::place::{Place, Set};
use crate::manifest::{Manifest, Owner, hash_of};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

pub(super) struct Installed {
    pub(super) set: Set,
    pub(super) manifest: Manifest,
    pub(super) owner: Owner,
}

pub(super) fn all(place: &Place) -> Result<Vec<Installed>> {
    let Ok(entries) = fs::read_dir(&place.manifests) else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", place.manifests.display()))?.path();
        let name = path.file_stem().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
        if !name.starts_with("openmpi-") || path.extension() != Some(OsStr::new("json")) {
            continue;
        }
        let manifest = Manifest::read(&path)?.unwrap_or_default();
        let owner = manifest.openmpi.clone();
        let owner = owner.with_context(|| format!("{} does not say for which Open MPI it is", path.display()))?;
        all.push(Installed { set: place.set(&name), manifest, owner });
    }
    all.sort_by(|a, b| a.set.name.cmp(&b.set.name));
    Ok(all)
}

/// Returns the set of an Open MPI: the installed one, or a new one under an unused name.
pub(super) fn of(place: &Place, all: &[Installed], owner: &Owner) -> Set {
    if let Some(installed) = all.iter().find(|installed| installed.owner == *owner) {
        return place.set(&installed.set.name);
    }
    let name = format!("openmpi-{}", owner.release);
    let is_taken = all.iter().any(|installed| installed.set.name == name && installed.owner.prefix != owner.prefix);
    let prefix = hash_of(owner.prefix.as_os_str().as_encoded_bytes());
    place.set(&if is_taken { format!("{name}-{}", &prefix[..8]) } else { name })
}

/// Returns the set that a user names: by the prefix, the release, or the name of its folder.
pub(super) fn named(all: Vec<Installed>, name: &Path) -> Result<Installed> {
    let prefix = fs::canonicalize(name).unwrap_or_else(|_| name.to_path_buf());
    let is_meant = |installed: &Installed| {
        installed.owner.prefix == name
            || installed.owner.prefix == prefix
            || Path::new(&installed.owner.release) == name
            || Path::new(&installed.set.name) == name
    };
    let (mut meant, others): (Vec<Installed>, Vec<Installed>) = all.into_iter().partition(is_meant);
    let list = |of: &[Installed]| of.iter().map(|one| format!("\n    {one}")).collect::<Vec<_>>().concat();
    match meant.len() {
        1 => Ok(meant.remove(0)),
        0 if others.is_empty() => bail!("nothing is installed for {}, nor for any other Open MPI", name.display()),
        0 => bail!("nothing is installed for {}, but for{}", name.display(), list(&others)),
        _ => bail!(
            "{} names several; give prefix, release or folder, whichever tells it from the others:{}",
            name.display(),
            list(&meant)
        ),
    }
}

impl std::fmt::Display for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Owner { release, prefix } = &self.owner;
        write!(f, "Open MPI {release} in {}: {}", prefix.display(), self.set.library.display())
    }
}

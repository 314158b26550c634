// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which fabric a process belongs to, from its environment: `SOFTHCA_FABRIC` (a folder, or a name; without it the
//! user's default fabric), `SOFTHCA_CONFIG` (a file) and `SOFTHCA_PROFILE` (the profile of devices that name none).
//!
//! Called by: `verbs::device`, and `softhca ctl`. Grade: setup. Threads: any.

use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::engine::FabricSpec;
use crate::fabric_folder::{is_fabric_name, named_folder};
use crate::profiles;

/// Where a fabric is.
pub enum Place {
    /// In this folder, which somebody has made.
    Folder(PathBuf),
    /// In this folder in shared memory, which is made on demand.
    Named(PathBuf),
}

/// The configuration.
///
/// # Errors
/// It cannot be read or is wrong, or there is no such profile.
pub fn config() -> anyhow::Result<Config> {
    let named = std::env::var("SOFTHCA_PROFILE").ok().filter(|name| !name.is_empty());
    let profile = named.map(|name| name.parse::<profiles::Name>()).transpose();
    let profile = profile.map_err(|error| anyhow::anyhow!("SOFTHCA_PROFILE: {error}"))?;
    Ok(match std::env::var_os("SOFTHCA_CONFIG").filter(|path| !path.is_empty()) {
        Some(path) => Config::read(Path::new(&path), profile)?,
        None => Config::of_profile(profile),
    })
}

/// The folder.
///
/// # Errors
/// `SOFTHCA_FABRIC` is neither a path nor a name.
pub fn place(config: &Config) -> anyhow::Result<Place> {
    let given = std::env::var("SOFTHCA_FABRIC").ok().filter(|given| !given.is_empty());
    if let Some(path) = given.as_deref().filter(|given| given.starts_with('/')) {
        return Ok(Place::Folder(PathBuf::from(path)));
    }
    let name = given.as_deref().or(config.fabric.as_deref()).unwrap_or("default");
    anyhow::ensure!(is_fabric_name(name), "SOFTHCA_FABRIC={name}: a fabric's name is 1 to 64 letters, digits, - and _");
    Ok(Place::Named(named_folder(name)))
}

impl Config {
    /// The fabric that it describes, in this folder.
    #[must_use]
    pub fn fabric_in(self, folder: PathBuf) -> FabricSpec {
        FabricSpec { folder, devices: self.devices, faults: self.faults, trace: self.trace }
    }
}

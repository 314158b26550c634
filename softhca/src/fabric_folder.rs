// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of a fabric: a folder in /dev/shm that belongs to one user alone, and that the environment of a process
//! names: `SOFTHCA_FABRIC` (a folder, or a name; without it the user's default fabric). `SOFTHCA_CONFIG` (a file) and
//! `SOFTHCA_PROFILE` (the profile of devices that name none) describe its adapters. Called by: the library, in every
//! process of the fabric, and the command. Grade: setup. Threads: any. Tests: `tests/stale_runs.rs`. `softhca run`
//! without a name removes its folder at its end. The next run removes the folder of a killed one: every process of a
//! run holds a lock of the file `run` in its folder, so a free lock means that none is left.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use crate::config::Config;
use crate::engine::FabricSpec;
use crate::profiles;

/// Whether `name` may name a fabric, and so be part of a folder's name.
pub fn is_fabric_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Returns the folder of the calling user's fabric `name`.
pub fn named_folder(name: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/softhca-{}-{name}", user()))
}

fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Makes `folder`, open to this user alone, or checks that it is such a folder.
/// Errors: it cannot be made, or belongs to another user or is open to others.
pub fn make_private(folder: &Path) -> anyhow::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        result => return result.with_context(|| format!("cannot make the fabric's folder {}", folder.display())),
    }
    check_private(folder)
}

/// Checks that `folder` exists and is open to this user alone.
/// Errors: it does not exist, belongs to another user or is open to others.
pub fn check_private(folder: &Path) -> anyhow::Result<()> {
    let found = std::fs::symlink_metadata(folder)
        .with_context(|| format!("there is no fabric in {} (any more)", folder.display()))?;
    anyhow::ensure!(
        found.is_dir() && found.uid() == user() && found.mode() & 0o777 & !0o700 == 0,
        "{} is not a folder of this user alone (owner {}, mode {:o}): remove it, or name another fabric in SOFTHCA_FABRIC",
        folder.display(),
        found.uid(),
        found.mode() & 0o7777
    );
    Ok(())
}

/// Returns the folder for a run of process `pid`; `random` tells it from an earlier process of that number.
pub fn run_folder(pid: u32, random: u64) -> PathBuf {
    named_folder(&format!("run-{pid}-{random:016x}"))
}

/// Marks `folder` as that of a run which lives as long as the descriptor is open: here, and in all programs started
/// from here, which inherit it. Its number is high if possible, away from the descriptors of scripts.
/// Errors: the file cannot be made or locked.
pub fn begin_run(folder: &Path) -> io::Result<OwnedFd> {
    // Locked before it has its name, so that no process finds it free.
    let draft = folder.join("run.draft");
    let file = File::create_new(&draft)?;
    file.try_lock_shared()?;
    let copy = |least| fcntl_dupfd_cloexec(&file, least);
    let inherited = copy(200).or_else(|_| copy(3))?;
    fcntl_setfd(&inherited, FdFlags::empty())?;
    std::fs::rename(&draft, folder.join("run"))?;
    Ok(inherited)
}

/// Holds the lock of a run's folder (of no other) as long as this process lives, even without the inherited descriptor.
pub fn belong_to_run(folder: &Path) {
    if let Ok(file) = File::open(folder.join("run"))
        && file.try_lock_shared().is_ok()
    {
        std::mem::forget(file);
    }
}

/// Removes the folders of this user's runs that were killed with all their programs.
pub fn remove_stale_runs() {
    let prefix = named_folder("run-");
    let prefix = prefix.to_string_lossy();
    let Ok(entries) = std::fs::read_dir("/dev/shm") else { return };
    for entry in entries.flatten() {
        let folder = entry.path();
        let maker = folder.to_str().and_then(|path| path.strip_prefix(&*prefix)).and_then(maker_of);
        let Some(maker) = maker else { continue };
        if check_private(&folder).is_ok() && is_stale(&folder, maker) {
            let _others_may_be_faster = std::fs::remove_dir_all(&folder);
        }
    }
}

/// The process that made a run's folder, by the rest of its name after `run-`; `None`: another fabric has that name.
fn maker_of(rest: &str) -> Option<u32> {
    let (pid, random) = rest.split_once('-')?;
    let is_random = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    pid.parse().ok().filter(|_| is_random)
}

/// Whether no process is left of the run in `folder`, which process `maker` made.
fn is_stale(folder: &Path, maker: u32) -> bool {
    match File::open(folder.join("run")) {
        Ok(file) => file.try_lock().is_ok(),
        // The run was killed before it made the file, or is about to make it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => !Path::new(&format!("/proc/{maker}")).exists(),
        Err(_) => false,
    }
}

/// Returns the newest libsofthca.so: of an installation or package, beside the command, or in cargo's `deps` below it.
/// Errors: there is none.
pub fn library_of(command: &Path) -> anyhow::Result<PathBuf> {
    let beside = command.parent().unwrap_or(Path::new("/"));
    let paths = ["", "deps", "../lib", "../lib/softhca", "../lib64/softhca"]
        .map(|folder| beside.join(folder).join("libsofthca.so"));
    let found = paths.into_iter().filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max();
    found.map(|(_, path)| path).with_context(|| {
        format!("libsofthca.so is not in {}: build it with `cargo build -p softhca`", beside.display())
    })
}

/// Returns the configuration that the environment names.
/// Errors: it cannot be read or is wrong, or there is no such profile.
pub fn config() -> anyhow::Result<Config> {
    let named = std::env::var("SOFTHCA_PROFILE").ok().filter(|name| !name.is_empty());
    let profile = named.map(|name| name.parse::<profiles::Name>()).transpose();
    let profile = profile.map_err(|error| anyhow::anyhow!("SOFTHCA_PROFILE: {error}"))?;
    Ok(match std::env::var_os("SOFTHCA_CONFIG").filter(|path| !path.is_empty()) {
        Some(path) => Config::read(Path::new(&path), profile)?,
        None => Config::of_profile(profile),
    })
}

/// Returns the folder, and whether it is made on demand (in shared memory); otherwise it must exist.
/// Errors: `SOFTHCA_FABRIC` is neither a path nor a name.
pub fn place(config: &Config) -> anyhow::Result<(PathBuf, bool)> {
    let given = std::env::var("SOFTHCA_FABRIC").ok().filter(|given| !given.is_empty());
    if let Some(path) = given.as_deref().filter(|given| given.starts_with('/')) {
        return Ok((PathBuf::from(path), false));
    }
    let name = given.as_deref().or(config.fabric.as_deref()).unwrap_or("default");
    anyhow::ensure!(is_fabric_name(name), "SOFTHCA_FABRIC={name}: a fabric's name is 1 to 64 letters, digits, - and _");
    Ok((named_folder(name), true))
}

impl Config {
    /// Returns the fabric that it describes, in this folder.
    pub fn fabric_in(self, folder: PathBuf) -> FabricSpec {
        FabricSpec { folder, devices: self.devices, faults: self.faults, trace: self.trace }
    }
}

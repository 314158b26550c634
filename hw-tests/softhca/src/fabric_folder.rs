// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a fabric's shared state is: a folder in /dev/shm that belongs to one user alone.
//! Called by: the library, in every process of the fabric, and the command. Grade: setup.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The folder of the calling user's fabric `name`.
#[must_use]
pub fn named_folder(name: &str) -> PathBuf {
    // SAFETY: getuid has no preconditions and cannot fail.
    let uid = unsafe { libc::getuid() };
    PathBuf::from(format!("/dev/shm/softhca-{uid}-{name}"))
}

/// Makes `folder`, open to this user alone, or checks that it is such a folder.
///
/// # Errors
/// It cannot be made, or belongs to another user or is open to others.
pub fn make_private(folder: &Path) -> anyhow::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        result => return result.with_context(|| format!("cannot make the fabric's folder {}", folder.display())),
    }
    check_private(folder)
}

/// Checks that `folder` exists and is open to this user alone.
///
/// # Errors
/// It does not exist, belongs to another user or is open to others.
pub fn check_private(folder: &Path) -> anyhow::Result<()> {
    let found = std::fs::symlink_metadata(folder)
        .with_context(|| format!("there is no fabric in {} (any more)", folder.display()))?;
    // SAFETY: getuid has no preconditions and cannot fail.
    let uid = unsafe { libc::getuid() };
    anyhow::ensure!(
        found.is_dir() && found.uid() == uid && found.mode() & 0o777 & !0o700 == 0,
        "{} is not a folder of this user alone (owner {}, mode {:o}): remove it, or name another fabric in SOFTHCA_FABRIC",
        folder.display(),
        found.uid(),
        found.mode() & 0o7777
    );
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! New output files, whose errors name them.
//!
//! Called by the formats. Path: pending. Threads: any. Tests: tests/refusals.rs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Error, Result, anyhow};

/// Makes a file, which must not exist, and has it written.
pub(crate) fn write(path: &Path, with: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let mut file = BufWriter::with_capacity(1 << 18, create(path)?);
    with(&mut file).and_then(|()| file.flush()).map_err(failed(path))
}

/// Makes a file, which must not exist.
pub(crate) fn create(path: &Path) -> Result<File> {
    File::create_new(path).map_err(failed(path))
}

/// Of a file or folder.
pub(crate) fn failed(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    |cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => anyhow!("{} cannot be written: {cause}", path.display()),
    }
}

/// Of what is in the way.
pub(crate) fn exists(path: &Path) -> Error {
    anyhow!("{} exists already, and nothing is overwritten; give another name or remove it", path.display())
}

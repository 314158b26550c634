// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates output files. Called by the formats. Path: pending. Threads: any. Tests: tests/refusals.rs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Error, Result, anyhow};

/// Creates a file, which must not exist, and writes it by `with`.
pub(crate) fn write(path: &Path, with: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let mut file = BufWriter::with_capacity(1 << 18, create(path)?);
    with(&mut file).and_then(|()| file.flush()).map_err(failed(path))
}

pub(crate) fn create(path: &Path) -> Result<File> {
    File::create_new(path).map_err(failed(path))
}

/// Returns a function that makes an error, which names the file or folder, from an I/O error.
pub(crate) fn failed(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    |cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => anyhow!("{} cannot be written: {cause}", path.display()),
    }
}

pub(crate) fn exists(path: &Path) -> Error {
    anyhow!("{} exists already, and nothing is overwritten; give another name or remove it", path.display())
}

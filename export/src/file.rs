// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new output file, whose errors name it.
//!
//! Called by the formats. Path: pending. Threads: any. Tests: tests/refusals.rs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::ExportError;

/// Makes a file, which must not exist, and has it written.
pub(crate) fn write(path: &Path, with: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), ExportError> {
    let failed = ExportError::write(path);
    let mut file = BufWriter::with_capacity(1 << 18, File::create_new(path).map_err(&failed)?);
    with(&mut file).and_then(|()| file.flush()).map_err(&failed)
}

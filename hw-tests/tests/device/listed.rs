// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that every C program of a folder of hw-tests is in a list, so that a test runs it. Setup grade; any thread.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Compares the programs of a folder with the listed ones; `list` is the file to correct.
pub(crate) fn every_program_is_listed<'a>(
    folder: &str,
    listed: impl IntoIterator<Item = &'a str>,
    list: &str,
) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let listed: BTreeSet<String> = listed.into_iter().map(str::to_owned).collect();
    let mut there = BTreeSet::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            there.insert(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    let difference: Vec<&String> = there.symmetric_difference(&listed).collect();
    ensure!(difference.is_empty(), "{} and the list in {list} differ in: {difference:?}", folder.display());
    Ok(())
}

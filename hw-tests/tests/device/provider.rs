// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libfabric provider, as an installed libfabric loads it. Setup grade; one test at a time.

use crate::site::Site;
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::{Folder, Job};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::on_emulated("libfabric lists the provider with the adapter's port as its domain", is_listed).quick()]
}

/// The provider's library, which cargo builds beside this program or above its folder.
fn library() -> Result<PathBuf> {
    let program = std::env::current_exe().context("find this program's folder")?;
    let folders = program.ancestors().skip(1).take(2);
    let library = folders.map(|folder| folder.join("libibex_fi.so")).find(|file| file.is_file());
    library.context("the provider is not built: `cargo build -p ibex-provider`")
}

fn is_listed(site: &mut Site) -> Result<()> {
    let folder = Folder::new("ibex-provider")?;
    symlink(library()?, folder.file("libibex-fi.so")).context("cannot name the library as libfabric wants it")?;
    let path = folder.path().display().to_string();
    let job = Job::new(["fi_info", "-p", "ibex"]).env("FI_PROVIDER_PATH", path);
    let said = site.fabric_on("[[device]]\nname = \"hca7\"\n")?.run(&job)?.checked()?.stdout;
    for words in ["provider: ibex", "domain: hca7:1", "type: FI_EP_RDM"] {
        ensure!(said.contains(words), "fi_info does not say {words:?}:\n{said}");
    }
    Ok(())
}

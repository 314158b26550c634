// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that the libfabric provider loses: a process that has ended, one that is killed, an address that nobody has.
//! The program `hw-tests/libfabric/lost_peers.c` checks what becomes of the operations. Setup grade.

use crate::launch::cases_passed;
use crate::provider::installed;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::{Folder, Job};
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/libfabric/lost_peers.c");

pub(crate) fn tests() -> Vec<Test> {
    let name = "by libfabric, a lost peer fails its own operations, with a reason, and no others";
    vec![Test::on_emulated(name, outlives).quick()]
}

fn outlives(site: &mut Site) -> Result<()> {
    let (folder, path) = installed()?;
    let program = compiled(&folder)?;
    let job = Job::new([program.as_str()]).env("FI_PROVIDER_PATH", path).env("FI_PROVIDER", "ibex");
    let outcome = site.fabric(1)?.run(&job)?.checked()?;
    let passed = cases_passed(&outcome.stdout);
    site.cases += passed.with_context(|| format!("the program did not say how many cases passed: {outcome}"))?;
    Ok(())
}

fn compiled(folder: &Folder) -> Result<String> {
    let program = folder.file("lost_peers").display().to_string();
    let status = Command::new("cc").args(["-Wall", "-Wextra", "-O1", SOURCE, "-o", &program, "-lfabric"]).status()?;
    ensure!(status.success(), "{SOURCE} is not compiled; it needs libfabric-dev");
    Ok(program)
}

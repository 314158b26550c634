// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libfabric provider, as an installed libfabric loads it: `fi_info` and `fi_pingpong`, and the MPI programs of
//! hw-tests/mpi by Open MPI's MTL `ofi`, which knows nothing of ibex. Setup grade; one test at a time.

use crate::launch::Launch;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::{Folder, Job};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Programs that Open MPI runs by its MTL `ofi`, with their ranks. Not `pt2pt_matching`: the MTL itself crashes when a
/// program cancels a send.
const PROGRAMS: [(&str, usize); 7] = [
    ("pt2pt_requests", 4),
    ("pt2pt_modes", 2),
    ("pt2pt_datatypes", 2),
    ("pt2pt_flood", 2),
    ("self_messages", 2),
    ("collectives", 4),
    ("threads", 2),
];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::on_emulated("libfabric lists the provider with the adapter's port as its domain", is_listed).quick(),
        Test::on_emulated("fi_pingpong passes messages by the provider", |site| plays(site, "msg")).quick(),
        Test::on_emulated("fi_pingpong passes tagged messages by the provider", |site| plays(site, "tagged")).quick(),
    ];
    for (program, ranks) in PROGRAMS {
        let name = format!("open mpi's mtl ofi runs {program} by the provider on {ranks} ranks");
        tests.push(Test::on_emulated(name, move |site| by_mtl(site, program, ranks)).quick().device_independent());
    }
    tests
}

/// The provider's library, which cargo builds beside this program or above its folder.
fn library() -> Result<PathBuf> {
    let program = std::env::current_exe().context("find this program's folder")?;
    let folders = program.ancestors().skip(1).take(2);
    let library = folders.map(|folder| folder.join("libibex_fi.so")).find(|file| file.is_file());
    library.context("the provider is not built: `cargo build -p ibex-provider`")
}

/// Makes a folder with the provider under the name that libfabric looks for. Returns it with `FI_PROVIDER_PATH`.
pub(crate) fn installed() -> Result<(Folder, String)> {
    let folder = Folder::new("ibex-provider")?;
    symlink(library()?, folder.file("libibex-fi.so")).context("cannot name the library as libfabric wants it")?;
    let path = folder.path().display().to_string();
    Ok((folder, path))
}

/// A job of a program over the provider, which is in this `FI_PROVIDER_PATH`.
pub(crate) fn job<'a>(words: impl IntoIterator<Item = &'a str>, path: &str) -> Job {
    Job::new(words).env("FI_PROVIDER_PATH", path).env("FI_PROVIDER", "ibex")
}

fn is_listed(site: &mut Site) -> Result<()> {
    let (_folder, path) = installed()?;
    let job = Job::new(["fi_info", "-p", "ibex"]).env("FI_PROVIDER_PATH", path);
    let said = site.fabric_on("[[device]]\nname = \"hca7\"\n")?.run(&job)?.checked()?.stdout;
    for words in ["provider: ibex", "domain: hca7:1", "type: FI_EP_RDM"] {
        ensure!(said.contains(words), "fi_info does not say {words:?}:\n{said}");
    }
    Ok(())
}

/// Starts both sides of `fi_pingpong`, the client until the server listens.
const BOTH: &str = "fi_pingpong -c -p ibex -e rdm -m $0 & \
    until fi_pingpong -c -p ibex -e rdm -m $0 127.0.0.1; do kill -0 $! || break; sleep 0.1; done; wait $!";

fn plays(site: &mut Site, messages: &str) -> Result<()> {
    let (_folder, path) = installed()?;
    let job = Job::new(["sh", "-c", BOTH, messages]).env("FI_PROVIDER_PATH", path);
    let said = site.fabric(1)?.run(&job)?.checked()?.stdout;
    // Both sides print a line for each size; -c checks the data.
    let lines = said.lines().filter(|line| line.starts_with("1m ")).count();
    ensure!(lines == 2, "fi_pingpong does not print two lines for messages of 1 MiB:\n{said}");
    Ok(())
}

fn by_mtl(site: &mut Site, program: &'static str, ranks: usize) -> Result<()> {
    let (_folder, path) = installed()?;
    let launch = Launch::new(program, ranks).with("pml", "cm").with("mtl", "ofi").with("btl", "self");
    let launch = launch.with("mtl_ofi_provider_include", "ibex").with("osc", "^rdma,ucx");
    launch.environment("FI_PROVIDER_PATH", &path).passes(site)
}

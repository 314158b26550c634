// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian packages that ibex needs, here and in a root file system with another Open MPI: finds which are missing, says what each is for, installs them with apt-get.
//!
//! The first step of `bench` and `test`, and a command of its own. Where it may not install (no root and no sudo, or
//! not a Debian), it prints what to do and stops.
//!
//! Grade: setup. Tests: at the end of this file.

use crate::command::{is_in_path, run, shown, step};
use anyhow::{Result, bail};
use hw_tests::device::SOFT_ROCE;
use std::collections::HashSet;
use std::process::{Command, ExitCode};

/// Arguments of `cargo xtask setup`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Say what is missing, and install nothing
    #[arg(long)]
    dry_run: bool,
    /// The device that is going to be used: `soft-roce` needs a virtual machine, an adapter does not
    #[arg(long, value_name = "NAME", default_value = "soft-roce")]
    device: String,
}

/// What a package is needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Building, or running on any device.
    Always,
    /// The virtual machine of soft-RoCE.
    VirtualMachine,
    /// What ibex is measured beside, and with.
    Bench,
    /// What only tests want.
    Test,
    /// Another Open MPI than this machine's, in a root file system of its own (debian13.rs).
    Root,
}

struct Package {
    name: &'static str,
    why: &'static str,
    need: Need,
}

const fn always(name: &'static str, why: &'static str) -> Package {
    Package { name, why, need: Need::Always }
}

const fn virtual_machine(name: &'static str, why: &'static str) -> Package {
    Package { name, why, need: Need::VirtualMachine }
}

const fn bench(name: &'static str, why: &'static str) -> Package {
    Package { name, why, need: Need::Bench }
}

const fn test(name: &'static str, why: &'static str) -> Package {
    Package { name, why, need: Need::Test }
}

const fn root(name: &'static str, why: &'static str) -> Package {
    Package { name, why, need: Need::Root }
}

/// Every package a Debian 12 with nothing but Rust and a C compiler lacks. What one of these depends on is not listed.
static PACKAGES: &[Package] = &[
    always("gcc", "compiles the C parts"),
    always("libc6-dev", "headers of the C library"),
    always("make", "drives the configuration of the verbs headers"),
    always("cmake", "configures the verbs headers"),
    always("pkg-config", "finds libraries"),
    always("libclang-dev", "reads C headers for the bindings"),
    always("libibverbs-dev", "the verbs library"),
    always("libnl-3-dev", "needed by the configuration of the verbs headers"),
    always("libnl-route-3-dev", "needed by the configuration of the verbs headers"),
    always("libhwloc-dev", "distance between an adapter and a process"),
    always("libudev-dev", "what hwloc names to its linkers"),
    always("libopenmpi-dev", "Open MPI's headers and compiler wrapper"),
    always("openmpi-bin", "mpirun, ompi_info"),
    always("ibverbs-providers", "user-space drivers of the adapters"),
    always("ibverbs-utils", "ibv_devinfo, to say what a device is"),
    always("perftest", "the raw measurements ibex is compared with"),
    always("ucx-utils", "ucx_perftest: another user of verbs, for the emulated adapter"),
    always("python3-pyverbs", "rdma-core's own test suite, for the emulated adapter"),
    always("hpcc", "the HPC Challenge: its answers over ibex and over shared memory are compared, in a test"),
    always("netpipe-openmpi", "checks messages of all lengths, in a test"),
    always("otf2-tools", "reads the exports as OTF2, in tests; brings the library that writes them"),
    always("iproute2", "sets up network interfaces"),
    always("strace", "counts the system calls of a message, in a test"),
    bench("valgrind", "counts the instructions of a message"),
    // With all that it needs 124 MB to fetch and 412 MB on the disk: not for who only installs or measures.
    test("chromium", "shows the pages of `ibex view`, in a test, and draws their pictures"),
    root("mmdebstrap", "makes a Debian 13 root, for tests and measurements with Open MPI 5"),
    virtual_machine("qemu-system-x86", "the virtual machine with soft-RoCE"),
    virtual_machine("busybox-static", "its first program"),
    virtual_machine("kmod", "lists its kernel modules"),
];

/// `cargo xtask setup`.
pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let missing = missing(Some(&arguments.device), &[Need::Bench, Need::Test, Need::Root])?;
    if missing.is_empty() {
        println!("Every needed package is installed.");
    } else if arguments.dry_run {
        announce(&missing);
    } else {
        install(&missing)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that everything is installed that building needs, and testing on that device if one is given.
///
/// # Errors
/// When something is missing and cannot be installed; the message has the command to run.
pub(crate) fn ensure(device: Option<&str>) -> Result<()> {
    let missing = missing(device, if device.is_some() { &[Need::Test] } else { &[] })?;
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// Makes sure that everything is installed that measuring on a device needs.
///
/// # Errors
/// Those of [`ensure`].
pub(crate) fn ensure_for_bench(device: &str) -> Result<()> {
    let missing = missing(Some(device), &[Need::Bench])?;
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// Makes sure that everything is installed that testing on a device needs of an Open MPI: what is tested beyond that is
/// the same with every Open MPI.
///
/// # Errors
/// Those of [`ensure`].
pub(crate) fn ensure_for_one_open_mpi(device: &str) -> Result<()> {
    let missing = missing(Some(device), &[])?;
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// Makes sure that everything is installed that making a root file system needs.
///
/// # Errors
/// Those of [`ensure`].
pub(crate) fn ensure_for_root() -> Result<()> {
    let of_roots = PACKAGES.iter().filter(|package| package.need == Need::Root).collect();
    let missing = missing_of(of_roots)?;
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// The packages of a root file system in which ibex is built, tested and measured on emulated adapters.
pub(crate) fn packages_of_a_root() -> Vec<&'static str> {
    names(&needed(None, &[Need::Bench]))
}

fn missing(device: Option<&str>, more: &[Need]) -> Result<Vec<&'static Package>> {
    missing_of(needed(device, more))
}

fn missing_of(needed: Vec<&'static Package>) -> Result<Vec<&'static Package>> {
    if !is_in_path("dpkg-query") {
        let names = names(&needed).join(" ");
        bail!("this is not a Debian system, so nothing was checked; on Debian 12 these packages are needed: {names}");
    }
    let installed = installed(&names(&needed))?;
    Ok(needed.into_iter().filter(|package| !installed.contains(package.name)).collect())
}

fn needed(device: Option<&str>, more: &[Need]) -> Vec<&'static Package> {
    let is_needed = |package: &&Package| match package.need {
        Need::Always => true,
        Need::VirtualMachine => device == Some(SOFT_ROCE),
        Need::Bench | Need::Test | Need::Root => more.contains(&package.need),
    };
    PACKAGES.iter().filter(is_needed).collect()
}

fn names(packages: &[&Package]) -> Vec<&'static str> {
    packages.iter().map(|package| package.name).collect()
}

/// Which of the names dpkg has installed. It exits with 1 when it does not know a name, which is an answer, too.
fn installed(names: &[&str]) -> Result<HashSet<String>> {
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Status} ${Package}\\n"])
        .args(names)
        .output()?;
    Ok(parse_installed(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_installed(listing: &str) -> HashSet<String> {
    listing.lines().filter_map(|line| line.strip_prefix("installed ")).map(str::to_owned).collect()
}

fn announce(missing: &[&Package]) {
    let width = missing.iter().map(|package| package.name.len()).max().unwrap_or(0);
    println!("{} Debian packages are missing:", missing.len());
    for package in missing {
        println!("    {:width$}  {}", package.name, package.why);
    }
}

fn install(missing: &[&Package]) -> Result<()> {
    announce(missing);
    let mut update = apt_get();
    update.arg("update").arg("--quiet");
    let mut install = apt_get();
    install.args(["install", "--quiet", "--yes", "--no-install-recommends"]).args(names(missing));
    if !may_install() {
        bail!(
            "they cannot be installed from here (not root, and no sudo); run this as root, then try again:\n\
             apt-get update && apt-get install --no-install-recommends {}",
            names(missing).join(" ")
        );
    }
    step(&format!("Installing them: {}", shown(&install)));
    // The lists of a fresh container are empty, and old lists name files that are gone. One unreachable list among
    // many need not matter: the installation decides.
    if let Err(error) = run(&mut update) {
        eprintln!("warning: {error:#}; going on with the lists there are");
    }
    run(&mut install)
}

/// Whether this is root.
pub(crate) fn is_root() -> bool {
    // The owner of this process's folder in /proc is its effective user.
    std::os::unix::fs::MetadataExt::uid(&match std::fs::metadata("/proc/self") {
        Ok(metadata) => metadata,
        Err(_) => return false,
    }) == 0
}

fn may_install() -> bool {
    is_root() || is_in_path("sudo")
}

fn apt_get() -> Command {
    if is_root() {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    } else {
        let mut command = Command::new("sudo");
        command.args(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_that_dpkg_calls_installed_count_as_installed() {
        let listing = "installed gcc\nnot-installed cmake\nconfig-files perftest\ninstalled libnl-3-dev\n";
        let installed = parse_installed(listing);
        assert_eq!(installed, HashSet::from(["gcc".to_owned(), "libnl-3-dev".to_owned()]));
    }

    #[test]
    fn an_adapter_of_the_machine_needs_no_virtual_machine() {
        let for_adapter = names(&needed(Some("mlx5_0"), &[]));
        assert!(for_adapter.contains(&"libibverbs-dev"));
        assert!(!for_adapter.contains(&"qemu-system-x86"));
        assert!(!for_adapter.contains(&"chromium"));
        assert!(names(&needed(None, &[Need::Test])).contains(&"chromium"));
        assert!(names(&needed(Some(SOFT_ROCE), &[])).contains(&"qemu-system-x86"));
    }

    #[test]
    fn each_package_is_listed_once_and_says_what_it_is_for() {
        let mut seen = HashSet::new();
        for package in PACKAGES {
            assert!(seen.insert(package.name), "{} is listed twice", package.name);
            assert!(!package.why.is_empty(), "{}", package.name);
        }
    }
}

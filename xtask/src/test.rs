// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask test`: formatting, lints, the tests that need no device, an installation, and the tests on a device.
//!
//! Every part runs even where an earlier one failed; the last lines say how long each took, and count all of it. A part
//! that is not made of tests (formatting, lints, a build) counts as one. Tests that a device cannot do are listed, and
//! counted as skipped.
//!
//! What is the same with every Open MPI is tested with this machine's alone; with another (`--mpi`) what is linked with
//! it, and the device tests, all on emulated adapters and a few on soft-RoCE. Without arguments some of the former
//! follow with Open MPI 5, where this machine's is another.
//!
//! [`tally`] counts. Grade: setup. Tests: at the end of this file.

mod tally;

use crate::command::{cargo, output, step};
use crate::workspace::Workspace;
use crate::{build, install, miri, readers, series, setup};
use anyhow::{Context, Result, bail};
use hw_tests::device::SOFT_ROCE;
use hw_tests::openmpi::Series;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;
use tally::Tally;

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run the device tests on `softhca` (emulated adapters), `softhca:PROFILE` (the same, that behave as mlx5, rxe,
    /// irdma, `bnxt_re` or minimal), `soft-roce` (a software device in a virtual machine), or an adapter of this
    /// machine such as `mlx5_0` [default: softhca:mlx5, then softhca:minimal and soft-roce without what is the same on
    /// every device; with --mpi softhca:mlx5, then a few of the tests on soft-roce unless --only names others]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Of the device tests only those whose name contains this; given several times, one of these
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Only the tests on the device
    #[arg(long)]
    device_only: bool,
    /// With this Open MPI, 4.1 or 5; 5 runs in a Debian 13 root made for it where this machine has another, and without
    /// what is the same with every Open MPI [default: this machine's]
    #[arg(long, value_name = "SERIES")]
    mpi: Option<Series>,
}

impl Arguments {
    /// Whether everything is asked for.
    fn are_none(&self) -> bool {
        self.device.is_none() && self.only.is_empty() && !self.device_only && self.mpi.is_none()
    }

    /// On which devices tests are run, and which.
    fn runs(&self) -> Vec<OnDevice<'_>> {
        let only: Vec<&str> = self.only.iter().map(String::as_str).collect();
        let whole = |device| OnDevice { device, only: only.clone(), only_device_dependent: false };
        let usual = |device| OnDevice { only_device_dependent: device != DEVICES[0], ..whole(device) };
        match (&self.device, self.mpi) {
            (Some(device), _) => vec![whole(device)],
            (None, None) => DEVICES.map(usual).to_vec(),
            (None, Some(_)) if !only.is_empty() => vec![whole(DEVICES[0])],
            (None, Some(_)) => {
                let few = OnDevice { only: ON_SOFT_ROCE_WITH_MPI.to_vec(), ..whole(SOFT_ROCE) };
                vec![whole(DEVICES[0]), few]
            }
        }
    }
}

/// The tests on one device.
#[derive(Clone, Debug, PartialEq)]
struct OnDevice<'a> {
    device: &'a str,
    /// Words of the tests' names, of which one is enough; without any, all tests.
    only: Vec<&'a str>,
    /// Without what is the same on every device.
    only_device_dependent: bool,
}

/// What tests run on unless a device is asked for: the adapter that most have, the least one that ibex takes, and a
/// kernel's.
const DEVICES: [&str; 3] = ["softhca:mlx5", "softhca:minimal", SOFT_ROCE];

/// What is tested with Open MPI 5 unless only one device is asked for, by words of the tests' names: events, protocols,
/// one-sided operations, failures.
const ON_5: [&str; 10] = [
    "what_events_show",
    "events_",
    "MPI_T",
    "PERUSE",
    "every_send_mode",
    "random_traffic",
    "no_registration_outlives",
    "one-sided_",
    "a_rank_that_ends_by",
    "ibex_names_the_peer",
];

/// What is tested on soft-RoCE when an Open MPI is asked for and no device: whether jobs start and talk in a guest and
/// between two, and what a kernel's device does otherwise than an emulated one.
const ON_SOFT_ROCE_WITH_MPI: [&str; 8] = [
    "every_send_mode_delivers_at_every_size_on_2_ranks",
    "what_events_show_is_what_was_sent_on_2_ranks",
    "one-sided_transfers_land_where_they_should_on_2_ranks",
    "a_rank_that_ends_by_kill_during_large_traffic",
    "ibex_names_the_peer_that_died_during_small_traffic",
    "no_registration_outlives",
    "messages_cross_between_two_nodes",
    "four_ranks_on_two_nodes_agree_on_collective_results",
];

/// `cargo xtask test`.
pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let workspace = Workspace::here();
    if series::place(arguments.mpi)? == series::Place::Debian13 {
        return series::again_in_debian13(&workspace);
    }
    let one_open_mpi = arguments.mpi.is_some();
    let runs = arguments.runs();
    for OnDevice { device, .. } in &runs {
        // A wrong name is refused before anything is built.
        let _: hw_tests::Device = device.parse()?;
        if one_open_mpi { setup::ensure_for_one_open_mpi(device)? } else { setup::ensure_for_tests(device)? }
    }
    let mut tally = Tally::default();
    match (arguments.device_only, one_open_mpi) {
        (true, _) => {}
        (false, true) => linked_with_open_mpi(&workspace, &mut tally),
        (false, false) => without_device(&workspace, &mut tally),
    }
    on_devices(&workspace, &runs, arguments.device_only, &mut tally);
    if arguments.are_none() {
        on_open_mpi_5(&workspace, &mut tally);
    }

    println!();
    for (name, took) in &tally.took {
        println!("{:6.0} s  {name}", took.as_secs_f64());
    }
    for name in &tally.failures {
        println!("FAILED: {name}");
    }
    println!("{tally} in {:.0} s", started.elapsed().as_secs_f64());
    Ok(if tally.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn without_device(workspace: &Workspace, tally: &mut Tally) {
    let root = workspace.root();
    tally.part("formatting", cargo(root).args(["fmt", "--all", "--check"]));
    tally.part(
        "clippy",
        cargo(root).args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    );
    // The tests on a device are a target of hw-tests, and follow later.
    let rest = ["test", "--no-fail-fast", "--workspace", "--exclude", "ibex-hw-tests", "--exclude", "softhca"];
    let readers = readers_of_exports(workspace, tally);
    tally.tests("unit, doc and compile-fail tests", cargo(root).args(rest).envs(readers));
    // Loom's flag is for all that is built, so that it has a folder of its own.
    let models = ["test", "--package", "ibex", "--lib", "events::"];
    let with_loom = [("RUSTFLAGS", "--cfg loom".into()), ("CARGO_TARGET_DIR", workspace.target().join("loom"))];
    tally.tests("the event engine's models, under loom", cargo(root).args(models).envs(with_loom));
    under_miri(workspace, tally);
    emulated_adapter(root, tally);
    let hw_tests = ["test", "--no-fail-fast", "--package", "ibex-hw-tests"];
    tally.tests("unit tests of hw-tests", cargo(root).args(hw_tests).args(["--lib", "--bins"]));
    tally.tests("doc tests of hw-tests", cargo(root).args(hw_tests).arg("--doc"));
}

/// Programs of others that read exports, by the variables that tests know them by; where one is not to be had, what it
/// reads is skipped, and said.
fn readers_of_exports(workspace: &Workspace, tally: &mut Tally) -> Vec<(&'static str, PathBuf)> {
    let started = Instant::now();
    step("programs of others that read exports");
    let (ready, missing) = readers::ensure(workspace);
    tally.took.push(("programs of others that read exports".to_owned(), started.elapsed()));
    for what in missing {
        tally.skip(&what);
    }
    ready
}

/// What of that depends on the Open MPI or the rdma-core that it is built with.
fn linked_with_open_mpi(workspace: &Workspace, tally: &mut Tally) {
    let root = workspace.root();
    let packages = ["--package", "ibex-ffi", "--package", "ibex-plugin-abi"];
    tally.part(
        "clippy",
        cargo(root).args(["clippy", "--quiet", "--all-targets"]).args(packages).args(["--", "-D", "warnings"]),
    );
    tally.tests(
        "unit tests of what is linked with Open MPI",
        cargo(root).args(["test", "--no-fail-fast"]).args(packages),
    );
    emulated_adapter(root, tally);
}

/// Among its tests are the programs that nobody here wrote (hw-tests/softhca/tests/programs).
fn emulated_adapter(root: &Path, tally: &mut Tally) {
    let softhca = ["test", "--no-fail-fast", "--package", "softhca"];
    tally.tests("tests of the emulated adapter, and programs of others on it", cargo(root).args(softhca));
}

/// The tests of [`ON_5`]; where no Debian 13 root is to be had, they are skipped, and that is said.
fn on_open_mpi_5(workspace: &Workspace, tally: &mut Tally) {
    if !matches!(series::place(Some(Series::V5)), Ok(series::Place::Debian13)) {
        return;
    }
    let mut arguments = ["test", "--mpi", "5", "--device-only"].map(OsString::from).to_vec();
    arguments.extend(ON_5.iter().flat_map(|test| ["--only", test]).map(OsString::from));
    match series::command_in_debian13(workspace, &arguments) {
        Ok(mut command) => {
            // They try what the library does, not how fast; optimising across crates takes minutes.
            command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
            tally.all_of("device tests with Open MPI 5", &mut command);
        }
        Err(error) => tally.skip(&format!("the tests with Open MPI 5: {error:#}")),
    }
}

/// What runs under Miri; where that is not to be had, it is skipped, and said.
fn under_miri(workspace: &Workspace, tally: &mut Tally) {
    if let Err(error) = miri::ensure(workspace) {
        return tally.skip(&format!("the tests under Miri: {error:#}"));
    }
    for run in miri::RUNS {
        tally.tests(&format!("tests of {} under Miri", run[1]), &mut miri::tests(workspace, run));
    }
}

fn on_devices(workspace: &Workspace, runs: &[OnDevice<'_>], device_only: bool, tally: &mut Tally) {
    let Some(library) = tally.timed("release build", || build::library(workspace)) else { return };
    let Some(command) = tally.done("the command ibex and its pages", build::command(workspace)) else { return };
    let folders = ["hw-tests/mpi", "hw-tests/tools", "benches/mpi", "examples"];
    for folder in folders {
        if tally.done(&format!("C programs of {folder}"), build::programs(workspace, folder)).is_none() {
            return;
        }
    }
    if !device_only {
        let installed = installs_and_uninstalls(workspace, &library, &command);
        tally.done("install and uninstall with Open MPI's own ompi_info", installed);
    }
    let Some(engine) = tally.timed("tests of the engine, built", || build::test_program(workspace, "engine")) else {
        return;
    };
    for OnDevice { device, only, only_device_dependent } in runs {
        let mut tests = cargo(workspace.root());
        tests
            .args(["test", "--package", "ibex-hw-tests", "--test", "device"])
            .env("IBEX_DEVICE", device)
            .env("IBEX_ONLY", only.join("\n"))
            .env("IBEX_COMPONENTS", workspace.components())
            .env("IBEX_PROGRAMS", workspace.programs())
            .env("IBEX_ENGINE_TESTS", &engine)
            .env("IBEX_COMMAND", &command);
        if *only_device_dependent {
            tests.env("IBEX_ONLY_DEVICE_DEPENDENT", "1");
        }
        tally.tests(&format!("device tests on {device}"), &mut tests);
    }
}

/// Installs under a folder of the target folder, asks `ompi_info`, uninstalls, and looks whether anything is left.
fn installs_and_uninstalls(workspace: &Workspace, library: &Path, command: &Path) -> Result<()> {
    let prefix = workspace.target().join("ibex/installed");
    if prefix.exists() {
        fs::remove_dir_all(&prefix).with_context(|| format!("cannot remove {}", prefix.display()))?;
    }
    build::emulated_adapter(workspace)?;
    let components = install::put_under(&prefix, workspace, library, command)?;
    let path = format!("{}:SYSTEM_DEFAULT", components.display());
    let listing = output(Command::new("ompi_info").arg("--parsable").env("OMPI_MCA_mca_base_component_path", path))?;
    for program in ["ibex", "softhca"] {
        let (program, page) = (prefix.join("bin").join(program), format!("share/man/man1/{program}.1"));
        if !program.is_file() || !prefix.join(&page).is_file() {
            bail!("an installation under {} has not both {} and its {page}", prefix.display(), program.display());
        }
    }
    for component in ["mca:pml:ibex:", "mca:btl:ibex:", "mca:btl:tcp:"] {
        if !listing.lines().any(|line| line.starts_with(component)) {
            bail!("ompi_info does not list {component} after an installation under {}", prefix.display());
        }
    }
    install::take_away_from(&prefix)?;
    if prefix.exists() {
        bail!("uninstall left something in {}", prefix.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(device: Option<&str>, only: &[&str], mpi: Option<Series>) -> Arguments {
        let only = only.iter().map(|text| (*text).to_owned()).collect();
        Arguments { device: device.map(str::to_owned), only, device_only: true, mpi }
    }

    fn devices(arguments: &Arguments) -> Vec<&str> {
        arguments.runs().iter().map(|run| run.device).collect()
    }

    #[test]
    fn with_an_open_mpi_a_few_tests_follow_on_soft_roce() {
        let arguments = asked(None, &[], Some(Series::V5));
        let runs = arguments.runs();
        assert_eq!(devices(&arguments), ["softhca:mlx5", SOFT_ROCE]);
        assert!(runs[0].only.is_empty() && runs[1].only == ON_SOFT_ROCE_WITH_MPI);
        assert!(runs.iter().all(|run| !run.only_device_dependent));
    }

    #[test]
    fn who_names_tests_or_a_device_gets_these_alone() {
        let arguments = asked(None, &["rail"], Some(Series::V5));
        assert_eq!(devices(&arguments), ["softhca:mlx5"]);
        assert_eq!(arguments.runs()[0].only, ["rail"]);
        let arguments = asked(Some(SOFT_ROCE), &["rail"], Some(Series::V5));
        assert_eq!((devices(&arguments), arguments.runs()[0].only.clone()), (vec![SOFT_ROCE], vec!["rail"]));
    }

    #[test]
    fn what_is_the_same_on_every_device_runs_on_the_first() {
        let arguments = asked(None, &[], None);
        let of_each: Vec<_> = arguments.runs().iter().map(|run| (run.device, run.only_device_dependent)).collect();
        assert_eq!(of_each, [(DEVICES[0], false), (DEVICES[1], true), (DEVICES[2], true)]);
    }
}

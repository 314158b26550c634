// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of `cargo xtask test` that need no device: formatting, clippy, unit, doc and compile-fail tests, simulated
//! programs; with `--all` also third-party programs, models under loom, and tests under Miri, beside which the library
//! is built in release. Called by [`super`]. Grade: setup.

use super::tally::{Lane, Tally};
use crate::build::{self, TestProgram, Tests};
use crate::command::{cargo, step};
use crate::workspace::Workspace;
use crate::{miri, readers, simulate};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const SIMULATED: [&str; 3] =
    ["simulated programs", "simulated programs of libfabric", "simulated programs of libfabric with lost peers"];

type NamedCommands = Vec<(String, Command)>;

/// Test targets that need a device, by folder and name.
const ON_DEVICES: [(&str, &str); 2] = [("hw-tests", "device"), ("hw-tests", "engine")];

/// Test targets that run third-party programs.
const OF_OTHERS: [(&str, &str); 2] = [("softhca", "programs"), ("view", "browser")];

/// The packages that are linked with an Open MPI, or with the rdma-core beside it.
const LINKED_WITH_OPEN_MPI: [&str; 3] = ["ffi", "plugin-abi", "softhca"];

pub(super) fn lints(workspace: &Workspace, tally: &mut Tally) {
    tally.part("formatting", cargo(workspace.root()).args(["fmt", "--all", "--check"]));
    clippy(workspace, &["--workspace"], tally);
}

/// Runs clippy for the packages that depend on the Open MPI.
pub(super) fn lints_of_what_open_mpi_loads(workspace: &Workspace, tally: &mut Tally) {
    clippy(workspace, &["--package", "ibex-ffi", "--package", "ibex-plugin-abi"], tally);
}

fn clippy(workspace: &Workspace, packages: &[&str], tally: &mut Tally) {
    let mut clippy = cargo(workspace.root());
    clippy.args(["clippy", "--quiet", "--all-targets"]).args(packages).args(["--", "-D", "warnings"]);
    tally.part("clippy", &mut clippy);
}

/// Runs the tests that are the same on every device and with every Open MPI.
pub(super) fn tests(workspace: &Workspace, tests: &Tests, all: bool, tally: &mut Tally) {
    let readers = if all { readers_of_exports(workspace, tally) } else { Vec::new() };
    let (of_others, ours) = split(workspace, tests, |_| true, &readers);
    tally.programs("unit tests, and tests of the emulated adapter", ours);
    // softhca has no doc tests, and `cargo test` would build it anew, for another kind of link.
    let doc = ["test", "--quiet", "--no-fail-fast", "--workspace", "--exclude", "softhca", "--doc"];
    tally.tests("doc and compile-fail tests", cargo(workspace.root()).args(doc));
    let mut simulated = if all { simulate::of_all_tests(workspace) } else { simulate::of_quick_tests(tests.folder()) };
    for (name, simulated) in SIMULATED.iter().zip(&mut simulated) {
        tally.part(name, simulated);
    }
    if all {
        // Each of them uses one thread most of the time: the build ends with the optimisation of a whole library.
        let loom_and_build: Lane<'_> = Box::new(|tally| {
            under_loom(workspace, tally);
            tally.timed("release build", || build::library(workspace));
        });
        let others_and_miri: Lane<'_> = Box::new(|tally| {
            run_each(of_others, tally);
            under_miri(workspace, tally);
        });
        tally.side_by_side(vec![loom_and_build, others_and_miri]);
    }
}

pub(super) fn of_what_open_mpi_loads(workspace: &Workspace, tests: &Tests, tally: &mut Tally) {
    let is_linked = |program: &TestProgram| {
        LINKED_WITH_OPEN_MPI.iter().any(|folder| program.folder == workspace.root().join(folder))
    };
    let (of_others, ours) = split(workspace, tests, is_linked, &[]);
    tally.programs("unit tests of what is linked with Open MPI", ours);
    run_each(of_others, tally);
}

/// Returns the commands of the test programs that need no device: those that run third-party programs, and the rest.
fn split(
    workspace: &Workspace,
    tests: &Tests,
    is_wanted: impl Fn(&TestProgram) -> bool,
    readers: &[(&'static str, PathBuf)],
) -> (NamedCommands, NamedCommands) {
    let is_one_of = |program: &TestProgram, targets: &[(&str, &str)]| {
        targets.iter().any(|(folder, target)| program.is(folder, target))
    };
    let wanted = tests.programs.iter().filter(|program| is_wanted(program) && !is_one_of(program, &ON_DEVICES));
    let (of_others, ours): (Vec<_>, Vec<_>) = wanted.partition(|program| is_one_of(program, &OF_OTHERS));
    let commands = |programs: Vec<&TestProgram>| {
        programs.into_iter().map(|program| command(workspace, tests, program, readers)).collect()
    };
    (commands(of_others), commands(ours))
}

fn run_each(programs: NamedCommands, tally: &mut Tally) {
    tally.name_lines("programs of others");
    for (name, mut command) in programs {
        tally.tests(&format!("programs of others, by {name}"), &mut command);
    }
}

/// Returns a test program's command as cargo would run it, with the folder of the library built with it.
fn command(
    workspace: &Workspace,
    tests: &Tests,
    program: &TestProgram,
    readers: &[(&'static str, PathBuf)],
) -> (String, Command) {
    let mut command = Command::new(&program.program);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    command.env("IBEX_BUILT", tests.folder()).env("SOFTHCA_COMMAND", build::softhca(workspace));
    command.envs(readers.iter().map(|(variable, place)| (*variable, place.as_path())));
    (program.shown(workspace.root()), command)
}

/// Returns third-party programs that read exports, by the variables of the tests; reports the others as skipped.
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

/// Runs the models under loom, in a target folder of their own because loom's flag is for all crates.
fn under_loom(workspace: &Workspace, tally: &mut Tally) {
    tally.name_lines("loom");
    let models = ["test", "--package", "ibex", "--lib", "events::"];
    let with_loom = [("RUSTFLAGS", "--cfg loom".into()), ("CARGO_TARGET_DIR", workspace.target().join("loom"))];
    tally.tests("the event engine's models, under loom", cargo(workspace.root()).args(models).envs(with_loom));
}

/// Runs the tests under Miri, or reports them as skipped if it cannot be installed.
fn under_miri(workspace: &Workspace, tally: &mut Tally) {
    tally.name_lines("Miri");
    if let Err(error) = miri::ensure(workspace) {
        return tally.skip(&format!("the tests under Miri: {error:#}"));
    }
    for run in miri::RUNS {
        tally.tests(&format!("tests of {} under Miri", run[1]), &mut miri::tests(workspace, run));
    }
}

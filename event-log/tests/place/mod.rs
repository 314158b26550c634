// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library, the mock of ibex beside it, and the application, for the tests of the text and of the trace.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Runs a command that must succeed, within two minutes but for cargo.
pub(crate) fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    output
}

/// Where the logger is: in `IBEX_BUILT`, where `cargo xtask test` has put all in one build, or where cargo builds it now,
/// as it builds a cdylib for no test of its own accord.
fn built() -> PathBuf {
    if let Some(built) = std::env::var_os("IBEX_BUILT") {
        return built.into();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target directory");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "ibex-event-log", "--lib", "--target-dir"]).arg(target);
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    if profile == "release" {
        cargo.arg("--release");
    }
    done(&mut cargo);
    target.join(profile)
}

/// A folder with the logger, the mock and the application, made once.
pub(crate) fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        // Each test program its own: they may run side by side.
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!("event-log-", env!("CARGO_CRATE_NAME")));
        std::fs::create_dir_all(&place).expect("the target directory can be written to");
        // A copy, not a link: the loader looks for libibex.so beside the real file.
        std::fs::copy(built().join("libibex_log.so"), place.join("libibex-log.so")).expect("it was built");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let include = format!("-I{}", here.join("../plugin-abi/include").display());
        let mut mock = Command::new("mpicc");
        mock.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libibex.so", &include, "-o"]);
        done(mock.arg(place.join("libibex.so")).arg(here.join("tests/mock/ibex.c")));
        let mut application = Command::new("mpicc");
        application.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic", "-o"]).arg(place.join("application"));
        application
            .arg(here.join("tests/mock/application.c"))
            .arg(format!("-L{}", place.display()))
            .args(["-libex", "-lmpi_mpifh"]);
        application.arg(format!("-Wl,-rpath,{}", place.display()));
        done(&mut application);
        // The same with the logger linked.
        done(application.args(["-Wl,--no-as-needed", "-libex-log", "-o"]).arg(place.join("linked")));
        place
    })
}

/// All that a command said.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Nanoseconds by the application's own clock: the least and the most between the two events of a pair.
pub(crate) fn apart(said: &str) -> [i64; 2] {
    let numbers = said.lines().find_map(|line| line.strip_prefix("apart ")).expect("it says so");
    let (least, most) = numbers.split_once(' ').expect("two numbers");
    [least, most].map(|number| number.parse().expect("a number"))
}

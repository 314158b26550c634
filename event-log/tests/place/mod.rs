// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library, the mock of ibex beside it, and the application, for the tests of the text and of the trace.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs a command that must succeed, within two minutes unless it is cargo.
pub(crate) fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    output
}

/// Folder of the logger: `IBEX_BUILT` (`cargo xtask test`), or else cargo builds it now, because it does not for tests.
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
        // Each test program has its own, because they may run side by side.
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

pub(crate) fn application() -> String {
    place().join("application").to_str().expect("UTF-8").to_owned()
}

/// Output of a command under the library, and the folder in which it ran and wrote. Dropping it removes the folders.
pub(crate) struct Ran {
    pub(crate) output: Output,
    pub(crate) folder: PathBuf,
    temporary: PathBuf,
}

impl Ran {
    pub(crate) fn new(words: &[&str], environment: &[(&str, &str)]) -> Ran {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let folder = place().join(format!("run-{}-{run}", std::process::id()));
        // Open MPI keeps folders of sessions there, and removes those of other runs with its own.
        let temporary = std::env::temp_dir().join(format!("ibex-event-log-{}-{run}", std::process::id()));
        for folder in [&folder, &temporary] {
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir(folder).expect("this directory and that of temporary files can be written to");
        }
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "900"]).args(words).current_dir(&folder).env("TMPDIR", &temporary);
        for variable in ["IBEX_LOG_EVENTS", "IBEX_TRACE", "IBEX_TRACE_EVENTS", "LD_LIBRARY_PATH"] {
            command.env_remove(variable);
        }
        command.env("LD_PRELOAD", place().join("libibex-log.so")).env("IBEX_LOG_FILE", "log");
        command.env("OMPI_MCA_btl", "self,vader").envs(environment.iter().copied());
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Ran { output, folder, temporary }
    }

    pub(crate) fn said(&self) -> String {
        said(&self.output)
    }

    /// The log of rank 0; empty if there is none.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log.0")).unwrap_or_default()
    }

    /// Number of files and folders that it wrote.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(&self.folder).expect("it is there").count()
    }
}

impl Drop for Ran {
    fn drop(&mut self) {
        for folder in [&self.folder, &self.temporary] {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Least and greatest time between the two events of a pair by the application's own clock, nanoseconds.
pub(crate) fn apart(said: &str) -> [i64; 2] {
    let numbers = said.lines().find_map(|line| line.strip_prefix("apart ")).expect("it says so");
    let (least, most) = numbers.split_once(' ').expect("two numbers");
    [least, most].map(|number| number.parse().expect("a number"))
}

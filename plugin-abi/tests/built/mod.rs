// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library that cargo builds, for tests that use it from outside: from `IBEX_BUILT`, where `cargo xtask test` has
//! built everything, or built now; and a directory in which Open MPI finds it as its component.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(built) = std::env::var_os("IBEX_BUILT") {
            return built.into();
        }
        let target =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("cargo's directory lies in the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "ibex-plugin-abi", "--lib", "--target-dir"]).arg(target);
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        if profile == "release" {
            cargo.arg("--release");
        }
        done(&cargo);
        target.join(profile)
    })
}

pub(crate) fn done(command: &Command) -> Output {
    let mut limited = Command::new("timeout");
    limited.args(["-k", "5", "1200"]).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (output, said) = run(limited);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

/// Runs a command with a folder of its own for temporary files: Open MPI keeps folders of sessions there, and removes
/// those of other commands with its own. Returns its output, also as one text.
fn run(mut command: Command) -> (Output, String) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let temporary = std::env::temp_dir().join(format!("ibex-plugin-abi-{}-{run}", std::process::id()));
    let _ = std::fs::remove_dir_all(&temporary);
    std::fs::create_dir(&temporary).expect("the directory of temporary files can be written to");
    command.env("TMPDIR", &temporary);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let _ = std::fs::remove_dir_all(&temporary);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, said)
}

/// Directory of one test, with the component in it; removed at the end.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(test: &str) -> Place {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("place-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(place.join("components")).expect("the target directory can be written to");
        let place = Place(place);
        std::os::unix::fs::symlink(library().join("libibex.so"), place.component()).expect("a new link");
        place
    }

    pub(crate) fn component(&self) -> PathBuf {
        self.0.join("components/mca_btl_ibex.so")
    }

    pub(crate) fn show_to(&self, command: &mut Command) {
        let path = format!("{}:SYSTEM_DEFAULT", self.0.join("components").display());
        command.env("OMPI_MCA_mca_base_component_path", path).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }

    /// Runs a command with the component and no setting of the user, at most two minutes. Returns status and output.
    #[allow(dead_code, reason = "not all tests run jobs")]
    pub(crate) fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120"]).args(words).current_dir(&self.0);
        // Cargo's value would find the library of the build.
        command.env_remove("LD_LIBRARY_PATH");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OMPI_MCA_")) {
            command.env_remove(name);
        }
        self.show_to(&mut command);
        let (output, said) = run(command);
        (output.status.code(), said)
    }

    /// Compiles a program of `tests/tool` with these options. Returns its path.
    #[allow(dead_code, reason = "not all tests run jobs")]
    pub(crate) fn compiled(&self, source: &str, options: &[&str]) -> String {
        let program = self.0.join(source).display().to_string();
        let include = format!("-I{}/include", env!("CARGO_MANIFEST_DIR"));
        let source = format!("{}/tests/tool/{source}.c", env!("CARGO_MANIFEST_DIR"));
        let compiler = ["mpicc", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", &program, &source, &include];
        let (code, said) = self.run(&[&compiler, options].concat());
        assert_eq!(code, Some(0), "{said}");
        program
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

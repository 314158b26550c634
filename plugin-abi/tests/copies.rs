// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two copies of libibex.so in one process: the one that was loaded later says so and takes no part, whoever loaded it;
//! nothing hangs.
//!
//! Needs what building the crate needs (Open MPI with its headers and commands) and no device. Every command has a time
//! limit.

mod built;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory with the component, and another with a copy of the library; removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Place {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("copies-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        for folder in ["components", "another"] {
            std::fs::create_dir_all(place.join(folder)).expect("the target directory can be written to");
        }
        let place = Place(place);
        std::os::unix::fs::symlink(built(), place.component()).expect("a new link");
        std::fs::copy(built(), place.copy()).expect("a new file");
        place
    }

    fn component(&self) -> PathBuf {
        self.0.join("components/mca_btl_ibex.so")
    }

    fn copy(&self) -> PathBuf {
        self.0.join("another/libibex.so")
    }

    /// A command in which Open MPI finds the component, and that is killed after two minutes.
    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120"]).args(words).current_dir(&self.0);
        command
            .env("OMPI_MCA_mca_base_component_path", format!("{}:SYSTEM_DEFAULT", self.0.join("components").display()))
            // Cargo's would find the library of the build.
            .env_remove("LD_LIBRARY_PATH")
            .env("OMPI_MCA_btl_ibex_if_include", "none:1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        (output.status.code(), text(&output))
    }

    /// The tool, linked with the libraries the options say.
    fn tool(&self, source: &str, options: &[&str]) -> String {
        let program = self.0.join(source).display().to_string();
        let include = format!("-I{}/include", env!("CARGO_MANIFEST_DIR"));
        let source = format!("{}/tests/tool/{source}.c", env!("CARGO_MANIFEST_DIR"));
        let compiler = ["mpicc", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", &program, &source, &include];
        let (code, said) = self.run(&[&compiler, options].concat());
        assert_eq!(code, Some(0), "{said}");
        program
    }

    /// What the later copy says, where it is the component.
    fn names_both(&self, said: &str) {
        for path in [self.copy(), self.component(), built()] {
            assert!(said.contains(&path.display().to_string()), "{} is missing in: {said}", path.display());
        }
        assert!(said.contains("two copies of ibex") && said.contains("cargo xtask install"), "{said}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The library that Open MPI loads.
fn built() -> PathBuf {
    built::library().join("libibex.so")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_tool_that_is_linked_with_another_copy_is_told_and_the_job_goes_on() {
    let place = Place::new("linked");
    let another = place.copy();
    let folder = another.parent().expect("it lies in one").display().to_string();
    let tool = place.tool("calls", &[&format!("-L{folder}"), "-libex", &format!("-Wl,-rpath,{folder}")]);
    let run = |btl: &str| {
        let words = ["mpirun", "-n", "2", "--mca", "pml", "ob1", "--mca", "btl", btl, &tool, "component"];
        let (code, said) = place.run(&words);
        assert_eq!((code, said.matches("0 wrong").count()), (Some(0), 2), "{said}");
        said
    };
    let said = run("self,vader,ibex");
    place.names_both(&said);
    assert_eq!(said.matches("two copies of ibex").count(), 1, "once for the host: {said}");
    // Where Open MPI does not open the other, there is nothing to say.
    assert!(!run("self,vader").contains("two copies"));
}

#[test]
fn a_job_that_has_no_other_way_ends_with_the_reason() {
    let place = Place::new("alone");
    let preload = format!("LD_PRELOAD={}", place.copy().display());
    let tool = place.tool("exchange", &[]);
    let (code, said) =
        place.run(&["mpirun", "-n", "2", "-x", &preload, "--mca", "pml", "ob1", "--mca", "btl", "self,ibex", &tool]);
    assert!(!matches!(code, Some(0 | 124 | 137)), "{code:?}: {said}");
    place.names_both(&said);
}

#[test]
fn the_copy_that_was_loaded_first_answers_a_tool_and_the_other_refuses() {
    let place = Place::new("mixed");
    let copy = place.copy().display().to_string();
    let tool = place.tool("two_copies", &["-ldl"]);
    for when in ["before", "after"] {
        let (code, said) = place.run(&[&tool, &copy, when]);
        assert!(code == Some(0) && said.contains("0 wrong"), "{when}: {code:?}: {said}");
        place.names_both(&said);
        assert_eq!(said.matches("two copies of ibex").count(), 1, "{when}: {said}");
    }
}

#[test]
fn a_tool_that_is_linked_with_the_file_the_component_is_a_link_to_meets_one_copy() {
    let place = Place::new("same");
    let folder = built::library().display().to_string();
    let tool = place.tool("calls", &[&format!("-L{folder}"), "-libex", &format!("-Wl,-rpath,{folder}")]);
    let words = ["mpirun", "-n", "2", "--mca", "pml", "ob1", "--mca", "btl", "self,vader,ibex", &tool, "component"];
    let (code, said) = place.run(&words);
    assert_eq!((code, said.matches("0 wrong").count()), (Some(0), 2), "{said}");
    assert!(!said.contains("two copies"), "{said}");
}

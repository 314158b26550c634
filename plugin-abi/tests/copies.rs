// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two copies of libibex.so in one process: the later one prints a message and takes no part, and nothing hangs. Needs
//! the same as building the crate (Open MPI with its headers and commands) and no device. Commands have a time limit.

mod built;

use std::path::{Path, PathBuf};

use built::Place;

fn built() -> PathBuf {
    built::library().join("libibex.so")
}

fn copy_in(place: &Place) -> PathBuf {
    let copy = place.0.join("another/libibex.so");
    std::fs::create_dir_all(place.0.join("another")).expect("the target directory can be written to");
    std::fs::copy(built(), &copy).expect("a new file");
    copy
}

/// Runs a command that finds the component, and no port.
fn run(place: &Place, words: &[&str]) -> (Option<i32>, String) {
    place.run(&[&["env", "OMPI_MCA_btl_ibex_if_include=none:1"], words].concat())
}

/// Checks the output of the later copy, which is the component.
fn names_both(place: &Place, copy: PathBuf, said: &str) {
    for path in [copy, place.component(), built()] {
        assert!(said.contains(&path.display().to_string()), "{} is missing in: {said}", path.display());
    }
    assert!(said.contains("two copies of ibex") && said.contains("cargo xtask install"), "{said}");
}

/// Runs a job of two ranks with these BTLs and a tool that is linked with the copy in a folder. `component` says how
/// the tool finds the component. Returns the output.
fn job_of_a_tool(place: &Place, folder: &Path, btl: &str, component: &str) -> String {
    let folder = folder.display().to_string();
    let tool = place.compiled("calls", &[&format!("-L{folder}"), "-libex", &format!("-Wl,-rpath,{folder}")]);
    let words = ["mpirun", "-n", "2", "--mca", "pml", "ob1", "--mca", "btl", btl, &tool, component];
    let (code, said) = run(place, &words);
    assert_eq!((code, said.matches("0 wrong").count()), (Some(0), 2), "{said}");
    said
}

#[test]
fn ibex_reports_a_tool_that_is_linked_with_another_copy_and_the_job_goes_on() {
    let place = Place::new("linked");
    let another = copy_in(&place);
    let folder = another.parent().expect("it lies in one");
    let said = job_of_a_tool(&place, folder, "self,vader,ibex", "refused");
    // There is no message if Open MPI does not open the other copy.
    assert!(!job_of_a_tool(&place, folder, "self,vader", "refused").contains("two copies"));
    names_both(&place, another, &said);
    assert_eq!(said.matches("two copies of ibex").count(), 1, "once for the host: {said}");
}

#[test]
fn a_job_without_another_transport_ends_with_the_reason() {
    let place = Place::new("alone");
    let copy = copy_in(&place);
    let preload = format!("LD_PRELOAD={}", copy.display());
    let tool = place.compiled("exchange", &[]);
    let (code, said) =
        run(&place, &["mpirun", "-n", "2", "-x", &preload, "--mca", "pml", "ob1", "--mca", "btl", "self,ibex", &tool]);
    assert!(!matches!(code, Some(0 | 124 | 137)), "{code:?}: {said}");
    names_both(&place, copy, &said);
}

#[test]
fn the_copy_that_was_loaded_first_answers_a_tool_and_the_other_refuses() {
    let place = Place::new("mixed");
    let copy = copy_in(&place);
    let tool = place.compiled("two_copies", &["-ldl"]);
    for when in ["before", "after"] {
        let (code, said) = run(&place, &[&tool, &copy.display().to_string(), when]);
        assert!(code == Some(0) && said.contains("0 wrong"), "{when}: {code:?}: {said}");
        names_both(&place, copy.clone(), &said);
        assert_eq!(said.matches("two copies of ibex").count(), 1, "{when}: {said}");
    }
}

#[test]
fn a_tool_and_a_component_that_use_the_same_file_share_one_copy() {
    let said = job_of_a_tool(&Place::new("same"), built::library(), "self,vader,ibex", "component");
    assert!(!said.contains("two copies"), "{said}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the search for an Open MPI, among simulated installations: shell scripts that answer as the wrappers do.

use super::*;
use crate::install::tests::scratch;
use hw_tests::Folder;

pub(crate) fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // A shell writes it: a program that another test starts would inherit the open file, and it could not run.
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
    let written = std::process::Command::new("sh").args(["-c", write, "sh"]).arg(path).arg(text).status();
    assert!(written.unwrap().success());
}

pub(crate) fn open_mpi(prefix: &Path, release: &str) {
    let folder = prefix.display();
    script(
        &prefix.join("bin/mpicc"),
        &format!(
            "case $1 in\n\
             --showme:version) echo 'mpicc: Open MPI {release} (Language: C)';;\n\
             --showme:libdirs) echo {folder}/lib;;\nesac"
        ),
    );
    script(&prefix.join("bin/ompi_info"), &format!("echo path:prefix:{folder}"));
    fs::create_dir_all(prefix.join("lib")).unwrap();
    fs::write(prefix.join("lib/libopen-pal.so"), release).unwrap();
}

fn intel_mpi(prefix: &Path) {
    script(
        &prefix.join("bin/mpicc"),
        "[ $1 = -v ] && echo 'mpigcc for the Intel(R) MPI Library 2021.9 for Linux*'; exit 1",
    );
}

fn mpich(prefix: &Path) {
    script(&prefix.join("bin/mpicc"), "[ $1 = -show ] && echo 'gcc -I/usr/include -lmpich'; exit 0");
}

/// Returns an environment with variables that name folders of `folder`. `PATH` always has the scripts' own programs.
fn with(folder: &Folder, variables: &[(&str, &str)]) -> Environment {
    let variables: Vec<(&str, String)> = variables
        .iter()
        .map(|(name, value)| {
            let value = folder.path().join(value).display().to_string();
            (*name, if *name == "PATH" { format!("{value}:/usr/bin-of-nobody") } else { value })
        })
        .collect();
    Environment::of(&variables.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())
}

#[test]
fn the_folder_that_is_named_comes_before_modules_and_modules_before_path() {
    let folder = scratch();
    for (name, release) in [("a", "4.1.6"), ("b", "5.0.7"), ("c", "4.1.4")] {
        open_mpi(&folder.path().join(name), release);
    }
    let all = with(&folder, &[("MPI_HOME", "b"), ("PATH", "c/bin")]);
    let choice = OpenMpi::choose(Some(&folder.path().join("a")), &all).unwrap();
    assert_eq!((choice.openmpi.release.as_str(), choice.openmpi.by.as_str()), ("4.1.6", "--mpi"));
    assert_eq!(choice.openmpi.variables(), [("MPICC", folder.path().join("a/bin/mpicc").into())]);
    assert!(choice.others[0].contains("Open MPI 5.0.7") && choice.others[0].contains("--mpi comes first"));
    let choice = OpenMpi::choose(None, &all).unwrap();
    assert_eq!((choice.openmpi.release.as_str(), choice.openmpi.by.as_str()), ("5.0.7", "MPI_HOME"));
    assert_eq!(choice.openmpi.library, fs::canonicalize(folder.path().join("b/lib/libopen-pal.so")).ok());
    let choice = OpenMpi::choose(None, &with(&folder, &[("PATH", "c/bin")])).unwrap();
    assert_eq!((choice.openmpi.release.as_str(), choice.openmpi.by.as_str()), ("4.1.4", "mpicc of PATH"));
    assert_eq!(choice.openmpi.variables(), []);
    assert!(choice.others.is_empty());
}

#[test]
fn a_module_that_sets_path_too_names_one_open_mpi_and_not_two() {
    let folder = scratch();
    open_mpi(&folder.path().join("a"), "4.1.6");
    let choice = OpenMpi::choose(None, &with(&folder, &[("OMPI_DIR", "a"), ("PATH", "a/bin")])).unwrap();
    assert_eq!((choice.others.len(), choice.openmpi.variables().len()), (0, 0));
    for name in ["a/bin", "a/bin/mpicc"] {
        let named = OpenMpi::choose(Some(&folder.path().join(name)), &Environment::default()).unwrap();
        assert_eq!(named.openmpi.prefix, folder.path().join("a"), "{name}");
    }
}

#[test]
fn another_mpi_is_named() {
    let folder = scratch();
    intel_mpi(&folder.path().join("intel"));
    mpich(&folder.path().join("mpich"));
    open_mpi(&folder.path().join("a"), "4.1.6");
    let choice = OpenMpi::choose(None, &with(&folder, &[("MPI_HOME", "intel"), ("PATH", "a/bin")])).unwrap();
    assert!(choice.others[0].contains("it is Intel MPI's"), "{:?}", choice.others);
    let error = OpenMpi::choose(None, &with(&folder, &[("PATH", "mpich/bin")])).unwrap_err().to_string();
    assert!(error.contains("it is MPICH's") && error.contains("--mpi PREFIX"), "{error}");
    let demanded = OpenMpi::choose(Some(&folder.path().join("mpich")), &with(&folder, &[("PATH", "a/bin")]));
    let error = demanded.unwrap_err().to_string();
    assert!(error.contains("--mpi names") && error.contains("it is MPICH's"), "{error}");
    let error = OpenMpi::choose(Some(&folder.path().join("none")), &Environment::default()).unwrap_err().to_string();
    assert!(error.contains("none/bin/mpicc"), "{error}");
}

#[test]
fn the_build_scripts_get_the_absolute_path_of_a_source_tree() {
    let folder = scratch();
    open_mpi(&folder.path().join("a"), "4.1.6");
    let chosen = || OpenMpi::choose(None, &with(&folder, &[("PATH", "a/bin")])).unwrap().openmpi;
    let source = folder.path().join("source");
    assert!(chosen().with_source(Some(&source)).unwrap_err().to_string().contains("--openmpi-source"));
    fs::create_dir(&source).unwrap();
    let openmpi = chosen().with_source(Some(&source.join("."))).unwrap();
    assert_eq!(openmpi.variables(), [("IBEX_OPENMPI_SOURCE", fs::canonicalize(&source).unwrap().into())]);
}

#[test]
fn a_release_is_its_numbers_alone() {
    assert_eq!(release("mpicc: Open MPI 4.1.4rc2 (Language: C)").as_deref(), Some("4.1.4"));
    assert_eq!(release("mpicc: Open MPI v5.0.7 (Language: C)").as_deref(), Some("5.0.7"));
    assert_eq!(release("MPICH Version: 4.0"), None);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests on simulated systems: a folder of programs is the whole `PATH`.

use super::requirements::Proof;
use super::*;
use crate::install::tests::scratch;
use crate::openmpi::tests::script;
use hw_tests::Folder;
use std::collections::HashSet;
use std::fs;

/// Returns an environment whose `PATH` has these programs (name, shell script).
fn with(folder: &Folder, programs: &[(&str, &str)]) -> Environment {
    for (name, does) in programs {
        script(&folder.path().join(name), does);
    }
    Environment::of(&[("PATH", folder.path().to_str().unwrap())])
}

fn compiler(word: &str) -> String {
    format!("read line; case $line in *{word}*) exit 0;; *) exit 1;; esac")
}

fn missing(environment: &Environment) -> (&'static str, Vec<&'static str>) {
    let system = System::of(environment);
    let missing = system.missing(needed(None, &[Need::OpenMpi])).unwrap();
    (system.manager.unwrap().name, missing.iter().map(|thing| thing.name).collect())
}

#[test]
fn only_packages_that_dpkg_calls_installed_count_as_installed() {
    let listing = "installed gcc\nnot-installed pkg-config\nconfig-files perftest\ninstalled libhwloc-dev\n";
    let installed = system::parse_installed(listing);
    assert_eq!(installed, HashSet::from(["gcc".to_owned(), "libhwloc-dev".to_owned()]));
    let folder = scratch();
    let debian =
        with(&folder, &[("dpkg-query", "echo installed pkg-config"), ("apt-get", ""), ("sudo", ""), ("cc", "")]);
    let (manager, missing) = missing(&debian);
    assert_eq!(manager, "Debian");
    assert!(missing.contains(&"libibverbs-dev") && missing.contains(&"gcc") && !missing.contains(&"pkg-config"));
}

#[test]
fn elsewhere_a_thing_counts_when_it_is_seen_whatever_package_it_came_in() {
    let folder = scratch();
    let fedora = with(&folder, &[("dnf", ""), ("cc", &compiler("infiniband")), ("pkgconf", ""), ("mpicc", "")]);
    let (manager, missing) = missing(&fedora);
    assert_eq!(manager, "dnf");
    for there in ["gcc", "pkg-config", "libibverbs-dev", "libopenmpi-dev"] {
        assert!(!missing.contains(&there), "{there}");
    }
    for absent in ["libhwloc-dev", "openmpi-bin"] {
        assert!(missing.contains(&absent), "{absent}");
    }
}

#[test]
fn missing_packages_have_the_systems_names_and_the_command_to_install_them() {
    let folder = scratch();
    for (program, command, package) in [
        ("dnf", "dnf install", "rdma-core-devel"),
        ("zypper", "zypper install", "openmpi4-devel"),
        ("pacman", "pacman -S --needed", "rdma-core"),
        ("spack", "spack install", "pkgconf"),
        ("conda", "conda install", "libhwloc"),
    ] {
        let environment = with(&scratch(), &[]);
        assert!(System::of(&environment).manager.is_none());
        let environment = with(&folder, &[(program, "")]);
        let error = ensure(&environment, None, &[Need::OpenMpi]).unwrap_err().to_string();
        assert!(error.contains(command) && error.contains(package), "{program}: {error}");
        assert!(error.contains("the verbs library") && !error.contains("libibverbs-dev"), "{program}: {error}");
        // Other systems have one package for two of Debian's.
        let line = error.lines().last().unwrap();
        assert!(line.split(' ').filter(|word| *word == "rdma-core").count() <= 1, "{line}");
        fs::remove_file(folder.path().join(program)).unwrap();
    }
}

#[test]
fn a_system_without_a_known_manager_gets_a_list_in_words() {
    let error = ensure(&with(&scratch(), &[]), None, &[Need::OpenMpi]).unwrap_err().to_string();
    assert!(error.contains("the verbs library") && error.contains("no package manager"), "{error}");
    assert!(error.contains("Open MPI's headers and compiler wrapper"), "{error}");
    let error = ensure(&with(&scratch(), &[]), None, &[]).unwrap_err().to_string();
    assert!(!error.contains("Open MPI's headers"), "{error}");
}

#[test]
fn setup_succeeds_if_nothing_is_missing() {
    let environment = with(&scratch(), &[]);
    let system = System::of(&environment);
    assert!(system.missing(Vec::new()).unwrap().is_empty());
    let folder = scratch();
    let clang = scratch();
    fs::write(clang.path().join("libclang.so.1"), "").unwrap();
    fs::create_dir(clang.path().join("libibverbs")).unwrap();
    fs::write(clang.path().join("libibverbs/libmlx5-rdmav34.so"), "").unwrap();
    let programs = ["cc", "pkg-config", "mpicc", "ompi_info"].map(|name| (name, "exit 0"));
    let _ = with(&folder, &programs);
    let folders = [folder.path(), clang.path()].map(|folder| folder.to_str().unwrap());
    let environment = Environment::of(&[("PATH", folders[0]), ("LD_LIBRARY_PATH", folders[1])]);
    ensure(&environment, None, &[Need::OpenMpi]).unwrap();
    assert!(!System::of(&environment).has(&Proof::Program(&["hpcc"])));
}

#[test]
fn an_adapter_needs_no_virtual_machine_building_no_tests_and_only_the_study_lammps() {
    let names = |things: Vec<&Requirement>| things.iter().map(|thing| thing.name).collect::<Vec<_>>();
    let for_adapter = names(needed(Some("mlx5_0"), &[Need::Device]));
    assert!(for_adapter.contains(&"libibverbs-dev") && for_adapter.contains(&"perftest"));
    assert!(!for_adapter.contains(&"qemu-system-x86"));
    assert!(!for_adapter.contains(&"chromium"));
    assert!(names(needed(None, &[Need::Test])).contains(&"chromium"));
    assert!(names(needed(Some(SOFT_ROCE), &[])).contains(&"qemu-system-x86"));
    let to_build = names(needed(None, &[]));
    assert!(!to_build.contains(&"perftest") && !to_build.contains(&"libopenmpi-dev"));
    let all_but_study = [Need::OpenMpi, Need::Device, Need::Bench, Need::Test, Need::Package, Need::Root];
    assert!(names(needed(None, &[Need::Study])).contains(&"lammps"));
    assert!(!names(needed(Some(SOFT_ROCE), &all_but_study)).contains(&"lammps"));
    assert!(!packages_of_a_root().contains(&"lammps"));
}

#[test]
fn each_requirement_is_listed_once_with_its_purpose() {
    let mut seen = HashSet::new();
    for thing in REQUIREMENTS {
        assert!(seen.insert(thing.name), "{} is listed twice", thing.name);
        assert!(!thing.why.is_empty(), "{}", thing.name);
        assert_eq!(thing.others.split(' ').count(), 5, "{}", thing.name);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `install` and `uninstall`, in folders of their own.

use super::check::how_to_run;
use super::put::{BENCH_PROGRAMS, put, take_away, take_away_one};
use super::*;
use hw_tests::Folder;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Makes a folder of a test alone.
pub(crate) fn scratch() -> Folder {
    Folder::new("ibex-xtask").unwrap()
}

fn built(folder: &Folder) -> Built {
    let at = |name: &str| folder.path().join(name);
    let text = |name: &str, text: &str| {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), text).unwrap();
    };
    text("built.so", "the library");
    text("libibex-log.so", "the logger");
    text("chooser.so", "the chooser");
    text("provider.so", "the provider");
    text("libibex-mpi4.so", "its calls");
    text("headers/peruse.h", "the header");
    text("headers/notes.txt", "not a header");
    text("share/man/man1/ibex.1", "the page");
    let bench = BENCH_PROGRAMS.map(|name| format!("bench/{name}"));
    let programs = ["command", "adapter/softhca", "adapter/libsofthca.so"].into_iter();
    for program in programs.chain(bench.iter().map(String::as_str)) {
        text(program, "the command");
        fs::set_permissions(at(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    Built {
        library: at("built.so"),
        chooser: at("chooser.so"),
        provider: at("provider.so"),
        headers: at("headers"),
        command: at("command"),
        share: at("share"),
        bench: at("bench"),
        adapter: at("adapter"),
        openmpi: None,
    }
}

fn under_a_prefix() -> (Folder, Built, Place) {
    let folder = scratch();
    let built = built(&folder);
    let place = Place::under(&folder.path().join("p"));
    (folder, built, place)
}

fn an_openmpi(release: &str, prefix: &str) -> Owner {
    Owner { release: release.into(), prefix: prefix.into() }
}

fn this() -> Owner {
    an_openmpi("4.1.4", "/usr")
}

fn everything_under(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(everything_under(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

#[test]
fn the_component_is_a_link_to_the_chooser_of_the_library() {
    let folder = scratch();
    let built = built(&folder);
    let home = folder.path().join("home");
    put(&Place::of_user(&home), &built, &this()).unwrap();
    let component = home.join(".openmpi/components/mca_btl_ibex.so");
    assert!(component.is_symlink());
    let chooser = fs::canonicalize(home.join(".local/lib/ibex/ibex-chooser.so")).unwrap();
    assert_eq!(fs::canonicalize(component).unwrap(), chooser);
    let library = fs::canonicalize(home.join(".local/lib/ibex/openmpi-4.1.4/libibex.so")).unwrap();
    assert_eq!(fs::canonicalize(home.join(".local/lib/libibex.so")).unwrap(), library);
    assert_eq!(fs::read(home.join(".local/lib/libibex-log.so")).unwrap(), b"the logger");
    assert_eq!(fs::read(home.join(".local/lib/libfabric/libibex-fi.so")).unwrap(), b"the provider");
    assert_eq!(fs::read(home.join(".local/lib/libfabric/libibex-mpi4.so")).unwrap(), b"its calls");
    assert_eq!(fs::read(home.join(".local/include/ibex/peruse.h")).unwrap(), b"the header");
    assert!(!home.join(".local/include/ibex/notes.txt").exists());
    let command = home.join(".local/bin/ibex");
    assert_eq!(fs::read(&command).unwrap(), b"the command");
    assert_eq!(fs::metadata(command).unwrap().permissions().mode() & 0o111, 0o111);
    assert_eq!(fs::read(home.join(".local/share/man/man1/ibex.1")).unwrap(), b"the page");
    let program = home.join(".local/bin/../libexec/ibex/openmpi-4.1.4/ibex_mpi_bench");
    assert_eq!(fs::metadata(program).unwrap().permissions().mode() & 0o111, 0o111);
}

#[test]
fn an_installation_under_a_prefix_can_be_moved_as_a_whole() {
    let folder = scratch();
    let built = built(&folder);
    put(&Place::under(&folder.path().join("a")), &built, &this()).unwrap();
    fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
    assert_eq!(fs::read(folder.path().join("b/lib/openmpi/mca_btl_ibex.so")).unwrap(), b"the chooser");
    assert_eq!(fs::read(folder.path().join("b/lib/libibex.so")).unwrap(), b"the library");
}

#[test]
fn uninstall_leaves_exactly_the_former_files() {
    let folder = scratch();
    let built = built(&folder);
    let home = folder.path().join("home");
    fs::create_dir_all(home.join(".local/lib")).unwrap();
    fs::write(home.join(".local/lib/other.so"), "not ours").unwrap();
    let before = everything_under(&home);
    let place = Place::of_user(&home);
    put(&place, &built, &this()).unwrap();
    put(&place, &built, &this()).unwrap();
    take_away(&place).unwrap();
    assert_eq!(everything_under(&home), before);
}

#[test]
fn a_second_installation_replaces_the_first_and_removes_obsolete_files() {
    let (_folder, built, place) = under_a_prefix();
    put(&place, &built, &this()).unwrap();
    fs::write(&built.library, "newer").unwrap();
    fs::rename(built.headers.join("peruse.h"), built.headers.join("events.h")).unwrap();
    put(&place, &built, &this()).unwrap();
    assert_eq!(fs::read(place.library.join("libibex.so")).unwrap(), b"newer");
    assert!(place.headers.join("events.h").exists());
    assert!(!place.headers.join("peruse.h").exists());
}

#[test]
fn somebody_elses_file_is_not_overwritten() {
    let (_folder, built, place) = under_a_prefix();
    fs::create_dir_all(&place.library).unwrap();
    fs::write(place.library.join("libibex.so"), "mine").unwrap();
    let error = put(&place, &built, &this()).unwrap_err().to_string();
    assert!(error.contains("was not put there by cargo xtask install"), "{error}");
    assert_eq!(fs::read(place.library.join("libibex.so")).unwrap(), b"mine");
}

#[test]
fn a_dangling_link_among_the_components_is_refused_by_name() {
    let folder = scratch();
    let built = built(&folder);
    let place = Place::of_user(folder.path());
    fs::create_dir_all(&place.components).unwrap();
    std::os::unix::fs::symlink("nowhere", place.components.join("mca_btl_old.so")).unwrap();
    let error = put(&place, &built, &this()).unwrap_err().to_string();
    assert!(error.contains("mca_btl_old.so is a symlink to nothing"), "{error}");
}

#[test]
fn uninstalling_without_an_installation_is_an_error_that_says_so() {
    let folder = scratch();
    let error = take_away(&Place::under(folder.path())).unwrap_err().to_string();
    assert!(error.contains("nothing is installed here"), "{error}");
}

#[test]
fn only_a_prefix_needs_a_variable_and_two_if_mpirun_makes_its_ranks_look_elsewhere() {
    let library = Path::new("/opt/ibex/lib/ibex/openmpi-4.1.4/libibex.so");
    let text = how_to_run(&Place::of_user(Path::new("/home/me")), library, None);
    assert!(!text.contains("export") && text.contains("/openmpi-4.1.4/libibex-log.so"), "{text}");
    let text = how_to_run(&Place::under(Path::new("/opt/ibex")), library, None);
    assert!(text.contains("export OMPI_MCA_mca_base_component_path=/opt/ibex/lib/openmpi:SYSTEM_DEFAULT\n"), "{text}");
    let text = how_to_run(&Place::of_user(Path::new("/home/me")), library, Some("/usr/lib/pmix"));
    assert!(text.contains("export OMPI_MCA_mca_base_component_path=/home/me/.openmpi/components:SYSTEM_DEFAULT\n"));
    assert!(text.contains("export PMIX_MCA_mca_base_component_path=/usr/lib/pmix\n"), "{text}");
}

#[test]
fn each_open_mpi_has_a_library_of_its_own_and_taking_one_away_leaves_the_others() {
    let folder = scratch();
    let built = built(&folder);
    let home = folder.path().join("home");
    fs::create_dir_all(&home).unwrap();
    let place = Place::of_user(&home);
    let library = |name: &str| fs::read_to_string(place.set(name).library.join("libibex.so"));
    put(&place, &built, &this()).unwrap();
    for (contents, release, prefix) in [("for 5", "5.0.7", "/opt/five"), ("for another", "4.1.4", "/opt/four")] {
        fs::write(&built.library, contents).unwrap();
        put(&place, &built, &an_openmpi(release, prefix)).unwrap();
    }
    let all = sets::all(&place).unwrap();
    let names: Vec<&str> = all.iter().map(|one| one.set.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[2]), (3, "openmpi-4.1.4", "openmpi-5.0.7"));
    assert!(names[1].starts_with("openmpi-4.1.4-"), "{names:?}");
    assert_eq!(library("openmpi-4.1.4").unwrap(), "the library");
    assert_eq!(library("openmpi-5.0.7").unwrap(), "for 5");
    assert_eq!(library(names[1]).unwrap(), "for another");
    // The link that tools are linked with stays with the first, until that is removed.
    assert_eq!(fs::read(place.library.join("libibex.so")).unwrap(), b"the library");
    let error = take_away_one(&place, Path::new("4.1.4")).unwrap_err().to_string();
    assert!(error.contains("names several") && error.contains("/opt/four"), "{error}");
    take_away_one(&place, Path::new("/usr")).unwrap();
    assert!(library("openmpi-4.1.4").is_err() && !place.set("openmpi-4.1.4").library.exists());
    assert_eq!(fs::read(place.library.join("libibex.so")).unwrap(), b"for another");
    assert_eq!(fs::read(place.components.join("mca_pml_ibex.so")).unwrap(), b"the chooser");
    let error = take_away_one(&place, Path::new("/usr")).unwrap_err().to_string();
    assert!(error.contains("nothing is installed for /usr, but for") && error.contains("5.0.7"), "{error}");
    take_away_one(&place, Path::new("5.0.7")).unwrap();
    take_away_one(&place, Path::new("/opt/four")).unwrap();
    assert_eq!(everything_under(&home), [] as [PathBuf; 0]);
}

#[test]
fn tools_are_linked_with_the_new_release_of_an_open_mpi_and_the_old_one_stays() {
    let (_folder, built, place) = under_a_prefix();
    put(&place, &built, &this()).unwrap();
    fs::write(&built.library, "newer").unwrap();
    put(&place, &built, &an_openmpi("4.1.8", "/usr")).unwrap();
    let names: Vec<String> = sets::all(&place).unwrap().into_iter().map(|one| one.set.name).collect();
    assert_eq!(names, ["openmpi-4.1.4", "openmpi-4.1.8"]);
    assert_eq!(fs::read(place.library.join("libibex.so")).unwrap(), b"newer");
    assert_eq!(fs::read(place.set("openmpi-4.1.4").library.join("libibex.so")).unwrap(), b"the library");
}

#[test]
fn nothing_is_taken_away_where_one_of_several_was_changed() {
    let (folder, built, place) = under_a_prefix();
    put(&place, &built, &this()).unwrap();
    put(&place, &built, &an_openmpi("5.0.7", "/opt/five")).unwrap();
    fs::write(place.set("openmpi-5.0.7").library.join("libibex.so"), "mine").unwrap();
    let before = everything_under(folder.path());
    let error = take_away(&place).unwrap_err().to_string();
    assert!(error.contains("openmpi-5.0.7/libibex.so has other contents"), "{error}");
    assert_eq!(everything_under(folder.path()), before);
}

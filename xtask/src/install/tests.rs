// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `install` and `uninstall`, in folders of their own.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of this test alone, removed with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Each test needs a number of its own; nothing else is ordered by it.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ibex-xtask-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A build to install from: a library, one header, a command and its page.
fn built(folder: &Folder) -> Built {
    let library = folder.path().join("built.so");
    let headers = folder.path().join("headers");
    let (command, share) = (folder.path().join("command"), folder.path().join("share"));
    fs::write(&command, "the command").unwrap();
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(share.join("man/man1")).unwrap();
    fs::write(share.join("man/man1/ibex.1"), "the page").unwrap();
    fs::write(&library, "the library").unwrap();
    fs::write(folder.path().join("libibex-log.so"), "the logger").unwrap();
    fs::create_dir_all(&headers).unwrap();
    fs::write(headers.join("peruse.h"), "the header").unwrap();
    fs::write(headers.join("notes.txt"), "not a header").unwrap();
    let bench = folder.path().join("bench");
    fs::create_dir_all(&bench).unwrap();
    for name in BENCH_PROGRAMS {
        fs::copy(&command, bench.join(name)).unwrap();
    }
    let adapter = folder.path().join("adapter");
    fs::create_dir_all(&adapter).unwrap();
    for name in ["softhca", "libsofthca.so"] {
        fs::copy(&command, adapter.join(name)).unwrap();
    }
    Built { library, headers, command, share, bench, adapter }
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
fn the_component_is_a_link_to_the_one_library() {
    let folder = Folder::new();
    let built = built(&folder);
    let home = folder.path().join("home");
    put(&Place::of_user(&home), &built).unwrap();
    let component = home.join(".openmpi/components/mca_btl_ibex.so");
    assert!(component.is_symlink());
    assert_eq!(fs::canonicalize(component).unwrap(), fs::canonicalize(home.join(".local/lib/libibex.so")).unwrap());
    assert_eq!(fs::read(home.join(".local/lib/libibex-log.so")).unwrap(), b"the logger");
    assert_eq!(fs::read(home.join(".local/include/ibex/peruse.h")).unwrap(), b"the header");
    assert!(!home.join(".local/include/ibex/notes.txt").exists());
    let command = home.join(".local/bin/ibex");
    assert_eq!(fs::read(&command).unwrap(), b"the command");
    assert_eq!(fs::metadata(command).unwrap().permissions().mode() & 0o111, 0o111);
    assert_eq!(fs::read(home.join(".local/share/man/man1/ibex.1")).unwrap(), b"the page");
    let program = home.join(".local/bin/../libexec/ibex/ibex_mpi_bench");
    assert_eq!(fs::metadata(program).unwrap().permissions().mode() & 0o111, 0o111);
}

#[test]
fn an_installation_under_a_prefix_can_be_moved_as_a_whole() {
    let folder = Folder::new();
    let built = built(&folder);
    put(&Place::under(&folder.path().join("a")), &built).unwrap();
    fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
    assert_eq!(fs::read(folder.path().join("b/lib/openmpi/mca_btl_ibex.so")).unwrap(), b"the library");
}

#[test]
fn uninstall_leaves_exactly_what_was_there_before() {
    let folder = Folder::new();
    let built = built(&folder);
    let home = folder.path().join("home");
    fs::create_dir_all(home.join(".local/lib")).unwrap();
    fs::write(home.join(".local/lib/other.so"), "not ours").unwrap();
    let before = everything_under(&home);
    let place = Place::of_user(&home);
    put(&place, &built).unwrap();
    put(&place, &built).unwrap();
    take_away(&place).unwrap();
    assert_eq!(everything_under(&home), before);
}

#[test]
fn a_second_installation_replaces_the_first_and_drops_what_it_no_longer_has() {
    let folder = Folder::new();
    let built = built(&folder);
    let place = Place::under(&folder.path().join("p"));
    put(&place, &built).unwrap();
    fs::write(&built.library, "newer").unwrap();
    fs::rename(built.headers.join("peruse.h"), built.headers.join("events.h")).unwrap();
    put(&place, &built).unwrap();
    assert_eq!(fs::read(place.library.join("libibex.so")).unwrap(), b"newer");
    assert!(place.headers.join("events.h").exists());
    assert!(!place.headers.join("peruse.h").exists());
}

#[test]
fn somebody_elses_file_is_not_overwritten() {
    let folder = Folder::new();
    let built = built(&folder);
    let place = Place::under(&folder.path().join("p"));
    fs::create_dir_all(&place.library).unwrap();
    fs::write(place.library.join("libibex.so"), "mine").unwrap();
    let error = put(&place, &built).unwrap_err().to_string();
    assert!(error.contains("was not put there by cargo xtask install"), "{error}");
    assert_eq!(fs::read(place.library.join("libibex.so")).unwrap(), b"mine");
}

#[test]
fn a_dangling_link_among_the_components_is_refused_by_name() {
    let folder = Folder::new();
    let built = built(&folder);
    let place = Place::of_user(folder.path());
    fs::create_dir_all(&place.components).unwrap();
    std::os::unix::fs::symlink("nowhere", place.components.join("mca_btl_old.so")).unwrap();
    let error = put(&place, &built).unwrap_err().to_string();
    assert!(error.contains("mca_btl_old.so is a symlink to nothing"), "{error}");
}

#[test]
fn uninstalling_what_is_not_installed_says_so() {
    let folder = Folder::new();
    let error = take_away(&Place::under(folder.path())).unwrap_err().to_string();
    assert!(error.contains("nothing is installed here"), "{error}");
}

#[test]
fn only_a_prefix_needs_a_variable() {
    assert_eq!(Place::of_user(Path::new("/home/me")).variable(), None);
    let variable = Place::under(Path::new("/opt/ibex")).variable().unwrap();
    assert_eq!(variable, "OMPI_MCA_mca_base_component_path=/opt/ibex/lib/openmpi:SYSTEM_DEFAULT");
    let text = how_to_run(&Place::under(Path::new("/opt/ibex")));
    assert!(text.contains("export OMPI_MCA_mca_base_component_path=/opt/ibex/lib/openmpi:SYSTEM_DEFAULT"), "{text}");
}

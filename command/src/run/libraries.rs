// SPDX-License-Identifier: MIT OR Apache-2.0
//! The MPI library that a program loads: of an executable as the loader itself says (`ldd`), which follows its search
//! paths and `LD_LIBRARY_PATH`; of Python that of mpi4py, which chooses it when it is imported. Called by
//! [`super::find`]. Grade: setup. Tests: below.

use anyhow::{Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use which::which;

/// Imports mpi4py without MPI's initialisation, and prints the mapped files.
const OF_MPI4PY: &str = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; \
                         print(''.join(open('/proc/self/maps')))";

/// What a program loads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Loads {
    /// Libraries that have names of MPI libraries.
    Libraries(Vec<PathBuf>),
    /// The same of the mpi4py of this Python.
    ByPython(Vec<PathBuf>),
    Nothing,
}

/// Finds out what MPI library a program loads. Fails if it needs one that the loader does not find.
pub(super) fn of(program: &Path) -> Result<Loads> {
    if let Some(python) = python_of(program) {
        let paths = said(Command::new(python).args(["-c", OF_MPI4PY])).map(|maps| mapped(&maps));
        return Ok(paths.filter(|paths| !paths.is_empty()).map_or(Loads::Nothing, Loads::ByPython));
    }
    match said(Command::new("ldd").arg(program)).map(|listing| listed(&listing)) {
        Some(Listing { missing: Some(name), .. }) => bail!(
            "{} needs {name}, which the loader does not find: set LD_LIBRARY_PATH to its folder",
            program.display()
        ),
        Some(Listing { paths, .. }) if !paths.is_empty() => Ok(Loads::Libraries(paths)),
        _ => Ok(Loads::Nothing),
    }
}

/// Whether a word of a command is a program that is linked with libfabric.
pub(super) fn has_libfabric(words: &[OsString]) -> bool {
    let listing = |word: &OsString| said(Command::new("ldd").arg(which(word).ok()?));
    words.iter().filter_map(listing).any(|listing| listing.contains("libfabric.so"))
}

/// Returns the Python that runs a file: the file itself, or the interpreter in a script's first line.
fn python_of(program: &Path) -> Option<PathBuf> {
    if is_python(program.as_os_str()) {
        return Some(program.to_path_buf());
    }
    let mut first = Vec::new();
    File::open(program).ok()?.take(256).read_to_end(&mut first).ok()?;
    let first = String::from_utf8_lossy(&first).lines().next()?.to_owned();
    let interpreter = interpreter(&first).filter(|word| is_python(OsStr::new(word)))?;
    which(interpreter).ok()
}

/// Returns the interpreter of a script's first line: `python3` of `#!/usr/bin/env -S python3 -u`.
fn interpreter(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("#!")?.split_whitespace();
    let first = words.next()?;
    if first.ends_with("/env") { words.find(|word| !word.starts_with('-')) } else { Some(first) }
}

fn is_python(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"python"))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Listing {
    paths: Vec<PathBuf>,
    missing: Option<String>,
}

/// Reads `ldd`: lines such as `libmpi.so.12 => /opt/lib/libmpi.so.12 (0x7f10)` and `libmpi.so.12 => not found`.
fn listed(text: &str) -> Listing {
    let mut listing = Listing::default();
    for line in text.lines() {
        let Some((name, target)) = line.trim().split_once(" => ").filter(|(name, _)| is_of_mpi(name)) else { continue };
        if target == "not found" {
            listing.missing.get_or_insert(name.to_owned());
        } else if let Some((path, _)) = target.rsplit_once(" (") {
            listing.paths.push(path.into());
        }
    }
    listing
}

/// Reads `/proc/self/maps`.
fn mapped(text: &str) -> Vec<PathBuf> {
    let paths = text.lines().filter_map(|line| line.find('/').map(|start| &line[start..]));
    let mut paths: Vec<PathBuf> = paths.map(PathBuf::from).filter(|path| has_name_of_mpi(path)).collect();
    paths.dedup();
    paths
}

pub(super) fn has_name_of_mpi(path: &Path) -> bool {
    path.file_name().is_some_and(|name| is_of_mpi(&name.to_string_lossy()))
}

/// Whether a library is an MPI's by its name: `libmpi.so.12`, `libmpi_abi.so.1`, `libmpich.so.12`.
fn is_of_mpi(name: &str) -> bool {
    name.starts_with("libmpi") && name.contains(".so")
}

/// Returns the output of a program that succeeds.
fn said(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_names_the_mpi_libraries_and_those_that_are_missing() {
        let text = "\tlinux-vdso.so.1 (0x00007ff1)\n\tlibmpi_cxx.so.40 => /usr/lib/libmpi_cxx.so.40 (0x00007ff1)\n\
                    \tlibmpi.so.40 => /usr/lib (2)/libmpi.so.40 (0x00007ff1)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n";
        let paths = ["/usr/lib/libmpi_cxx.so.40", "/usr/lib (2)/libmpi.so.40"].map(PathBuf::from).to_vec();
        assert_eq!(listed(text), Listing { paths, missing: None });
        let missing = listed("\tlibmpi.so.12 => not found\n\tlibmpifort.so.12 => not found\n\tlibx.so => not found\n");
        assert_eq!(missing, Listing { paths: vec![], missing: Some("libmpi.so.12".into()) });
        assert_eq!(listed("\tstatically linked\n"), Listing::default());
    }

    #[test]
    fn the_libraries_of_a_process_are_the_mapped_files() {
        let text = "7f00-7f01 r--p 00000000 fe:00 1    /v/lib/libmpi.so.12\n7f01-7f02 r-xp 00001000 fe:00 1    \
                    /v/lib/libmpi.so.12\n7f02-7f03 r--p 0 fe:00 2    /v/mpi4py/MPI.mpich.so\n7f03-7f04 rw-p 0 00:00 0 \n";
        assert_eq!(mapped(text), [PathBuf::from("/v/lib/libmpi.so.12")]);
    }

    #[test]
    fn the_interpreter_of_a_script_is_in_its_first_line() {
        assert_eq!(interpreter("#!/usr/bin/env python3"), Some("python3"));
        assert_eq!(interpreter("#!/usr/bin/env -S python3 -u"), Some("python3"));
        assert_eq!(interpreter("#! /opt/bin/python3.12"), Some("/opt/bin/python3.12"));
        assert_eq!(interpreter("\u{7f}ELF"), None);
        assert!(is_python(OsStr::new("/opt/bin/python3.12")) && !is_python(OsStr::new("/bin/sh")));
    }

    #[test]
    fn a_program_without_mpi_loads_none() {
        for program in ["/bin/sh", "/etc/passwd", "/nowhere"] {
            assert_eq!(of(Path::new(program)).unwrap(), Loads::Nothing, "{program}");
        }
    }
}

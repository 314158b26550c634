// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the MPI of a job from the words that start it: that of the first program that loads an MPI library, else the
//! launcher's own. Called by [`super`]. Grade: setup. Tests: below.

use super::implementation::Implementation;
use super::libraries::{self, Loads};
use crate::installed::Installed;
use crate::launcher::is_launcher;
use anyhow::{Context, Result, bail};
use memchr::memmem;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use which::which;

#[derive(Debug)]
pub(super) struct Found {
    pub(super) mpi: Implementation,
    /// The launcher in the command, or of `PATH`, if it starts jobs of this MPI.
    pub(super) launcher: Option<PathBuf>,
    /// Whether a program of the command loads it; otherwise it is the launcher's.
    pub(super) is_of_program: bool,
    /// Its library, if that is known.
    pub(super) library: Option<PathBuf>,
    /// How it was found, for the user.
    pub(super) reason: String,
    /// Why the job cannot be what the user means.
    pub(super) warning: Option<String>,
}

pub(super) fn mpi_of(words: &[OsString], installed: &Installed) -> Result<Found> {
    let launcher = words.iter().find(|word| is_launcher(word));
    let is_launched = launcher.is_some();
    let launcher = which(launcher.map_or(OsStr::new("mpiexec"), OsString::as_os_str)).ok();
    let of_launcher = launcher.as_deref().and_then(|path| Some((asked(path)?, path)));
    for word in words {
        let Ok(program) = which(word) else { continue };
        let (paths, whose) = match libraries::of(&program)? {
            Loads::Libraries(paths) => (paths, format!("{} is linked with", word.display())),
            Loads::ByPython(paths) => (paths, format!("the mpi4py of {} loads", word.display())),
            Loads::Nothing => continue,
        };
        let Some((mpi, path)) = paths.iter().find_map(|path| Some((recognised(path)?, path))) else {
            bail!(unknown(&format!("{whose} {}", paths[0].display()), installed));
        };
        let other = of_launcher.as_ref().filter(|(launcher, _)| !launcher.starts(&mpi));
        let own = of_launcher.as_ref().filter(|(launcher, _)| launcher.starts(&mpi));
        return Ok(Found {
            launcher: own.map(|(_, path)| path.to_path_buf()),
            reason: format!("{whose} {mpi}: {}", path.display()),
            warning: other.filter(|_| is_launched).map(|(launcher, path)| {
                format!(
                    "{whose} {mpi}, but {} is of {launcher}: each process would be a job of its own",
                    path.display()
                )
            }),
            is_of_program: true,
            library: Some(path.clone()),
            mpi,
        });
    }
    let (mpi, path) = of_launcher.with_context(|| match &launcher {
        Some(path) => unknown(&format!("{} is the launcher", path.display()), installed),
        None => "no program of the command loads an MPI library, and there is no mpiexec in PATH".to_owned(),
    })?;
    let reason = format!("{} is of {mpi}", path.display());
    let library = library_of(path);
    Ok(Found { mpi, launcher: Some(path.to_path_buf()), is_of_program: false, library, reason, warning: None })
}

impl Found {
    /// Whether its library has the calls that MPI 4 has added.
    pub(super) fn has_mpi_4(&self) -> bool {
        let library = self.library.as_ref().and_then(|library| fs::read(library).ok());
        library.is_some_and(|bytes| memmem::find(&bytes, b"MPI_Send_c\0").is_some())
    }
}

/// Returns the MPI library under the same prefix as a launcher.
fn library_of(launcher: &Path) -> Option<PathBuf> {
    let folder = fs::canonicalize(launcher).ok()?.parent()?.parent()?.join("lib");
    let mut files: Vec<_> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.into_iter().find(|path| libraries::has_name_of_mpi(path) && recognised(path).is_some())
}

fn recognised(library: &PathBuf) -> Option<Implementation> {
    Implementation::of_library(&fs::read(library).ok()?)
}

fn asked(launcher: &Path) -> Option<Implementation> {
    let said = Command::new(launcher).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Implementation::of_launcher(&String::from_utf8_lossy(&said.stdout))
}

fn unknown(what: &str, installed: &Installed) -> String {
    let folder = installed.provider().ok().and_then(|file| Some(file.parent()?.display().to_string()));
    format!(
        "{what}: this is not MPICH, Intel MPI or Open MPI, the MPIs that ibex knows. For another one that uses libfabric, \
         set FI_PROVIDER_PATH={} and FI_PROVIDER=ibex, and what makes it use libfabric",
        folder.as_deref().unwrap_or("(the folder of libibex-fi.so)")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(path: &Path, text: &str) -> OsString {
        fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        path.into()
    }

    #[test]
    fn a_job_whose_programs_load_no_mpi_has_that_of_its_launcher_and_an_unknown_one_is_refused_with_advice() {
        let folder = std::env::temp_dir().join(format!("ibex-run-find-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let installed = Installed::around(&folder.join("bin/ibex"));
        let hydra = script(&folder.join("mpiexec.hydra"), "echo 'HYDRA build details: --with-device=ch4:ofi'");
        let found = mpi_of(&["timeout".into(), "9".into(), hydra, "sh".into()], &installed).unwrap();
        assert!(found.reason.ends_with("mpiexec.hydra is of MPICH (ch4:ofi)"), "{}", found.reason);
        assert!(!found.has_mpi_4(), "its library is not known");
        assert_eq!((found.mpi, found.warning), (Implementation::Mpich(Some("ch4:ofi".into())), None));
        let bin = folder.join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(folder.join("lib")).unwrap();
        fs::write(folder.join("lib/libmpi.so.12"), b"MPICH Device:\0MPI_Send\0MPI_Send_c\0").unwrap();
        let hydra = script(&bin.join("mpiexec.hydra"), "echo 'HYDRA build details: --with-device=ch4:ofi'");
        assert!(mpi_of(&[hydra, "sh".into()], &installed).unwrap().has_mpi_4());
        let strange = script(&folder.join("mpirun"), "echo strange 1.0");
        let error = mpi_of(&[strange, "sh".into()], &installed).unwrap_err().to_string();
        assert!(error.contains("mpirun is the launcher") && error.contains("FI_PROVIDER=ibex"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}

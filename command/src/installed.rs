// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the installed library of ibex that belongs to an Open MPI. `cargo xtask install` makes a folder for each Open
//! MPI, `lib/ibex/openmpi-4.1.4`, and one of the same name for the programs of `ibex bench` in `libexec/ibex`. If two
//! Open MPIs have one release, the second folder's name has a suffix. The link `openmpi` in the folder leads to that
//! Open MPI's libopen-pal.so. Also finds what all MPIs share. Called by `trace`, `bench`, `run` and `facts`. Grade:
//! setup. Tests: below.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};
use which::which;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenMpi {
    pub(crate) release: String,
    /// Parent of the launcher's folder.
    prefix: PathBuf,
}

impl OpenMpi {
    /// Returns the Open MPI of this launcher, or of the `mpirun` of `PATH` if the launcher does not say (`srun`).
    pub(crate) fn of(launcher: Option<&OsStr>) -> Option<Self> {
        let found = |launcher: &OsStr| Self::asked(&which(launcher).ok()?);
        launcher.and_then(found).or_else(|| found(OsStr::new("mpirun")))
    }

    fn asked(launcher: &Path) -> Option<Self> {
        let output =
            Command::new(launcher).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        Self::new(&String::from_utf8_lossy(&output.stdout), launcher)
    }

    /// Parses the launcher's version text: `mpirun (Open MPI) 4.1.4`.
    fn new(said: &str, launcher: &Path) -> Option<Self> {
        let release = release(said.split("(Open MPI) ").nth(1)?)?;
        let prefix = launcher.parent()?.parent().unwrap_or(Path::new("/")).to_path_buf();
        Some(Self { release, prefix })
    }
}

/// Returns `4.1.4` of `v4.1.4rc1`; `None` if the text does not begin with a number.
pub(crate) fn release(version: &str) -> Option<String> {
    let version = version.trim_start_matches('v');
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    (end > 0).then(|| version[..end].to_owned())
}

/// Folders of the libfabric provider: of `cargo xtask install`, of the packages of Debian and RPM, of a build tree.
const OF_LIBFABRIC: [&str; 4] =
    ["lib/libfabric", "lib/x86_64-linux-gnu/libfabric", "lib64/libfabric", "ibex/lib/libfabric"];

/// Folders of the components where no Open MPI looks by itself: of an installation with `--prefix`, of a build tree.
const OF_OPEN_MPI: [&str; 2] = ["lib/openmpi", "ibex/lib/openmpi"];

#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) prefix: PathBuf,
    /// Sorted names of the folders, one for each Open MPI.
    names: Vec<String>,
}

impl Installed {
    pub(crate) fn here() -> Result<Self> {
        let program = env::current_exe().and_then(fs::canonicalize);
        let program = program.context("this command cannot find its own path")?;
        Ok(Self::around(&program))
    }

    pub(crate) fn around(command: &Path) -> Self {
        let prefix = command.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_path_buf();
        Self { names: names(&prefix.join("lib/ibex")), prefix }
    }

    pub(crate) fn provider(&self) -> Result<PathBuf> {
        let files = OF_LIBFABRIC.map(|folder| self.prefix.join(folder).join("libibex-fi.so"));
        let found = files.iter().find(|file| file.is_file());
        found.cloned().with_context(|| {
            format!(
                "the libfabric provider is not installed: there is no {}. `cargo xtask install` installs it",
                files[0].display()
            )
        })
    }

    pub(crate) fn components(&self) -> Option<PathBuf> {
        let folders = OF_OPEN_MPI.map(|folder| self.prefix.join(folder));
        folders.into_iter().find(|folder| folder.join("mca_pml_ibex.so").exists())
    }

    /// Returns the name of the folder for an Open MPI. `None`: the library in `lib` itself counts, because an older
    /// version has installed it or the Open MPI is unknown. Fails if ibex is installed for other Open MPIs only.
    pub(crate) fn name(&self, openmpi: Option<&OpenMpi>) -> Result<Option<&str>> {
        let Some(openmpi) = openmpi.filter(|_| !self.names.is_empty()) else { return Ok(None) };
        let of_release: Vec<&String> = self.names.iter().filter(|name| is_of_release(name, &openmpi.release)).collect();
        let link = |name: &str| fs::read_link(self.prefix.join("lib/ibex").join(name).join("openmpi")).ok();
        let is_this = |name: &&&String| link(name).is_some_and(|library| library.starts_with(&openmpi.prefix));
        let best = of_release.iter().find(is_this).or(of_release.first());
        match best {
            Some(name) => Ok(Some(name)),
            None => bail!(
                "mpirun is of Open MPI {} in {}, and ibex is installed for {} only; `cargo xtask install` with the mpicc of this one in \
                 PATH installs it for this one, too",
                openmpi.release,
                openmpi.prefix.display(),
                releases(&self.names)
            ),
        }
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("openmpi-")).collect();
    names.sort();
    names
}

/// Whether a folder is for this release: `openmpi-4.1.4`, with or without a suffix.
pub(crate) fn is_of_release(name: &str, release: &str) -> bool {
    let rest = name.strip_prefix("openmpi-").and_then(|name| name.strip_prefix(release));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns `Open MPI 4.1.4 and 5.0.7`, from the names of folders.
pub(crate) fn releases(names: &[String]) -> String {
    let mut releases: Vec<&str> = names.iter().filter_map(|name| name.split('-').nth(1)).collect();
    releases.dedup();
    format!("Open MPI {}", releases.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn an_openmpi(release: &str, prefix: &str) -> OpenMpi {
        OpenMpi { release: release.into(), prefix: prefix.into() }
    }

    #[test]
    fn a_launcher_names_its_open_mpi() {
        let said = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
        let openmpi = OpenMpi::new(said, Path::new("/opt/ompi/bin/mpirun"));
        assert_eq!(openmpi, Some(an_openmpi("4.1.4", "/opt/ompi")));
        assert_eq!(OpenMpi::new("prterun (PRRTE) 3.0.8", Path::new("/usr/bin/prterun")), None);
        assert_eq!(release("v5.0.7rc1").as_deref(), Some("5.0.7"));
        assert_eq!(release("unknown"), None);
    }

    #[test]
    fn the_library_of_an_open_mpi_has_its_release_and_its_prefix() {
        let prefix = env::temp_dir().join(format!("ibex-installed-{}", std::process::id()));
        let command = prefix.join("bin/ibex");
        // The installation of an older version, or a build tree.
        assert_eq!(Installed::around(&command).name(Some(&an_openmpi("4.1.4", "/usr"))).unwrap(), None);
        for (name, library) in [
            ("openmpi-4.1.4", "/usr/lib/libopen-pal.so.40"),
            ("openmpi-4.1.4-1a2b3c4d", "/opt/four/lib/libopen-pal.so.40"),
            ("openmpi-5.0.7", "/opt/five/lib/libopen-pal.so.80"),
        ] {
            let folder = prefix.join("lib/ibex").join(name);
            fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(library, folder.join("openmpi")).unwrap();
        }
        let installed = Installed::around(&command);
        let name = |release, prefix| installed.name(Some(&an_openmpi(release, prefix)));
        assert_eq!(name("4.1.4", "/usr").unwrap(), Some("openmpi-4.1.4"));
        assert_eq!(name("4.1.4", "/opt/four").unwrap(), Some("openmpi-4.1.4-1a2b3c4d"));
        // An Open MPI that was moved.
        assert_eq!(name("5.0.7", "/elsewhere").unwrap(), Some("openmpi-5.0.7"));
        assert_eq!(installed.name(None).unwrap(), None);
        let error = name("4.1", "/usr").unwrap_err().to_string();
        assert!(
            error.contains("Open MPI 4.1 in /usr, and ibex is installed for Open MPI 4.1.4 and 5.0.7 only"),
            "{error}"
        );
        fs::remove_dir_all(prefix).unwrap();
    }
}

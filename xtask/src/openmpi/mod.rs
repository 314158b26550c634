// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the Open MPI to build for, with a reason for each other candidate. A folder that the user names comes first,
//! then the variables of modules environments, then `PATH`. Each candidate is identified, because an `mpicc` may be
//! MPICH's. The build scripts of `ffi` and `plugin-abi` get the result in two variables: `MPICC`, and
//! `IBEX_OPENMPI_SOURCE` for a source tree. Called by [`crate::install`]. Grade: setup. Tests: openmpi/tests.rs.

use crate::environment::{Environment, is_program};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

#[cfg(test)]
pub(crate) mod tests;

/// An `mpicc`, and the option or variable that names it.
#[derive(Debug)]
struct Candidate {
    by: String,
    mpicc: PathBuf,
    /// Whether the user named it, so that no other may be used.
    is_demanded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenMpi {
    pub(crate) mpicc: PathBuf,
    pub(crate) release: String,
    pub(crate) prefix: PathBuf,
    /// Its library `libopen-pal.so`, links resolved, if found.
    pub(crate) library: Option<PathBuf>,
    by: String,
    /// Whether the build scripts find it by themselves.
    is_found_by_scripts: bool,
    source: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) openmpi: OpenMpi,
    /// One sentence for each other candidate.
    pub(crate) others: Vec<String>,
}

impl OpenMpi {
    /// Chooses: `--mpi` before `MPICC` before `OMPI_DIR` and `MPI_HOME` before `PATH`. An error lists the others.
    pub(crate) fn choose(named: Option<&Path>, environment: &Environment) -> Result<Choice> {
        let candidates = candidates(named, environment)?;
        let mut chosen: Option<Self> = None;
        let mut others = Vec::new();
        for candidate in candidates {
            match (identify(&candidate, environment), &chosen) {
                (Ok(openmpi), None) => chosen = Some(openmpi),
                (Ok(other), Some(taken)) if other.prefix == taken.prefix => {}
                (Ok(other), Some(taken)) => others.push(format!("{other} is not taken, as {} comes first", taken.by)),
                (Err(other), None) if candidate.is_demanded => {
                    bail!(
                        "{} names {}, and {other}; ibex is a component of Open MPI",
                        candidate.by,
                        candidate.mpicc.display()
                    )
                }
                (Err(other), _) => {
                    others.push(format!("{} ({}) is not taken: {other}", candidate.mpicc.display(), candidate.by));
                }
            }
        }
        match chosen {
            Some(openmpi) => Ok(Choice { openmpi, others }),
            None => bail!(
                "there is no Open MPI to build for: no mpicc in PATH that is Open MPI's, and none by MPICC, OMPI_DIR or MPI_HOME{}\n\
                 load its module, put its bin folder into PATH, or name it with --mpi PREFIX",
                others.iter().flat_map(|other| ["\n    ", other]).collect::<String>()
            ),
        }
    }

    /// Adds a source tree for headers that the installation lacks.
    pub(crate) fn with_source(self, source: Option<&Path>) -> Result<Self> {
        let absolute =
            |source: &Path| fs::canonicalize(source).with_context(|| format!("--openmpi-source {}", source.display()));
        Ok(Self { source: source.map(absolute).transpose()?, ..self })
    }

    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mpicc = (!self.is_found_by_scripts).then(|| ("MPICC", self.mpicc.clone().into_os_string()));
        let source = self.source.clone().map(|source| ("IBEX_OPENMPI_SOURCE", source.into_os_string()));
        mpicc.into_iter().chain(source).collect()
    }

    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        Some(self.mpicc.with_file_name(name)).filter(|file| is_program(file))
    }
}

impl fmt::Display for OpenMpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Open MPI {} in {} ({})", self.release, self.prefix.display(), self.by)
    }
}

fn candidates(named: Option<&Path>, environment: &Environment) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    if let Some(named) = named {
        let Some(mpicc) = mpicc_of(named) else {
            bail!("--mpi {0}: there is no {0}/bin/mpicc, and {0} is no mpicc itself", named.display());
        };
        candidates.push(Candidate { by: "--mpi".into(), mpicc, is_demanded: true });
    }
    if let Some(mpicc) = environment.variable("MPICC") {
        let mpicc = Path::new(mpicc);
        let mpicc = if mpicc.components().count() == 1 { environment.program(&mpicc.to_string_lossy()) } else { None }
            .unwrap_or_else(|| mpicc.to_path_buf());
        candidates.push(Candidate { by: "MPICC".into(), mpicc, is_demanded: true });
    }
    for name in ["OMPI_DIR", "MPI_HOME"] {
        let mpicc = environment.variable(name).and_then(|folder| mpicc_of(Path::new(folder)));
        candidates.extend(mpicc.map(|mpicc| Candidate { by: name.into(), mpicc, is_demanded: false }));
    }
    let mpicc = environment.program("mpicc");
    candidates.extend(mpicc.map(|mpicc| Candidate { by: "mpicc of PATH".into(), mpicc, is_demanded: false }));
    Ok(candidates)
}

/// Returns the compiler wrapper under a prefix; the "prefix" may also be the wrapper itself, or its folder.
fn mpicc_of(prefix: &Path) -> Option<PathBuf> {
    let prefix = std::path::absolute(prefix).ok()?;
    [prefix.join("bin/mpicc"), prefix.join("mpicc"), prefix].into_iter().find(|file| is_program(file))
}

/// Asks a compiler wrapper; if it is not Open MPI's, the error says whose it is, as the end of a sentence.
fn identify(candidate: &Candidate, environment: &Environment) -> Result<OpenMpi, String> {
    let Candidate { by, mpicc, .. } = candidate;
    let said = told(mpicc, "--showme:version", environment);
    let Some(release) = release(&said) else { return Err(whose(mpicc, environment)) };
    let libraries = told(mpicc, "--showme:libdirs", environment);
    let mut libraries = libraries.split_whitespace().map(|folder| Path::new(folder).join("libopen-pal.so"));
    let is_found_by_scripts = match environment.variable("MPICC") {
        Some(named) => Path::new(named) == mpicc,
        None => environment.program("mpicc").as_ref() == Some(mpicc),
    };
    Ok(OpenMpi {
        mpicc: mpicc.clone(),
        release,
        prefix: prefix(mpicc, environment),
        library: libraries.find_map(|library| fs::canonicalize(library).ok()),
        by: by.clone(),
        is_found_by_scripts,
        source: None,
    })
}

/// Returns `4.1.4` of `mpicc: Open MPI 4.1.4rc1 (Language: C)`.
fn release(said: &str) -> Option<String> {
    let version = said.split("Open MPI ").nth(1)?.trim_start_matches('v');
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    (end > 0).then(|| version[..end].to_owned())
}

/// Returns the prefix that the `ompi_info` beside it names, or the folder above the wrapper's.
fn prefix(mpicc: &Path, environment: &Environment) -> PathBuf {
    let info = mpicc.with_file_name("ompi_info");
    let told = said_by(&info, &["--parsable", "--path", "prefix"], environment);
    let told = told.lines().find_map(|line| line.strip_prefix("path:prefix:")).map(PathBuf::from);
    told.unwrap_or_else(|| mpicc.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_path_buf())
}

/// Returns the name of the MPI that has this wrapper, if it is not Open MPI.
fn whose(mpicc: &Path, environment: &Environment) -> String {
    let said = told(mpicc, "-v", environment) + &told(mpicc, "-show", environment);
    let known = [
        ("Intel(R) MPI", "Intel MPI's"),
        ("MVAPICH", "MVAPICH's"),
        ("mvapich", "MVAPICH's"),
        ("MPICH", "MPICH's"),
        ("-lmpich", "MPICH's"),
        ("-lmpi_cray", "Cray MPICH's"),
        ("Open MPI", "an Open MPI's that does not say its release"),
    ];
    match known.iter().find(|(mark, _)| said.contains(mark)) {
        Some((_, whose)) => format!("it is {whose} compiler wrapper"),
        None => format!("it does not say that it is Open MPI's ({:?})", said.lines().next().unwrap_or("nothing")),
    }
}

fn told(mpicc: &Path, option: &str, environment: &Environment) -> String {
    said_by(mpicc, &[option], environment)
}

/// Returns the output of a program; empty if it cannot be started.
fn said_by(program: &Path, options: &[&str], environment: &Environment) -> String {
    let Ok(output) = environment.command(program).args(options).stdin(std::process::Stdio::null()).output() else {
        return String::new();
    };
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the Open MPI to build for, with a reason for each other candidate.
//!
//! A folder that the user names comes first, then the variables of modules environments, then `PATH`. Each candidate is
//! identified ([`identify`]), because an `mpicc` may be MPICH's. The headers that a component needs are checked
//! ([`headers`]) before anything is compiled. The build scripts of `ffi` and `plugin-abi` get the result in two
//! variables: `MPICC`, and `IBEX_OPENMPI_SOURCE` for a source tree.
//!
//! Called by [`crate::install`]. Grade: setup. Tests: openmpi/tests.rs.

use crate::environment::{Environment, is_program};
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

mod headers;
mod identify;
#[cfg(test)]
pub(crate) mod tests;

use identify::Answer;

/// What names an Open MPI, and the `mpicc` that it means.
#[derive(Debug)]
struct Candidate {
    by: String,
    mpicc: PathBuf,
    /// Whether the user means this one and no other.
    is_demanded: bool,
}

/// An Open MPI to build for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenMpi {
    /// Its compiler wrapper.
    pub(crate) mpicc: PathBuf,
    /// `4.1.4`
    pub(crate) release: String,
    /// The folder it was installed under.
    pub(crate) prefix: PathBuf,
    /// Its library `libopen-pal.so`, links followed, where that was found.
    pub(crate) library: Option<PathBuf>,
    /// What named it.
    by: String,
    /// Whether the build scripts find it without being told.
    is_found_by_scripts: bool,
    source: Option<PathBuf>,
    answer: Answer,
}

/// The Open MPI that was chosen, and what became of the others.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) openmpi: OpenMpi,
    /// A sentence each.
    pub(crate) others: Vec<String>,
}

impl OpenMpi {
    /// Chooses: `--mpi` before `MPICC` before `OMPI_DIR` and `MPI_HOME` before `PATH`.
    ///
    /// # Errors
    /// What the user names is no Open MPI, or there is none at all. The message says what is there instead.
    pub(crate) fn choose(named: Option<&Path>, environment: &Environment) -> Result<Choice> {
        let candidates = candidates(named, environment)?;
        let mut chosen: Option<Self> = None;
        let mut others = Vec::new();
        for candidate in candidates {
            match (identify::identify(&candidate.mpicc, environment), &chosen) {
                (Ok(answer), None) => chosen = Some(Self::new(&candidate, answer, environment)),
                (Ok(answer), Some(taken)) if answer.prefix == taken.prefix => {}
                (Ok(answer), Some(taken)) => others.push(format!(
                    "Open MPI {} in {} ({}) is not taken, as {} comes first",
                    answer.release,
                    answer.prefix.display(),
                    candidate.by,
                    taken.by
                )),
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
                said_of(&others)
            ),
        }
    }

    fn new(candidate: &Candidate, answer: Answer, environment: &Environment) -> Self {
        let is_found_by_scripts = environment.variable("MPICC").map(Path::new) == Some(&candidate.mpicc)
            || (environment.variable("MPICC").is_none()
                && environment.program("mpicc").as_deref() == Some(&candidate.mpicc));
        let library = answer.libraries.iter().find_map(|folder| fs::canonicalize(folder.join("libopen-pal.so")).ok());
        Self {
            mpicc: candidate.mpicc.clone(),
            release: answer.release.clone(),
            prefix: answer.prefix.clone(),
            library,
            by: candidate.by.clone(),
            is_found_by_scripts,
            source: None,
            answer,
        }
    }

    /// Makes sure that the headers of a component are there: in the installation, or in a source tree of the same release.
    ///
    /// # Errors
    /// Some are missing; the message says which, and what to do.
    pub(crate) fn with_source(mut self, source: Option<&Path>) -> Result<Self> {
        self.source = headers::checked(&self.release, &self.answer.includes, source)?;
        Ok(self)
    }

    /// What the build scripts have to be told.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mpicc = (!self.is_found_by_scripts).then(|| ("MPICC", self.mpicc.clone().into_os_string()));
        let source = self.source.clone().map(|source| ("IBEX_OPENMPI_SOURCE", source.into_os_string()));
        mpicc.into_iter().chain(source).collect()
    }

    /// A program of this Open MPI, such as `ompi_info`.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        Some(self.mpicc.with_file_name(name)).filter(|file| is_program(file))
    }
}

impl fmt::Display for OpenMpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Open MPI {} in {} ({})", self.release, self.prefix.display(), self.by)
    }
}

/// A line for each sentence.
fn said_of(others: &[String]) -> String {
    let lines: Vec<String> = others.iter().map(|other| format!("\n    {other}")).collect();
    lines.concat()
}

/// What names an Open MPI, in order.
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

/// The compiler wrapper under a prefix; a prefix may also be the wrapper itself, or its folder.
fn mpicc_of(prefix: &Path) -> Option<PathBuf> {
    let prefix = std::path::absolute(prefix).ok()?;
    [prefix.join("bin/mpicc"), prefix.join("mpicc"), prefix].into_iter().find(|file| is_program(file))
}

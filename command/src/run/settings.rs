// SPDX-License-Identifier: MIT OR Apache-2.0
//! The variables by which an MPI uses ibex: those of its libfabric, or, for an Open MPI that loads the components of
//! ibex, the path to them. docs/libfabric.md has the list. Called by [`super`]. Grade: setup. Tests: below.

use super::find::Found;
use super::implementation::Implementation;
use crate::facts::openmpi::{self, COMPONENT_PATH, OpenMpi};
use crate::installed::Installed;
use anyhow::{Result, bail};
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use which::which;

const PROVIDER_PATH: &str = "FI_PROVIDER_PATH";

pub(super) type Variables = Vec<(&'static str, OsString)>;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) variables: Variables,
    /// Those that `mpirun` passes on to other hosts only if it is told to.
    pub(super) of_ranks: Variables,
}

impl Settings {
    pub(super) fn of(found: &Found, installed: &Installed, shares_memory: bool) -> Result<Self> {
        if !found.mpi.has_libfabric() {
            bail!(
                "{}, which was built without libfabric, so it cannot load ibex; an MPICH whose device names ofi can \
                 (`mpichversion`), such as that of PyPI",
                found.reason
            );
        }
        if found.mpi == Implementation::OpenMpi
            && let Some(variables) = by_components(found.launcher.as_deref(), installed)
        {
            let btl = (!shares_memory).then(|| ("OMPI_MCA_btl", "self,ibex".into()));
            return Ok(Self { variables: variables.into_iter().chain(btl).collect(), of_ranks: Vec::new() });
        }
        let provider = installed.provider()?;
        let path = prepended(provider.parent().unwrap_or(Path::new("/")), env::var_os(PROVIDER_PATH).as_deref());
        let of_ranks =
            if found.mpi == Implementation::OpenMpi { vec![(PROVIDER_PATH, path.clone())] } else { Vec::new() };
        let others = by_libfabric(&found.mpi, shares_memory).into_iter().map(|(name, value)| (name, value.into()));
        Ok(Self { variables: [(PROVIDER_PATH, path)].into_iter().chain(others).collect(), of_ranks })
    }
}

/// Returns what makes an MPI choose libfabric, and its provider `ibex`.
fn by_libfabric(mpi: &Implementation, shares_memory: bool) -> Vec<(&'static str, &'static str)> {
    match mpi {
        Implementation::Mpich(_) => {
            let mut variables = vec![("FI_PROVIDER", "ibex"), ("MPIR_CVAR_CH4_NETMOD", "ofi")];
            variables.extend((!shares_memory).then_some(("MPIR_CVAR_NOLOCAL", "1")));
            variables
        }
        Implementation::Intel => {
            let mut variables = vec![("FI_PROVIDER", "ibex"), ("I_MPI_OFI_PROVIDER", "ibex")];
            variables.push(("I_MPI_FABRICS", if shares_memory { "shm:ofi" } else { "ofi" }));
            if !shares_memory {
                // Without the first variable, Intel MPI runs collectives within a host by shared memory, whatever
                // `I_MPI_FABRICS` says. Without the second, release 2021.16 polls shared memory many times for each
                // poll of libfabric, and 8 KiB take 42 us instead of 2.
                variables.extend([("I_MPI_COLL_INTRANODE", "pt2pt"), ("I_MPI_SHM_SPIN_RATIO", "1")]);
            }
            variables
        }
        // It has no shared memory beside this layer.
        Implementation::OpenMpi => {
            vec![("OMPI_MCA_pml", "cm"), ("OMPI_MCA_mtl", "ofi"), ("OMPI_MCA_mtl_ofi_provider_include", "ibex")]
        }
    }
}

/// Puts a folder before those that `FI_PROVIDER_PATH` has already. A leading `@` is libfabric's, and stays in front.
fn prepended(folder: &Path, before: Option<&OsStr>) -> OsString {
    let before = before.unwrap_or_default().as_bytes();
    let (mark, others) =
        if let Some(others) = before.strip_prefix(b"@") { (&b"@"[..], others) } else { (&b""[..], before) };
    let folder = folder.as_os_str().as_bytes();
    let others = others.split(|byte| *byte == b':').filter(|other| !other.is_empty() && *other != folder);
    let folders = [folder].into_iter().chain(others).collect::<Vec<_>>().join(&b':');
    OsString::from_vec([mark, &folders].concat())
}

/// Whether this Open MPI loads the components of ibex.
pub(super) fn has_components(found: &Found, installed: &Installed) -> bool {
    by_components(found.launcher.as_deref(), installed).is_some()
}

/// Returns the variables for an Open MPI that loads the components of ibex; `None` if it does not.
fn by_components(launcher: Option<&Path>, installed: &Installed) -> Option<Variables> {
    let mpirun = launcher.map(PathBuf::from).or_else(|| which("mpirun").ok())?;
    let mut told = Vec::new();
    let mut openmpi = openmpi::of(mpirun.clone(), &told)?;
    if !openmpi.has_ibex() {
        let path = env::var(COMPONENT_PATH).unwrap_or_else(|_| "SYSTEM_DEFAULT".to_owned());
        told.push((COMPONENT_PATH, OsString::from(format!("{}:{path}", installed.components()?.display()))));
        openmpi = openmpi::of(mpirun, &told)?;
    }
    openmpi.has_ibex().then(|| of_ranks(&openmpi).unwrap_or(told))
}

/// Returns the variables for an Open MPI whose `mpirun` makes the ranks look elsewhere.
fn of_ranks(openmpi: &OpenMpi) -> Option<Variables> {
    let (folder, elsewhere) = openmpi.lost_to_ranks()?;
    let path = format!("{}:SYSTEM_DEFAULT", folder.display());
    Some(vec![(COMPONENT_PATH, path.into()), ("PMIX_MCA_mca_base_component_path", elsewhere.into())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mpi_is_told_to_use_libfabric_and_ibex_and_shares_memory_unless_the_user_says_no() {
        let told = |mpi, shares| {
            let words = by_libfabric(&mpi, shares).into_iter().map(|(name, value)| format!("{name}={value}"));
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(Implementation::Mpich(None), true), "FI_PROVIDER=ibex MPIR_CVAR_CH4_NETMOD=ofi");
        assert_eq!(
            told(Implementation::Mpich(None), false),
            "FI_PROVIDER=ibex MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1"
        );
        assert_eq!(told(Implementation::Intel, true), "FI_PROVIDER=ibex I_MPI_OFI_PROVIDER=ibex I_MPI_FABRICS=shm:ofi");
        assert_eq!(
            told(Implementation::Intel, false),
            "FI_PROVIDER=ibex I_MPI_OFI_PROVIDER=ibex I_MPI_FABRICS=ofi I_MPI_COLL_INTRANODE=pt2pt \
             I_MPI_SHM_SPIN_RATIO=1"
        );
        let of_openmpi = "OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_mtl_ofi_provider_include=ibex";
        assert_eq!(
            (told(Implementation::OpenMpi, true), told(Implementation::OpenMpi, false)),
            (of_openmpi.into(), of_openmpi.into())
        );
    }

    #[test]
    fn the_folder_of_the_provider_comes_before_the_users_and_only_once() {
        for (before, path) in [
            (None, "/i"),
            (Some(""), "/i"),
            (Some("/a:/b"), "/i:/a:/b"),
            (Some("/a:/i:/b"), "/i:/a:/b"),
            (Some("@/a:+/b/x-fi.so"), "@/i:/a:+/b/x-fi.so"),
        ] {
            assert_eq!(prepended(Path::new("/i"), before.map(OsStr::new)), path, "{before:?}");
        }
    }

    #[test]
    fn an_mpi_that_cannot_load_the_provider_is_refused_with_the_reason() {
        let installed = Installed::around(Path::new("/nowhere/bin/ibex"));
        let refused = |mpi| {
            let found = Found {
                mpi,
                reason: "./app is linked with X".into(),
                is_of_program: true,
                library: None,
                launcher: None,
                warning: None,
            };
            Settings::of(&found, &installed, true).unwrap_err().to_string()
        };
        let without = refused(Implementation::Mpich(Some("ch4:ucx".into())));
        assert!(without.contains("./app is linked with X, which was built without libfabric"), "{without}");
        assert!(
            refused(Implementation::Intel).contains("/nowhere/lib/libfabric/libibex-fi.so"),
            "{}",
            refused(Implementation::Intel)
        );
    }
}

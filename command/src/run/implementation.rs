// SPDX-License-Identifier: MIT OR Apache-2.0
//! The MPIs that ibex serves, and how each is recognised: a library by words that its code prints, a launcher by its
//! `--version`. Called by [`super::find`]. Grade: setup. Tests: below.

use memchr::memmem;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Implementation {
    /// MPICH, with its device (`ch4:ucx ofi`) if that is known.
    Mpich(Option<String>),
    Intel,
    OpenMpi,
}

impl Implementation {
    /// Recognises a library by its contents.
    pub(super) fn of_library(bytes: &[u8]) -> Option<Self> {
        let has = |text: &str| memmem::find(bytes, text.as_bytes()).is_some();
        if has("Intel(R) MPI Library") {
            Some(Self::Intel)
        } else if has("MPICH Device:") {
            Some(Self::Mpich(device(bytes)))
        } else {
            has("ompi_mpi_init").then_some(Self::OpenMpi)
        }
    }

    /// Recognises a launcher by what `--version` prints.
    pub(super) fn of_launcher(said: &str) -> Option<Self> {
        if said.contains("Intel(R) MPI Library") {
            return Some(Self::Intel);
        }
        if said.contains("(Open MPI)") || said.contains("(OpenRTE)") {
            return Some(Self::OpenMpi);
        }
        let device = said.split("--with-device=").nth(1).and_then(|rest| rest.split([' ', '\'', '\n']).next());
        said.contains("HYDRA").then(|| Self::Mpich(device.map(str::to_owned)))
    }

    /// Whether a launcher of the one starts jobs of the other.
    pub(super) fn starts(&self, other: &Self) -> bool {
        (*self == Self::OpenMpi) == (*other == Self::OpenMpi)
    }

    /// Whether it has libfabric, as far as is known.
    pub(super) fn has_libfabric(&self) -> bool {
        !matches!(self, Self::Mpich(Some(device)) if !device.contains("ofi"))
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mpich(Some(device)) => write!(f, "MPICH ({device})"),
            Self::Mpich(None) => f.write_str("MPICH"),
            Self::Intel => f.write_str("Intel MPI"),
            Self::OpenMpi => f.write_str("Open MPI"),
        }
    }
}

/// Returns the device, a string of its own in MPICH's library.
fn device(bytes: &[u8]) -> Option<String> {
    let starts = [&b"\0ch4:"[..], b"\0ch3:"].into_iter().find_map(|prefix| memmem::find(bytes, prefix));
    let rest = &bytes[starts? + 1..];
    let end = memchr::memchr(0, rest)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_recognised_by_the_words_in_it() {
        let mpich = b"\0MPICH Device:\t%s\n\0ch4:ucx ofi\0--with-device=ch4:ucx,ofi\0ompi_\0";
        assert_eq!(Implementation::of_library(mpich), Some(Implementation::Mpich(Some("ch4:ucx ofi".into()))));
        assert_eq!(Implementation::of_library(b"MPICH Device:"), Some(Implementation::Mpich(None)));
        // Intel MPI is made of MPICH.
        assert_eq!(
            Implementation::of_library(b"MPICH Device:\0Intel(R) MPI Library %s for Linux"),
            Some(Implementation::Intel)
        );
        assert_eq!(Implementation::of_library(b"\0ompi_mpi_init\0"), Some(Implementation::OpenMpi));
        assert_eq!(Implementation::of_library(b"MVAPICH Version"), None);
    }

    #[test]
    fn a_launcher_is_recognised_by_its_version() {
        let hydra = "HYDRA build details:\n    Version: 4.0.2\n    Configure options: '--with-device=ch4:ucx' '--x'\n";
        assert_eq!(Implementation::of_launcher(hydra), Some(Implementation::Mpich(Some("ch4:ucx".into()))));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.16 Build 20251030\n";
        assert_eq!(Implementation::of_launcher(intel), Some(Implementation::Intel));
        assert_eq!(Implementation::of_launcher("mpirun (Open MPI) 5.0.11\n"), Some(Implementation::OpenMpi));
        assert_eq!(Implementation::of_launcher("mpiexec (OpenRTE) 4.1.4\n"), Some(Implementation::OpenMpi));
        assert_eq!(Implementation::of_launcher("slurm 23.11"), None);
    }

    #[test]
    fn a_launcher_starts_jobs_of_its_own_kind() {
        let mpich = Implementation::Mpich(None);
        assert!(Implementation::Intel.starts(&mpich) && Implementation::OpenMpi.starts(&Implementation::OpenMpi));
        assert!(!Implementation::OpenMpi.starts(&mpich) && !mpich.starts(&Implementation::OpenMpi));
    }

    #[test]
    fn an_mpich_for_ucx_alone_has_no_libfabric() {
        let of = |device: &str| Implementation::Mpich(Some(device.to_owned()));
        assert!(
            of("ch4:ucx ofi").has_libfabric()
                && of("ch4:ofi").has_libfabric()
                && Implementation::Mpich(None).has_libfabric()
        );
        assert!(!of("ch4:ucx").has_libfabric() && !of("ch3:nemesis").has_libfabric());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measured MPI: Open MPI, or a stock MPI over ibex' libfabric provider; with the transports and tests of each.
//! The caller of the bench names it; the plan and the command lines ask it. Grade: setup. Tests: `plan/available.rs`.

use super::{By, Kind, Test, Transport};
use std::path::Path;

/// The MPI that is measured.
#[derive(Clone, Copy, Debug)]
pub enum Mpi<'a> {
    /// Open MPI, by the `mpirun` in `PATH`.
    OpenMpi,
    /// An MPI that loads ibex' libfabric provider. The bench compares it with Debian's MPICH, which uses UCX.
    Stock(Stock<'a>),
}

/// A stock MPI, as the Python package index has it.
#[derive(Clone, Copy, Debug)]
pub struct Stock<'a> {
    /// Which MPI it is.
    pub family: Family,
    /// Its folder, with `bin/mpiexec`.
    pub folder: &'a Path,
    /// Folder of `libibex-fi.so`.
    pub provider: &'a Path,
    /// Folder of the programs that Debian's MPICH compiled.
    pub of_debian: &'a Path,
}

/// The stock MPIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// MPICH.
    Mpich,
    /// Intel MPI.
    Intel,
}

impl Family {
    /// Returns its name for readers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH",
            Self::Intel => "Intel MPI",
        }
    }
}

/// Launcher and compiler of Debian's MPICH.
pub(crate) const OF_DEBIAN: [&str; 2] = ["mpiexec.mpich", "mpicc.mpich"];

/// Transports of a stock MPI.
const OF_STOCK: [Transport; 4] = [Transport::Ibex, Transport::Raw, Transport::Ucx, Transport::Tcp];

impl Mpi<'_> {
    /// Returns the transports of a first table.
    pub(crate) fn few_transports(self, kind: Kind) -> Vec<Transport> {
        match self {
            Self::OpenMpi => kind.few_transports(),
            Self::Stock(_) => OF_STOCK.to_vec(),
        }
    }

    /// Returns the transports of `cargo xtask bench --full`; [`crate::available`] leaves out missing ones.
    pub fn transports(self, kind: Kind) -> Vec<Transport> {
        match self {
            Self::OpenMpi => kind.transports(),
            Self::Stock(_) => OF_STOCK.to_vec(),
        }
    }

    /// Whether this MPI on such a device has a test. A stock MPI does not have those of ibex' own parameters, and its
    /// bench does not repeat those without MPI.
    pub(crate) fn has(self, kind: Kind, test: &Test) -> bool {
        kind.has(test) && (matches!(self, Self::OpenMpi) || !matches!(test.by, By::Reads | By::HostMemory))
    }
}

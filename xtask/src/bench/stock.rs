// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--mpi`: a series of Open MPI, or a stock MPI over the libfabric provider. Builds what the bench of a stock MPI
//! runs: the provider, and the programs, with its compiler and with Debian's MPICH, which is compared with it over UCX.
//! Called by [`super`]. Grade: setup. Tests: below.

use crate::build;
use crate::environment::Environment;
use crate::mpis::{self, INTEL, MPICH};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use hw_tests::openmpi::Series;
use ibex_bench::{Family, Kind, Mpi, Stock};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The MPI that `--mpi` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    OpenMpi(Series),
    Stock(Family),
}

impl FromStr for Named {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "mpich" => Ok(Self::Stock(Family::Mpich)),
            "intel" => Ok(Self::Stock(Family::Intel)),
            _ => {
                let series = name.parse().ok().context("give a series of Open MPI, 4.1 or 5, or mpich, or intel");
                series.map(Self::OpenMpi)
            }
        }
    }
}

/// A stock MPI, and where its parts are built.
pub(super) struct Parts {
    family: Family,
    stock: &'static mpis::Stock,
    folder: PathBuf,
    provider: PathBuf,
    of_debian: PathBuf,
}

const PROGRAMS: &str = "benches/mpi";

impl Parts {
    pub(super) fn of(workspace: &Workspace, family: Family) -> Self {
        let stock = match family {
            Family::Mpich => &MPICH,
            Family::Intel => &INTEL,
        };
        let folder = stock.folder(workspace);
        let provider = build::provider(workspace.shared_target());
        Self {
            family,
            stock,
            provider: provider.parent().unwrap_or(Path::new("/")).to_path_buf(),
            of_debian: folder.with_file_name("mpich-of-debian"),
            folder,
        }
    }

    pub(super) fn mpi(&self) -> Mpi<'_> {
        let Self { family, folder, provider, of_debian, .. } = self;
        Mpi::Stock(Stock { family: *family, folder, provider, of_debian })
    }

    pub(super) fn programs(&self) -> PathBuf {
        self.folder.join("bench")
    }

    /// Refuses what a stock MPI does not have: events, and devices that its jobs cannot be told to use.
    pub(super) fn refuse(&self, kind: Kind, events: bool) -> Result<()> {
        let name = self.family.name();
        if events {
            bail!("--events and --study are about Open MPI's components: leave --mpi out");
        }
        match kind {
            Kind::SoftHca => Ok(()),
            Kind::SoftRoce => bail!("{name} is not installed in the virtual machine: --device softhca"),
            // The provider takes the first port of the host, which may be of another adapter.
            Kind::Adapter => bail!("{name} cannot be told which adapter to use: --device softhca"),
        }
    }

    /// Builds the provider and the programs, those for UCX if Debian's MPICH is there.
    pub(super) fn build(&self, workspace: &Workspace, environment: &Environment) -> Result<()> {
        build::provider_alone(workspace)?;
        self.stock.ensure(workspace, PROGRAMS, "bench")?;
        match environment.program("mpicc.mpich") {
            Some(mpicc) => build::programs_of(workspace, PROGRAMS, &mpicc, &self.of_debian),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpi_is_a_series_of_open_mpi_or_a_stock_mpi_and_another_name_is_refused_with_advice() {
        let named = |name: &str| name.parse::<Named>();
        assert_eq!(named("5").unwrap(), Named::OpenMpi(Series::V5));
        assert_eq!(named("mpich").unwrap(), Named::Stock(Family::Mpich));
        assert_eq!(named("intel").unwrap(), Named::Stock(Family::Intel));
        let error = named("6").unwrap_err().to_string();
        assert!(error.contains("4.1 or 5, or mpich, or intel"), "{error}");
    }

    #[test]
    fn a_stock_mpi_is_measured_on_emulated_adapters_and_without_events() {
        let parts = Parts::of(&Workspace::here(), Family::Mpich);
        let refused = |kind, events| parts.refuse(kind, events).unwrap_err().to_string();
        assert!(parts.refuse(Kind::SoftHca, false).is_ok());
        assert!(refused(Kind::SoftHca, true).contains("--events"));
        for kind in [Kind::SoftRoce, Kind::Adapter] {
            assert!(refused(kind, false).contains("MPICH") && refused(kind, false).contains("--device softhca"));
        }
    }
}

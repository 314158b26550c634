// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of `cargo xtask test`, and what follows from them.
//!
//! Read by [`super`] and its parts. Grade: setup.

use hw_tests::openmpi::Series;

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Everything, 50 minutes on two processors: every device and its every test, the library as users have it, Open MPI 5,
    /// loom, Miri, programs of others [default: the quick tier, 7 to 8 minutes]
    #[arg(long)]
    pub(super) all: bool,
    /// Only the device tests, on `softhca` (emulated adapters), `softhca:PROFILE` (the same, that behave as mlx5, rxe,
    /// irdma, `bnxt_re` or minimal), `soft-roce` (a software device in a virtual machine), or an adapter of this
    /// machine such as `mlx5_0`
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,
    /// Only the device tests of either tier whose name contains this, on softhca:mlx5 unless --device names another;
    /// given several times, one of these
    #[arg(long, value_name = "TEXT")]
    pub(super) only: Vec<String>,
    /// Only what needs no device
    #[arg(long, conflicts_with_all = ["device", "only", "list", "mpi"])]
    pub(super) no_device: bool,
    /// List the device tests, each with its tier and the devices that it needs, and run none
    #[arg(long)]
    pub(super) list: bool,
    /// Run the tests so many times, after one build
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) again: u32,
    /// With this Open MPI, 4.1 or 5; 5 runs in a Debian 13 root made for it where this machine has another, and without
    /// what is the same with every Open MPI [default: this machine's]
    #[arg(long, value_name = "SERIES")]
    pub(super) mpi: Option<Series>,
}

impl Arguments {
    /// Whether only device tests are asked for.
    pub(super) fn are_of_devices(&self) -> bool {
        self.device.is_some() || !self.only.is_empty() || self.list
    }

    /// Whether the Debian 13 root with Open MPI 5 is to follow.
    pub(super) fn end_with_open_mpi_5(&self) -> bool {
        self.all && !self.are_of_devices() && !self.no_device && self.mpi.is_none()
    }
}

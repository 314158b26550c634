// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kinds of devices: the tests of each, and the meaning of its numbers. Read by the plan, by the command lines, and by
//! the thresholds of `cargo xtask bench`. Grade: setup. Plain data. Tests: below.

use super::transport::Transport;
use super::{By, Test};
use clap::ValueEnum;

/// Kind of the measured device: it decides the tests and their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's software adapter in a virtual machine: slow.
    SoftRoce,
    /// Emulated adapters: as fast as memory, on any machine.
    SoftHca,
    /// A real adapter.
    Adapter,
}

impl Kind {
    /// Returns Open MPI's transports of a first table: ibex, the adapter below it, and the most telling others.
    pub(crate) fn few_transports(self) -> Vec<Transport> {
        let others = match self {
            Self::SoftHca => &[Transport::Openib, Transport::Ucx][..],
            Self::Adapter => &[Transport::Ucx, Transport::Tcp],
            Self::SoftRoce => &[Transport::Tcp],
        };
        [&[Transport::Ibex, Transport::Raw], others].concat()
    }

    /// Returns all of Open MPI's transports.
    pub(crate) fn transports(self) -> Vec<Transport> {
        match self {
            Self::SoftHca => Transport::value_variants().to_vec(),
            Self::Adapter => {
                vec![Transport::Ibex, Transport::IbexBtl, Transport::Raw, Transport::Ucx, Transport::Tcp]
            }
            Self::SoftRoce => vec![Transport::Ibex, Transport::IbexBtl, Transport::Raw, Transport::Tcp],
        }
    }

    /// Whether such a device has this test. Instructions can be counted only where a message arrives at once; only
    /// emulated adapters consist of the host's memory; reads of the kernel's adapter are always short.
    pub(crate) fn has(self, test: &Test) -> bool {
        self == Self::SoftHca
            || matches!(test.by, By::Messages | By::OneSided)
            || (self, test.by) == (Self::Adapter, By::Reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_compares_everything_that_a_first_table_compares() {
        for kind in [Kind::SoftRoce, Kind::SoftHca, Kind::Adapter] {
            let all = kind.transports();
            assert!(kind.few_transports().iter().all(|one| all.contains(one)), "{kind:?}");
        }
    }
}

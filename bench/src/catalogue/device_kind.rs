// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sorts of devices: what is measured on one, and what its numbers mean.
//!
//! Grade: setup. Read by the plan, by what makes command lines, and by the bars of `cargo xtask bench`. Plain data;
//! tests: at the end of this file.

use super::transport::Transport;
use super::{By, Test};
use clap::ValueEnum;

/// What sort of device is measured: it decides what is worth measuring, and in which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's software adapter in a virtual machine: slow.
    SoftRoce,
    /// Emulated adapters: as fast as memory, on any machine.
    SoftHca,
    /// An adapter.
    Adapter,
}

impl Kind {
    pub(crate) fn remark(self) -> &'static str {
        match self {
            Self::SoftRoce => {
                "These numbers come from a software adapter: use them to compare software overhead, not to \
                 predict the speed of an adapter."
            }
            Self::SoftHca => {
                "These numbers come from an emulated adapter, which moves data with the processor: use them to compare software \
                 overhead, not to predict the speed of an adapter."
            }
            Self::Adapter => "Both ranks are on this machine.",
        }
    }

    /// What a first table compares: ibex, the adapter below it, and what tells most beside it.
    pub(crate) fn few_transports(self) -> Vec<Transport> {
        let others = match self {
            Self::SoftHca => &[Transport::Openib, Transport::Ucx][..],
            Self::Adapter => &[Transport::Ucx, Transport::Tcp],
            Self::SoftRoce => &[Transport::Tcp],
        };
        [&[Transport::Ibex, Transport::Raw], others].concat()
    }

    /// The transports of `cargo xtask bench --full`; those that are not installed are left out ([`crate::available`]).
    #[must_use]
    pub fn transports(self) -> Vec<Transport> {
        match self {
            Self::SoftHca => Transport::value_variants().to_vec(),
            Self::Adapter => {
                vec![Transport::Ibex, Transport::IbexBtl, Transport::Raw, Transport::Ucx, Transport::Tcp]
            }
            Self::SoftRoce => vec![Transport::Ibex, Transport::IbexBtl, Transport::Raw, Transport::Tcp],
        }
    }

    /// Whether a test makes sense on such a device: instructions are only counted where a message arrives at once, and
    /// the host's memory is what only emulated adapters are made of.
    pub(crate) fn has(self, test: &Test) -> bool {
        self == Self::SoftHca || matches!(test.by, By::Messages | By::OneSided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_first_table_compares_is_compared_with_full_too() {
        for kind in [Kind::SoftRoce, Kind::SoftHca, Kind::Adapter] {
            let all = kind.transports();
            assert!(kind.few_transports().iter().all(|one| all.contains(one)), "{kind:?}");
        }
    }
}

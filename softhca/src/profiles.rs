// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles: limits and behaviours of real adapters, by the name of their driver, each value with its source beside it.
//!
//! Sources are files of rdma-core (`providers/`, libibverbs) and of the kernel (`drivers/infiniband/`: `hw/`, `sw/`,
//! `core/`). "field" is what programs printed on such adapters, "choice" a value that the sources leave open. What a
//! real adapter can and the emulated one cannot is in docs/softhca.md. Called by: the configuration. Grade: setup.

mod bnxt_re;
mod irdma;
mod minimal;
mod mlx5;
mod rxe;

use serde::Deserialize;

use crate::behaviour::Behaviour;
use crate::engine::ClockSpec;
use crate::engine::codes::link_layer;
use crate::limits::Limits;

/// The profiles there are.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// NVIDIA (Mellanox) `ConnectX`
    Mlx5,
    /// The kernel's software `RoCE`
    Rxe,
    /// Intel E810, `RoCE` v2
    Irdma,
    /// Broadcom `NetXtreme`
    BnxtRe,
    /// A legal adapter at the low end of the specification
    Minimal,
}

/// The words for them.
const NAMES: [(&str, Name); 5] = [
    ("mlx5", Name::Mlx5),
    ("rxe", Name::Rxe),
    ("irdma", Name::Irdma),
    ("bnxt_re", Name::BnxtRe),
    ("minimal", Name::Minimal),
];

impl Name {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        NAMES.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        NAMES.iter().find(|row| row.0 == name).map(|row| row.1).ok_or_else(|| {
            let names = NAMES.map(|row| row.0).join(", ");
            format!("{name:?} is no profile: one of {names}")
        })
    }
}

/// What a device begins with, before its own keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    /// Unless the device says otherwise (`codes::link_layer`).
    pub(crate) link_layer: u8,
    pub(crate) limits: Limits,
    pub(crate) behaviour: Behaviour,
    pub(crate) clock: ClockSpec,
}

/// The emulated adapter's own, and what a profile does not say: where verbs leave no choice, or the sources none.
const USUAL: Profile = Profile {
    link_layer: link_layer::INFINIBAND,
    limits: Limits::USUAL,
    behaviour: Behaviour::USUAL,
    clock: ClockSpec::USUAL,
};

/// The profile of this name; the emulated adapter's own without one.
pub(crate) fn profile(name: Option<Name>) -> Profile {
    match name {
        None => USUAL,
        Some(Name::Mlx5) => mlx5::PROFILE,
        Some(Name::Rxe) => rxe::PROFILE,
        Some(Name::Irdma) => irdma::PROFILE,
        Some(Name::BnxtRe) => bnxt_re::PROFILE,
        Some(Name::Minimal) => minimal::PROFILE,
    }
}

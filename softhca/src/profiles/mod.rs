// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles: limits and behaviours of real adapters, by the name of their driver, each value with its source beside it.
//! A profile leaves out the values that an adapter without a profile has, too. A profile is a `[[device]]` of the
//! configuration file, in a file of its own (src/profiles). Sources are files of rdma-core (`providers/`, libibverbs)
//! and of the kernel (`drivers/infiniband/`: `hw/`, `sw/`, `core/`); "field" is the output of programs on such
//! adapters, "choice" a value that the sources leave open. docs/softhca.md lists features of the real adapters that are
//! not emulated. Called by: the configuration. Grade: setup.

use serde::Deserialize;

use crate::config::Device;

/// Names of the profiles.
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

const PROFILES: [(&str, Name, &str); 5] = [
    ("mlx5", Name::Mlx5, include_str!("mlx5.toml")),
    ("rxe", Name::Rxe, include_str!("rxe.toml")),
    ("irdma", Name::Irdma, include_str!("irdma.toml")),
    ("bnxt_re", Name::BnxtRe, include_str!("bnxt_re.toml")),
    ("minimal", Name::Minimal, include_str!("minimal.toml")),
];

impl Name {
    /// Returns its word in the configuration.
    pub fn word(self) -> &'static str {
        PROFILES.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        PROFILES.iter().find(|row| row.0 == name).map(|row| row.1).ok_or_else(|| {
            let names = PROFILES.map(|row| row.0).join(", ");
            format!("{name:?} is no profile: one of {names}")
        })
    }
}

/// Returns the profile of this name, to which a device of the configuration adds its keys. Other keys have defaults.
pub(crate) fn profile(name: Option<Name>) -> Device {
    let text = PROFILES.iter().find(|row| Some(row.1) == name).map_or("", |row| row.2);
    toml::from_str(text).expect("each profile is read by a test")
}

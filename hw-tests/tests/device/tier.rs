// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which tier a test is, and which tests are asked for by the variable `IBEX_TESTS` (`quick`, `device-dependent` or
//! `all`).
//!
//! Setup grade; any thread.

use anyhow::{Result, bail};
use hw_tests::Device;
use std::env;

/// When `cargo xtask test` runs a test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tier {
    /// With `--all` alone.
    All,
    /// At each change, but not in a virtual machine.
    Quick,
    /// At each change on each device, also in a virtual machine.
    QuickOnEachDevice,
}

/// Which tests are run on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Which {
    Quick,
    DeviceDependent,
    All,
}

impl Which {
    /// As `IBEX_TESTS` has it: all unless it says otherwise.
    ///
    /// # Errors
    /// It is none of its words.
    pub(crate) fn from_environment() -> Result<Self> {
        match env::var("IBEX_TESTS").unwrap_or_default().as_str() {
            "quick" => Ok(Self::Quick),
            "device-dependent" => Ok(Self::DeviceDependent),
            "" | "all" => Ok(Self::All),
            other => bail!("IBEX_TESTS is {other:?}; it can be `quick`, `device-dependent` or `all`"),
        }
    }

    /// How much of what programs repeat is enough on this device: in the quick tier each kind of thing happens, and not
    /// often; with `--all` what one device has done whole is repeated less on the others.
    pub(crate) fn share(self, device: &Device) -> f64 {
        match (self, device) {
            (Self::Quick, Device::SoftRoce) => 0.05,
            (Self::Quick | Self::DeviceDependent, _) => 0.25,
            (Self::All, _) => 1.0,
        }
    }
}

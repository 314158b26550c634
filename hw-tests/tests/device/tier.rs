// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a device test runs, and how often its program repeats its cases.
//!
//! Setup grade; any thread.

use hw_tests::{Device, Selection};

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

/// The share of its repeats that a test program does on this device. In the quick tier every kind of case occurs, though
/// not often; with `--all` one device does all repeats, another emulated one a quarter, and a virtual machine a tenth.
pub(crate) fn share(selection: Selection, device: &Device) -> f64 {
    match (selection, device) {
        (Selection::Quick, Device::SoftRoce) => 0.05,
        (Selection::DeviceDependent, Device::SoftRoce) => 0.1,
        (Selection::Quick | Selection::DeviceDependent, _) => 0.25,
        (Selection::All, _) => 1.0,
    }
}

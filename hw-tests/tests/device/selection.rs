// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the tests that run: those of a [`Selection`] whose names contain a line of the variable `IBEX_ONLY`, if it is
//! set. Prints the list of all tests, too.
//!
//! Called by `main`. Setup grade.

use crate::test::Test;
use crate::tier::Tier;
use anyhow::{Result, bail};
use hw_tests::{Device, Selection};
use std::env;

/// Keeps those that are to be run on this device, or all where no device was asked for; returns what is to be said of
/// the others.
///
/// # Errors
/// No test is left.
pub(crate) fn select(tests: &mut Vec<Test>, selection: Selection, device: Option<&Device>) -> Result<Option<String>> {
    let all = tests.len();
    let said = match selection {
        Selection::All => None,
        Selection::Quick => {
            let is_virtual = device.is_some_and(|device| *device == Device::SoftRoce);
            tests.retain(|test| match test.tier {
                Tier::All => false,
                Tier::Quick => !is_virtual,
                Tier::QuickOnEachDevice => true,
            });
            Some(format!(
                "{} of {all} tests are in the quick tier here; `cargo xtask test --all` runs all",
                tests.len()
            ))
        }
        Selection::DeviceDependent => {
            tests.retain(|test| !test.device_independent);
            let left_out = all - tests.len();
            Some(format!("skip {left_out} tests of what is the same on every device: they are run on another"))
        }
    };
    let only = env::var("IBEX_ONLY").unwrap_or_default();
    if !only.is_empty() {
        let only = only.replace(' ', "_");
        tests.retain(|test| only.lines().any(|text| test.name.contains(text)));
    }
    if tests.is_empty() {
        bail!("no test is called so: {only}");
    }
    Ok(said)
}

/// Prints a line for each: its tier, the devices that it needs, and its name.
pub(crate) fn list(tests: &[Test]) {
    println!("tier   device     test");
    for test in tests {
        let tier = if test.tier == Tier::All { "all" } else { "quick" };
        let devices = if test.device_independent && test.devices() == "any" { "one of any" } else { test.devices() };
        println!("{tier:5}  {devices:10} {}", test.name);
    }
    let quick = tests.iter().filter(|test| test.tier != Tier::All).count();
    let on_each = tests.iter().filter(|test| test.tier == Tier::QuickOnEachDevice).count();
    println!("{} tests; {quick} in the quick tier, {on_each} of them also in a virtual machine", tests.len());
}

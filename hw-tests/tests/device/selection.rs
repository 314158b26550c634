// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the tests are run, by the variables `IBEX_TESTS` (`quick`, `device-dependent` or `all`) and `IBEX_ONLY` (words
//! of names, one a line, of which one is enough), and their list.
//!
//! Called by `main`. Setup grade.

use crate::test::{Test, Tier};
use anyhow::{Result, bail};
use hw_tests::Device;
use std::env;

/// Keeps those that are to be run on this device, or all where no device was asked for; returns what is to be said of
/// the others.
///
/// # Errors
/// `IBEX_TESTS` is none of its words, or no test is left.
pub(crate) fn select(tests: &mut Vec<Test>, device: Option<&Device>) -> Result<Option<String>> {
    let all = tests.len();
    let said = match env::var("IBEX_TESTS").unwrap_or_default().as_str() {
        "" | "all" => None,
        "quick" => {
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
        "device-dependent" => {
            tests.retain(|test| !test.device_independent);
            let left_out = all - tests.len();
            Some(format!("skip {left_out} tests of what is the same on every device: they are run on another"))
        }
        other => bail!("IBEX_TESTS is {other:?}; it can be `quick`, `device-dependent` or `all`"),
    };
    let only = env::var("IBEX_ONLY").unwrap_or_default();
    if !only.is_empty() {
        tests.retain(|test| only.lines().any(|text| test.name.contains(text)));
    }
    if tests.is_empty() {
        bail!("no test is called so: {only}");
    }
    Ok(said)
}

/// Whether the tests of the quick tier are run.
fn is_quick() -> bool {
    env::var("IBEX_TESTS").is_ok_and(|tests| tests == "quick")
}

/// How much of what programs repeat is enough in this tier: in the quick one each kind of thing happens, and not often.
pub(crate) fn share(device: &Device) -> f64 {
    match (is_quick(), device) {
        (false, _) => 1.0,
        (true, Device::SoftRoce) => 0.05,
        (true, _) => 0.25,
    }
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A test: its name, its function, its needs of the device, and its tier. Also selects the tests to run. Every file of
//! tests makes them; `main` lists and runs them. Setup grade.

use crate::launch::over_the_pml;
use crate::site::Site;
use anyhow::{Result, bail};
use hw_tests::{Device, Selection};
use std::env;

/// A property of the adapters' profile, and the text for adapters without it: for [`Test::needing`].
pub(crate) type Property = (fn(&Device) -> bool, &'static str);

pub(crate) const INFINIBAND: Property = (Device::has_infiniband, "the adapters have no InfiniBand ports");

/// Needs of a test, which is skipped elsewhere.
#[derive(Clone, Copy, Debug)]
enum Needs {
    Nothing,
    /// Adapters that the test configures.
    Emulated,
    /// Adapters that the test configures, whose profile has this property.
    EmulatedWith(Property),
    TwoNodes,
}

/// A test. An error that it returns is a failure, and shows all that was printed.
pub(crate) struct Test {
    pub(crate) name: String,
    run: Run,
    needs: Needs,
    pub(crate) tier: Tier,
    /// Whether it has the same result on every device, like a test of a parameter's bounds.
    pub(crate) device_independent: bool,
    /// Whether it changes the host, so that no other test may run meanwhile.
    pub(crate) is_alone: bool,
}

type Run = Box<dyn Fn(&mut Site) -> Result<()> + Send>;

impl Test {
    pub(crate) fn new(name: impl Into<String>, run: impl Fn(&mut Site) -> Result<()> + Send + 'static) -> Self {
        let name = name.into().replace(' ', "_");
        let (needs, tier) = (Needs::Nothing, Tier::All);
        Self { name, run: Box::new(run), needs, tier, device_independent: false, is_alone: false }
    }

    /// Makes a test that configures emulated adapters.
    pub(crate) fn on_emulated(name: impl Into<String>, run: impl Fn(&mut Site) -> Result<()> + Send + 'static) -> Self {
        Self { needs: Needs::Emulated, ..Self::new(name, run) }
    }

    pub(crate) fn on_two_nodes(
        name: impl Into<String>,
        run: impl Fn(&mut Site) -> Result<()> + Send + 'static,
    ) -> Self {
        Self { needs: Needs::TwoNodes, ..Self::new(name, run) }
    }

    /// Declares that the profile of the emulated adapters must have a property.
    pub(crate) fn needing(self, property: Property) -> Self {
        Self { needs: Needs::EmulatedWith(property), ..self }
    }

    /// Declares that a run on one device is enough.
    pub(crate) fn device_independent(self) -> Self {
        Self { device_independent: true, ..self }
    }

    /// Makes the same test over ibex's PML, for which a run on one device is enough.
    pub(crate) fn over_the_pml(self) -> Self {
        let (name, run) = (format!("over_the_pml,_{}", self.name), self.run);
        let run = Box::new(move |site: &mut Site| over_the_pml(|| run(site)));
        Self { name, run, device_independent: true, ..self }
    }

    pub(crate) fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    /// Puts it in the quick tier, on emulated adapters and on adapters of this machine.
    pub(crate) fn quick(self) -> Self {
        Self { tier: Tier::Quick, ..self }
    }

    pub(crate) fn quick_if(self, is_quick: bool) -> Self {
        if is_quick { self.quick() } else { self }
    }

    /// Puts it in the quick tier also in a virtual machine, where it takes ten times as long.
    pub(crate) fn quick_on_each_device(self) -> Self {
        Self { tier: Tier::QuickOnEachDevice, ..self }
    }

    pub(crate) fn is_called(&self, sentence: &str) -> bool {
        self.name == sentence.replace(' ', "_")
    }

    /// Runs it, or notes why it is skipped.
    pub(crate) fn run(&self, site: &mut Site) -> Result<()> {
        if let Some(lack) = self.lack(site.device()) {
            site.skip(&self.name, lack);
            return Ok(());
        }
        (self.run)(site)
    }

    fn lack(&self, device: &Device) -> Option<&'static str> {
        match self.needs {
            Needs::Emulated | Needs::EmulatedWith(..) if !device.is_emulated() => {
                Some("needs emulated adapters (`--device softhca`)")
            }
            Needs::EmulatedWith((has, lack)) if !has(device) => Some(lack),
            Needs::TwoNodes if *device != Device::SoftRoce => {
                Some("needs two nodes, and an adapter of this machine makes one")
            }
            _ => None,
        }
    }

    pub(crate) fn devices(&self) -> &'static str {
        match self.needs {
            Needs::Nothing => "any",
            Needs::Emulated | Needs::EmulatedWith(..) => "softhca",
            Needs::TwoNodes => "soft-roce",
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tier {
    /// Only with `--all`.
    All,
    /// At each change, but not in a virtual machine.
    Quick,
    /// At each change on each device, also in a virtual machine.
    QuickOnEachDevice,
}

/// The share of a program's repetitions that are done on this device. The quick tier has every kind of case, but few
/// repetitions; with `--all` one device does all, another emulated one a quarter, and a virtual machine a tenth.
pub(crate) fn share(selection: Selection, device: &Device) -> f64 {
    match (selection, device) {
        (Selection::Quick, Device::SoftRoce) => 0.05,
        (Selection::DeviceDependent, Device::SoftRoce) => 0.1,
        (Selection::Quick | Selection::DeviceDependent, _) => 0.25,
        (Selection::All, _) => 1.0,
    }
}

/// Keeps the tests of a [`Selection`] for this device whose names contain a line of the variable `IBEX_ONLY`, if it is
/// set. Returns a note on the others; fails if no test is left.
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

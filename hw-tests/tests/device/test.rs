// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test is: its name, what it does, and what it needs of the device.
//!
//! Made by every file of tests, run by `main`. Setup grade.

use crate::site::Site;
use hw_tests::Device;

/// For [`Test::on_emulated_with`].
pub(crate) const INFINIBAND: (fn(&Device) -> bool, &str) =
    (Device::has_infiniband, "the adapters have no InfiniBand ports");

/// A test: its name, a sentence, and what it does; an error is a failure and shows all that was printed.
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) run: Run,
    /// Whether what it tests is the same on every device: a parameter's bounds, what a tool is shown.
    pub(crate) device_independent: bool,
}

type Run = Box<dyn Fn(&mut Site) -> anyhow::Result<()> + Send>;

impl Test {
    pub(crate) fn new(name: impl Into<String>, run: impl Fn(&mut Site) -> anyhow::Result<()> + Send + 'static) -> Self {
        Self { name: name.into().replace(' ', "_"), run: Box::new(run), device_independent: false }
    }

    /// The same, of which a run on one device is enough.
    pub(crate) fn device_independent(self) -> Self {
        Self { device_independent: true, ..self }
    }

    /// A test that describes adapters of its own; skipped where they are not emulated.
    pub(crate) fn on_emulated(
        name: impl Into<String>,
        run: impl Fn(&mut Site) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        let name = name.into();
        Self::new(name.clone(), move |site| {
            if site.is_emulated() {
                return run(site);
            }
            site.skip(&name, "needs emulated adapters (`--device softhca`)");
            Ok(())
        })
    }

    /// The same, of adapters whose profile has what the test needs; skipped where it has not.
    pub(crate) fn on_emulated_with(
        (has, lack): (fn(&Device) -> bool, &'static str),
        name: &'static str,
        run: impl Fn(&mut Site) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        Self::on_emulated(name, move |site| {
            if has(site.device()) {
                return run(site);
            }
            site.skip(name, lack);
            Ok(())
        })
    }

    /// A test that needs two nodes; skipped where there is one.
    pub(crate) fn on_two_nodes(
        name: impl Into<String>,
        run: impl Fn(&mut Site) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        let name = name.into();
        Self::new(name.clone(), move |site| {
            if site.is_disposable() {
                return run(site);
            }
            site.skip(&name, "needs two nodes, and an adapter of this machine makes one");
            Ok(())
        })
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The finding about a host's libfabric provider; its ports are those of [`super::adapters`]. Called by [`super`].
//! Grade: setup. Tests: below.

use super::finding::{Finding, Severity};
use crate::facts::provider::Provider;

pub(super) fn judge(provider: &Provider) -> Option<Finding> {
    let measured = "it is not installed, so MPICH, Intel MPI and others that use libfabric cannot use ibex";
    let finding = Finding::new(Severity::Warning, "provider", "libibex-fi.so", measured);
    let finding = finding.expected("the libfabric provider beside this command").mended("cargo xtask install");
    provider.file.is_none().then_some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_is_not_installed_is_found() {
        assert_eq!(judge(&Provider::default()).map(|finding| finding.check), Some("provider"));
        let there = Provider { file: Some("/i/libibex-fi.so".into()), ..Provider::default() };
        assert!(judge(&there).is_none());
    }
}

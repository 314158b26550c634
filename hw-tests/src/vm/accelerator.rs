// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses how QEMU runs a guest: by the processor (KVM) if that works, else by translation (TCG). On some machines
//! `/dev/kvm` opens, but no guest boots, so only a booted guest is proof; a file in the cache folder records that KVM
//! failed with this host kernel and QEMU. Called by [`super::open`]. Setup grade. Tests: the device tests.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// Name of the file that records that KVM failed; it contains what [`machine`] returned.
const IN_VAIN: &str = "kvm-in-vain";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Accelerator {
    Kvm,
    /// QEMU's translator, with one host thread for each processor of the guest.
    Tcg,
}

impl Accelerator {
    pub(crate) fn options(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    /// Returns the time a guest has to come up. Without working KVM it hangs at once, so that time is short.
    pub(crate) fn boot_limit(self) -> Duration {
        match self {
            Self::Kvm => Duration::from_secs(15),
            Self::Tcg => Duration::from_secs(90),
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

pub(crate) fn candidates(cache: &Path) -> &'static [Accelerator] {
    let is_there = OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    let was_in_vain = || fs::read_to_string(cache.join(IN_VAIN)).is_ok_and(|text| text == machine());
    if is_there && !was_in_vain() { &[Accelerator::Kvm, Accelerator::Tcg] } else { &[Accelerator::Tcg] }
}

/// Records that no guest came up with KVM, though one did with TCG.
pub(crate) fn remember_in_vain(cache: &Path) -> anyhow::Result<()> {
    let file = cache.join(IN_VAIN);
    fs::write(&file, machine()).with_context(|| format!("write {}", file.display()))
}

/// Returns the versions on which KVM's success depends: the host's kernel, and QEMU.
fn machine() -> String {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let version = Command::new(QEMU).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned();
    format!("{kernel}, {version}")
}

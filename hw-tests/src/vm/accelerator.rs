// SPDX-License-Identifier: MIT OR Apache-2.0
//! How QEMU runs a guest: with the processor's help (KVM) where that really works, else by translation (TCG).
//!
//! Called by [`crate::fabric`]. On some machines `/dev/kvm` opens and yet no guest comes up, so a guest that came up is
//! the only proof; that it was tried in vain is kept in the cache folder for this host kernel and QEMU. Setup grade.
//! Tests: the device tests of this package.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

/// The program that runs the guests, on the x86-64 that the rest of this module is made for.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// Its presence, with what [`machine`] says in it, says that KVM was tried here in vain.
const IN_VAIN: &str = "kvm-in-vain";

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's translator, one host thread for each processor of the guest.
    Tcg,
}

impl Accelerator {
    /// QEMU's options.
    pub(crate) fn options(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    /// How long a guest may take to come up. A wrong KVM hangs at once, so its time is short.
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

/// What to try, in this order.
pub(crate) fn candidates(cache: &Path) -> &'static [Accelerator] {
    let is_there = OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    let was_in_vain = || fs::read_to_string(cache.join(IN_VAIN)).is_ok_and(|text| text == machine());
    if is_there && !was_in_vain() { &[Accelerator::Kvm, Accelerator::Tcg] } else { &[Accelerator::Tcg] }
}

/// Keeps that no guest came up with KVM, though one did with TCG.
pub(crate) fn remember_in_vain(cache: &Path) -> anyhow::Result<()> {
    let file = cache.join(IN_VAIN);
    fs::write(&file, machine()).with_context(|| format!("write {}", file.display()))
}

/// What it depends on whether KVM works: the host's kernel, and QEMU.
fn machine() -> String {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let version = Command::new(QEMU).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned();
    format!("{kernel}, {version}")
}

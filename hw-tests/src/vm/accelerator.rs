// SPDX-License-Identifier: MIT OR Apache-2.0
//! How QEMU runs a guest: with the processor's help (KVM) where that really works, else by translation (TCG).
//!
//! Called by [`crate::fabric`]. On some machines `/dev/kvm` opens and yet no guest comes up, so a guest that came up is
//! the only proof; the verdict is kept in the cache folder for this host kernel and QEMU. Setup grade. Tests: at the
//! end of this file.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

/// Overrides the choice: `kvm` or `tcg`.
pub const VARIABLE: &str = "FABRIC_ACCELERATOR";
/// The program that runs the guests, on the x86-64 that the rest of this module is made for.
pub const QEMU: &str = "qemu-system-x86_64";
const VERDICT: &str = "accelerator";

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's translator, one host thread for each processor of the guest.
    Tcg,
}

impl Accelerator {
    /// QEMU's options.
    #[must_use]
    pub fn options(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    /// How long a guest may take to come up. A wrong KVM hangs at once, so its time is short.
    #[must_use]
    pub fn boot_limit(self) -> Duration {
        match self {
            Self::Kvm => Duration::from_secs(15),
            Self::Tcg => Duration::from_secs(90),
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "kvm" => Some(Self::Kvm),
            "tcg" => Some(Self::Tcg),
            _ => None,
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

/// What to try, in this order; [`remember`] what came up.
///
/// # Errors
/// [`VARIABLE`] has another value than its two.
pub fn candidates(cache: &Path) -> anyhow::Result<Vec<Accelerator>> {
    if let Ok(name) = std::env::var(VARIABLE)
        && !name.is_empty()
    {
        return match Accelerator::from_name(&name) {
            Some(accelerator) => Ok(vec![accelerator]),
            None => bail!("{VARIABLE} is {name:?}; it can be `kvm` or `tcg`"),
        };
    }
    if OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(vec![Accelerator::Tcg]);
    }
    let text = fs::read_to_string(cache.join(VERDICT)).unwrap_or_default();
    Ok(match verdict_in(&text, &machine()) {
        Some(Accelerator::Tcg) => vec![Accelerator::Tcg],
        Some(Accelerator::Kvm) | None => vec![Accelerator::Kvm, Accelerator::Tcg],
    })
}

/// Keeps the verdict that a guest came up with `accelerator` (and, if that is TCG, that KVM was tried in vain).
///
/// # Errors
/// The file cannot be written.
pub fn remember(cache: &Path, accelerator: Accelerator) -> anyhow::Result<()> {
    let file = cache.join(VERDICT);
    let text = format!("{accelerator} on {}\n", machine());
    fs::write(&file, text).with_context(|| format!("write {}", file.display()))
}

fn verdict_in(text: &str, machine: &str) -> Option<Accelerator> {
    let (name, of) = text.trim_end().split_once(" on ")?;
    (of == machine).then(|| Accelerator::from_name(name)).flatten()
}

/// What a verdict depends on: the host's kernel, and QEMU.
fn machine() -> String {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let version = Command::new(QEMU).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned();
    format!("{kernel}, {version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_counts_only_on_the_machine_it_was_made_on() {
        assert_eq!(verdict_in("tcg on 6.1, QEMU 7\n", "6.1, QEMU 7"), Some(Accelerator::Tcg));
        assert_eq!(verdict_in("kvm on 6.1, QEMU 7\n", "6.1, QEMU 7"), Some(Accelerator::Kvm));
        assert_eq!(verdict_in("tcg on 6.1, QEMU 7\n", "6.2, QEMU 7"), None);
        assert_eq!(verdict_in("", "6.2, QEMU 7"), None);
    }
}

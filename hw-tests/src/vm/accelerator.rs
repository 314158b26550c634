// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses how QEMU runs a guest: by the processor (KVM) if that works, else by translation (TCG). On some machines
//! `/dev/kvm` opens, but no guest boots, so only a booted guest is proof; a file in the cache folder records that KVM
//! failed with this host kernel and QEMU. Called by [`super::open`]. Setup grade. Tests: below; the device tests.

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

/// Returns the rate of this machine's time stamp counter in kHz, or `None` if the kernel does not show it. A translated
/// guest reads the same counter. Its kernel would measure the rate against its timers; on a busy machine the result can
/// be 20 times too low, and the guest's clock then runs 20 times too fast.
pub(crate) fn counter_rate() -> Option<u64> {
    let is_scaled = Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists();
    fs::read_to_string("/proc/cpuinfo").ok().filter(|_| !is_scaled).and_then(|text| constant_rate(&text))
}

/// Returns the rate in `/proc/cpuinfo` in kHz, or `None` if it need not be the counter's. Where the kernel can read the
/// processor's present rate it shows that; elsewhere, as in a virtual machine, the counter's (`arch_freq_get_on_cpu`).
fn constant_rate(cpuinfo: &str) -> Option<u64> {
    let value = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        line.and_then(|line| line.split(':').nth(1))
    };
    let flags = value("flags")?;
    let has = |flag| flags.split_whitespace().any(|word| word == flag);
    if !has("constant_tsc") || has("aperfmperf") {
        return None;
    }
    value("cpu MHz")?.trim().replace('.', "").parse().ok().filter(|rate| *rate > 0)
}

/// Returns the versions on which KVM's success depends: the host's kernel, and QEMU.
fn machine() -> String {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let version = Command::new(QEMU).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned();
    format!("{kernel}, {version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\ncpu MHz\t\t: 2596.140\nflags\t\t: fpu tsc constant_tsc sse\n";

    #[test]
    fn the_counters_rate_is_the_processors_where_that_does_not_change() {
        assert_eq!(constant_rate(CPUINFO), Some(2_596_140));
        assert_eq!(constant_rate(&CPUINFO.replace(" sse", " aperfmperf")), None);
        assert_eq!(constant_rate(&CPUINFO.replace("constant_tsc", "")), None);
        assert_eq!(constant_rate("processor\t: 0\n"), None);
    }
}

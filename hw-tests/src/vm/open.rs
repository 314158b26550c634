// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a wish for nodes to booted ones: what must be installed, how much memory there is, and which accelerator works
//! here.
//!
//! Called by [`crate::fabric`]. Setup grade; some seconds, the first time also the download of a kernel. Tests: the
//! device tests of this package.

use std::path::Path;

use anyhow::bail;

use super::{SYSTEM_PATH, accelerator, boot, image, kernel};
use crate::options::{Options, cache};

/// Boots as many nodes as `options` say, with `agent` in each.
///
/// # Errors
/// A program is missing, there is no kernel to be had, or no guest comes up.
pub(crate) fn open(options: &Options, agent: &Path) -> anyhow::Result<boot::Machines> {
    for (program, package) in [
        (accelerator::QEMU, "qemu-system-x86"),
        (image::BUSYBOX, "busybox-static"),
        ("ip", "iproute2"),
        ("depmod", "kmod"),
    ] {
        if !is_there(program) {
            bail!("soft-RoCE needs the program {program}; install it: apt-get install {package}");
        }
    }
    let cache = cache();
    let kernel = kernel::obtain(&cache)?;
    let memory = options.memory.min(memory_of_machine() * 3 / 4 / options.nodes as u64);
    let candidates = accelerator::candidates(&cache)?;
    let mut failure = None;
    for accelerator in candidates {
        let nodes = options.nodes;
        let plan = boot::Plan { kernel: &kernel, agent, nodes, cpus: options.cpus, memory, accelerator };
        match boot::boot(&plan) {
            Ok(machines) => {
                if failure.is_some() || accelerator == accelerator::Accelerator::Kvm {
                    accelerator::remember(&cache, accelerator)?;
                }
                return Ok(machines);
            }
            Err(error) => {
                if accelerator == accelerator::Accelerator::Kvm {
                    eprintln!("soft-RoCE: no guest comes up with KVM on this machine; translating instead");
                }
                failure = Some(error);
            }
        }
    }
    Err(failure.unwrap_or_else(|| anyhow::anyhow!("there is no way to run a virtual machine")))
}

fn is_there(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(SYSTEM_PATH.split(':')).any(|folder| Path::new(folder).join(program).exists())
}

/// This machine's memory in MiB.
fn memory_of_machine() -> u64 {
    let information = rustix::system::sysinfo();
    (information.totalram as u64).saturating_mul(u64::from(information.mem_unit)) >> 20
}

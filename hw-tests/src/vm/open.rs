// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots nodes: checks what is installed, divides the memory, and finds an accelerator that works. Called by
//! [`crate::fabric`]. Setup grade; takes seconds, and the first time also the download of a kernel. Tests: the device
//! tests of this package.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::{SYSTEM_PATH, accelerator, boot, image, kernel};
use crate::Options;

/// Boots the nodes of `options`, with `agent` in each.
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
    let memory = memory_of_node(options.nodes);
    let mut failure = None;
    for &accelerator in accelerator::candidates(&cache) {
        let nodes = options.nodes;
        let plan = boot::Plan { kernel: &kernel, agent, nodes, memory, accelerator };
        match boot::boot(&plan) {
            Ok(machines) => {
                if failure.is_some() {
                    accelerator::remember_in_vain(&cache)?;
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

/// Returns the memory of each node in MiB: enough for two ranks with a message over 2 GiB in one node, but for all
/// nodes at most three quarters of this machine's. A guest takes only the pages that it touches.
fn memory_of_node(nodes: usize) -> u64 {
    let information = rustix::system::sysinfo();
    let machine = (information.totalram as u64).saturating_mul(u64::from(information.mem_unit)) >> 20;
    (if nodes == 1 { 10 << 10 } else { 4 << 10 }).min(machine * 3 / 4 / nodes as u64)
}

/// Returns the folder for the kernel and for records about this machine: `soft-roce` in the target folder.
fn cache() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty()).map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let cache = target.join("soft-roce");
    // An absolute path, for the guest and for tools that run in other folders.
    let made = fs::create_dir_all(&cache).and_then(|()| cache.canonicalize());
    made.unwrap_or(cache)
}

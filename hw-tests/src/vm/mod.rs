// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual machines with a soft-RoCE device: [`kernel`] gets a kernel, [`image`] makes the first file system,
//! [`accelerator`] chooses how QEMU runs it, [`boot`] starts and ends it, `open` does all of that in order, `init.sh`
//! is what the guest does first.
//!
//! Called by [`crate::fabric`]. Setup grade.
//!
//! The guest's root is the machine's own root folder, read-only over 9p, under an overlay in memory: it sees the host's
//! programs and build outputs at their paths, and writes to none of them. It has no network but that between the nodes.
//! In another root (`cargo xtask test --mpi 5` in one of Debian 13) that root is the guest's, with QEMU, kernel and
//! programs of that release.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

mod accelerator;
pub(crate) mod boot;
mod image;
mod kernel;
pub(crate) mod open;

/// Where the system's programs are, `sbin` included, whatever the caller's `PATH` is.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The network interface of every node.
pub(crate) const INTERFACE: &str = "eth0";
/// The RDMA device of every node.
pub(crate) const DEVICE: &str = "rxe0";

/// The host name of a node.
pub(crate) fn host_name(node: usize) -> String {
    format!("node{node}")
}

/// The environment that jobs start from in a guest of so many nodes.
#[must_use]
pub fn guest_environment(nodes: usize) -> Vec<(String, String)> {
    // One node has nowhere to start processes; with two, the agents stand in for rsh.
    let shell = if nodes > 1 { "/run/fabric/rsh" } else { "/bin/false" };
    let variables = [
        ("PATH", SYSTEM_PATH),
        ("HOME", "/root"),
        ("USER", "root"),
        ("LANG", "C.UTF-8"),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_plm_rsh_agent", shell),
        // The runtime of Open MPI 5 takes it by its own name alone.
        ("PRTE_MCA_plm_ssh_agent", shell),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// Waits, in a guest, until the device can be used: its port is active and has the GID of the node's address.
///
/// Returns what is missing where that takes too long.
#[must_use]
pub fn guest_trouble(node: usize) -> Option<String> {
    let port = format!("/sys/class/infiniband/{DEVICE}/ports/1");
    let suffix = format!(":c0a8:4d{:02x}", node + 1);
    let until = Instant::now() + Duration::from_mins(2);
    loop {
        let state = fs::read_to_string(format!("{port}/state")).unwrap_or_default();
        let gids = fs::read_dir(format!("{port}/gids")).into_iter().flatten().flatten();
        let addressed =
            gids.filter_map(|gid| fs::read_to_string(gid.path()).ok()).any(|gid| gid.trim().ends_with(&suffix));
        if state.contains("ACTIVE") && addressed {
            return None;
        }
        if Instant::now() >= until {
            return Some(format!(
                "the port of {DEVICE} is {:?}, its GID that ends with {suffix}: {addressed}",
                state.trim()
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

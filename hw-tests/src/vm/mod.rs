// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual machines with a soft-RoCE device: `open` prepares and boots them, `init.sh` is what a guest runs first.
//! Called by [`crate::fabric`]. Setup grade.
//!
//! A guest's root is the host's root folder, read-only over 9p, under an overlay in memory, so it has the host's
//! programs and build outputs at their paths. Its only network is that between the nodes. With another root
//! (`cargo xtask test --mpi 5`: Debian 13) QEMU, kernel and programs are of that root.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

mod accelerator;
pub(crate) mod boot;
mod image;
mod kernel;
pub(crate) mod open;

/// Search path of the system's programs, with `sbin`.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
pub(crate) const INTERFACE: &str = "eth0";
pub(crate) const DEVICE: &str = "rxe0";

pub(crate) fn host_name(node: usize) -> String {
    format!("node{node}")
}

/// Returns the environment of the jobs in a guest of a fabric with this number of nodes.
pub fn guest_environment(nodes: usize) -> Vec<(String, String)> {
    // With one node there is none to start processes on; with two, the agents stand in for rsh.
    let shell = if nodes > 1 { "/run/fabric/rsh" } else { "/bin/false" };
    let variables = [
        ("PATH", SYSTEM_PATH),
        ("HOME", "/root"),
        ("USER", "root"),
        ("LANG", "C.UTF-8"),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_plm_rsh_agent", shell),
        // Open MPI 5 reads its runtime's parameter only by this name.
        ("PRTE_MCA_plm_ssh_agent", shell),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// Waits, in a guest, until the port is active and has the GID of the node's address. Returns the state of both if that
/// takes two minutes.
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

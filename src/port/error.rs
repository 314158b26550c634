// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a port could not be opened, and what to do about it. Setup grade; any thread.

use std::io;

/// A port could not be opened, or got no memory.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {doing} failed: {error}{}", advice(error))]
pub struct PortError {
    /// Device and port.
    pub place: String,
    /// What was tried, with its numbers.
    pub doing: String,
    /// What the adapter or the kernel said.
    pub error: io::Error,
}

/// What to do about an error of the kernel.
fn advice(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::OutOfMemory => {
            ". Most often the limit of locked memory is too low: see `ulimit -l`, raise it (limits.conf: `* - memlock \
             unlimited`, and for a batch system its daemon's limit), or use less: lower btl_ibex_receive_queue_depth or \
             btl_ibex_max_send_size"
        }
        io::ErrorKind::PermissionDenied => {
            ". This user may not use the device: see the permissions of /dev/infiniband/uverbs*; the rdma-core package's \
             udev rules open them to all users"
        }
        io::ErrorKind::InvalidInput => {
            ". The adapter cannot do what was asked: see its limits with `ibv_devinfo -v` and lower the parameter"
        }
        io::ErrorKind::NotFound => ". The device has gone since it was listed",
        _ => "",
    };
    match locked_memory_limit().filter(|_| error.kind() == io::ErrorKind::OutOfMemory) {
        Some(limit) => format!("{advice}. The limit of this process is {limit}"),
        None => advice.to_owned(),
    }
}

/// How much memory this process may lock, as the kernel says it; `None` where it does not.
fn locked_memory_limit() -> Option<String> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let soft = line.split_whitespace().next()?;
    Some(soft.parse::<u64>().map_or_else(|_| soft.to_owned(), |bytes| format!("{} KiB", bytes / 1024)))
}

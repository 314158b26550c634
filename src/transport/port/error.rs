// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error of opening a port, with advice. Setup grade; any thread.

use crate::limits;
use std::io;

/// A port could not be opened, or got no memory.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {doing} failed: {error}{}", advice(error, *bytes))]
pub struct PortError {
    /// Device and port.
    pub place: String,
    /// The operation that failed, with its numbers.
    pub doing: String,
    /// Memory that the operation takes; `None` if only the adapter's driver knows.
    pub bytes: Option<u64>,
    /// The error of the adapter or the kernel.
    pub error: io::Error,
}

fn advice(error: &io::Error, bytes: Option<u64>) -> String {
    if let Some(advice) = limits::advice(error, bytes) {
        return format!(". {advice}");
    }
    let advice = match error.kind() {
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
    advice.to_owned()
}

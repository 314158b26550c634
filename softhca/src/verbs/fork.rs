// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_fork_init` and its relatives. A real adapter reads pinned pages, which copy-on-write after a fork would take
//! from it; newer kernels copy them at the fork. The emulated adapter reads the process' memory by address, so it needs
//! nothing. The adapters' behaviour `fork` gives the kernel's answer: of several adapters the worst. A child must open
//! the device anew, as with a real one. Each call of `ibv_fork_init` is a line of the file `fork-init` in the fabric's
//! folder. Grade: setup. Threads: any.

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::behaviour::Fork;
use crate::engine::Errno;
use crate::sys::{IBV_FORK_DISABLED, IBV_FORK_ENABLED, IBV_FORK_UNNEEDED, ibv_fork_status};
use crate::verbs::device::list;
use crate::verbs::error;

/// `ibv_fork_init` was called in time.
static ASKED_FOR: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// Either makes the library behave as if `ibv_fork_init` had been called in time.
const VARIABLES: [&str; 2] = ["RDMAV_FORK_SAFE", "IBV_FORK_SAFE"];

pub(crate) fn memory_was_registered() {
    REGISTERED.store(true, Ordering::Release);
}

pub(crate) extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    let adapters = list::library().map_or(&[][..], |library| &library.spec.devices);
    let says = |fork: Fork| adapters.iter().any(|adapter| adapter.behaviour.fork == fork);
    let is_asked_for =
        ASKED_FOR.load(Ordering::Acquire) || VARIABLES.iter().any(|name| std::env::var_os(name).is_some());
    match (says(Fork::Disabled), says(Fork::Enabled)) {
        (true, _) if !is_asked_for => IBV_FORK_DISABLED,
        (false, false) => IBV_FORK_UNNEEDED,
        _ => IBV_FORK_ENABLED,
    }
}

/// `ibv_fork_init(3)`: EINVAL once memory is registered, if the kernel does not copy and the program asks too late.
pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    let is_late = ibv_is_fork_initialized() == IBV_FORK_DISABLED && REGISTERED.load(Ordering::Acquire);
    if !is_late {
        ASKED_FOR.store(true, Ordering::Release);
    }
    if let Ok(library) = list::library() {
        let file = OpenOptions::new().create(true).append(true).open(library.spec.folder.join("fork-init"));
        let line = format!("{} {}\n", std::process::id(), if is_late { "EINVAL" } else { "0" });
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            eprintln!("softhca: cannot note a call of ibv_fork_init in {}: {error}", library.spec.folder.display());
        }
    }
    error::number(if is_late { Err(Errno(libc::EINVAL)) } else { Ok(()) })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe verbs: objects that own their verbs resources, and posts and completions without overhead. Devices and handles
//! are here, registered memory in `memory/`, queues in `queues/`. Called by the engine, plugin-abi and the command. The
//! rules that every unsafe block of this module refers to, for memory:
//!
//! - **R1** No Rust reference is ever made to bytes an adapter may touch, but one to an atomic for the length of an
//!   access. The adapter's accesses count as atomic.
//! - **R2** Such bytes belong to the device from the post of a work request until its completion. Where only the
//!   engine's records name them, ffi accesses them atomically (`memory/slots.rs`): a wrong record garbles a message.
//! - **R3** A registration outlives every work request that names it. Memory of ibex's own belongs to its protection
//!   domain, which every queue holds; for other memory it is the promise with which a [`LocalSpan`] is made.
//!
//! And for handles:
//!
//! - **R4** A handle (`handle.rs`) owns an object that a successful verb made. It destroys the object once, and holds
//!   an `Arc` to everything that the object was made from (context, protection domain, queues). Any thread may use a
//!   handle (the verbs manual pages: all verbs are thread safe). Failures of destroy verbs in `Drop` are ignored.

mod context;
mod extended;
mod handle;
mod memory;
mod queues;
mod status;
mod sys;

pub use context::{AsyncEvent, Clock, Context, DeviceAttributes, GidEntry, PortAttributes, devices};
pub use memory::arena::Arena;
pub use memory::domain::{InlineSpan, LocalSpan, MemoryRegion, ProtectionDomain, RemoteSpan};
pub use memory::fork::{ForkStatus, fork_init, fork_status};
pub use memory::pages::{HugePages, PageKind};
pub use memory::registration::Access;
pub use queues::channel::CompletionChannel;
pub use queues::completion::WorkCompletion;
pub use queues::cq::CompletionQueue;
pub use queues::qp::{Path, PostError, QueuePair, QueuePairLimits, Reception, Transition, Work, Wr};
pub use queues::srq::SharedReceiveQueue;
pub use queues::ud::{AddressHandle, UdQueuePair};
pub use queues::{CompletesWork, TakesWork};
pub use status::{Status, event_name};

use std::io;

/// Link layers (`IBV_LINK_LAYER_*`).
pub mod link_layer {
    /// Not specified: InfiniBand on old kernels.
    pub const UNSPECIFIED: u8 = 0;
    /// InfiniBand: LID addressing.
    pub const INFINIBAND: u8 = 1;
    /// Ethernet: RoCE, addressed by GID.
    pub const ETHERNET: u8 = 2;
}

/// Kinds of asynchronous events (`IBV_EVENT_*`, `ibv_get_async_event(3)`).
pub mod async_event {
    use super::sys;

    /// A completion queue is broken.
    pub const CQ_ERR: u32 = sys::IBV_EVENT_CQ_ERR;
    /// The device can no longer be used.
    pub const DEVICE_FATAL: u32 = sys::IBV_EVENT_DEVICE_FATAL;
    /// The subnet manager asks for a new registration: it may have changed the port's LID or the subnet's prefix.
    pub const CLIENT_REREGISTER: u32 = sys::IBV_EVENT_CLIENT_REREGISTER;
    /// A port's GID table has changed.
    pub const GID_CHANGE: u32 = sys::IBV_EVENT_GID_CHANGE;
    /// A port has another LID.
    pub const LID_CHANGE: u32 = sys::IBV_EVENT_LID_CHANGE;
    /// A port has its link again.
    pub const PORT_ACTIVE: u32 = sys::IBV_EVENT_PORT_ACTIVE;
    /// A port has lost its link.
    pub const PORT_ERR: u32 = sys::IBV_EVENT_PORT_ERR;
    /// A shared receive queue is broken.
    pub const SRQ_ERR: u32 = sys::IBV_EVENT_SRQ_ERR;
}

/// Accesses with which an adapter's atomics are atomic (`enum ibv_atomic_cap`); other values: the processors', too.
pub mod atomic_cap {
    use super::sys;

    /// The adapter has no atomics.
    pub const NONE: u32 = sys::IBV_ATOMIC_NONE;
    /// Atomics of other queue pairs of the adapter.
    pub const ADAPTER: u32 = sys::IBV_ATOMIC_HCA;
}

/// The error of an operation that the library, the provider or the adapter lacks.
fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

/// Converts the return value of a verb, 0 or an errno value, to a result.
fn errno(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        // Some providers return -1 and set errno; most return the errno itself.
        -1 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}

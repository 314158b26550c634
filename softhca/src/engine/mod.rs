// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated adapter, in plain Rust. `verbs` translates C calls to calls of it.
//!
//! A *fabric* is a folder with one shared file that every process maps whole: queues, queue pairs, completion queues
//! and small payloads lie in it. The thread that makes a work request possible executes it; no helper thread is on the
//! data path. All calls take `&self` and may come from several threads. `destroy` ends an object, and answers EBUSY
//! while others use it; an object that is dropped without it stays to the end of the process.
//!
//! From the bottom up: `codes` and `spec` (plain values), `memory` (shared by all processes), `fabric` (this process'
//! part in it), queues in shared memory (`cq::ring`, `recv::queue`, `send::queue`, `qp::shared`, `mr::table`), `wire`
//! (executes a request on them), `send` (requests posted, retried and completed), `service` (timers, deferred work,
//! dead processes), and the objects as a program holds them (`adapter`, and `object` in each folder). A message passes
//! `send::post` -> `send::execution` -> `wire::transmit` or `wire::datagram` -> `wire::receive` (takes a request of
//! `recv::queue`) or `wire::rdma` (accesses memory) -> `cq::ring` -> `cq::poll`.

pub(crate) mod adapter;
mod clock;
pub mod codes;
mod copy;
pub(crate) mod cq;
pub(crate) mod fabric;
pub mod faults;
mod guarded;
pub(crate) mod memory;
pub(crate) mod mr;
pub(crate) mod qp;
pub(crate) mod recv;
pub(crate) mod send;
mod service;
pub(crate) mod spec;
pub(crate) mod wire;

pub use adapter::{Ah, AsyncEvent, Channel, Hca, Pd};
pub use cq::object::Cq;
pub use fabric::{Fabric, FabricSpec};
pub use faults::Change;
pub(crate) use memory::layout::{MAX_DEVICES, MAX_GROUPS, MAX_MEMBERS, MAX_MRS, MAX_PORTS, MAX_QPS, MAX_RULES};
pub use mr::object::Mr;
pub use mr::window::Mw;
pub use qp::capabilities::QpInit;
pub use qp::object::Qp;
pub use recv::srq::Srq;
pub use recv::xrc::{Xrcd, XrcdOpen};
pub use send::post::SendWr;
pub use spec::{
    AhAttr, ClockSpec, DeviceSpec, Gid, PortSpec, QpAttr, QpCap, RecvWr, Sge, TIMESTAMP_RAW, TIMESTAMP_WALL, Wc,
};

pub(crate) use adapter::{Use, Users};
pub(crate) use copy::{Memory, Pieces};
pub(crate) use cq::{Completion, CqShared, failed_recv};
pub(crate) use fabric::pipes::{ABOUT_CQ, ABOUT_DEVICE, ABOUT_PORT, ABOUT_QP, ABOUT_SRQ, BELL, Mailbox, Record};
pub(crate) use fabric::sysfs::Count;
pub(crate) use fabric::timers::Deferred;
pub(crate) use faults::{FaultAction, FaultRule};
pub(crate) use memory::{Held, Process, Region, Shared, SharedLock, W32, W64};
pub(crate) use qp::{QpShared, fail_later, place};
pub(crate) use recv::RecvQueue;
pub(crate) use service::run_deferred;
pub(crate) use wire::{Message, Outcome};

/// An errno, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", std::io::Error::from_raw_os_error(*.0))]
pub struct Errno(pub i32);

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Result of the engine's calls.
pub type Result<T> = std::result::Result<T, Errno>;

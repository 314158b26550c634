// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated adapter, in plain Rust: what `verbs` translates C calls to.
//!
//! A *fabric* is a folder with one shared file that every process maps whole: queues, queue pairs, completion queues
//! and small payloads live in it. Whoever makes a work request possible executes it, in his own thread: there is no
//! thread on the data path. All calls take `&self` and may come from several threads. Objects are destroyed by
//! `destroy`, which answers EBUSY while others use them; dropping one without it leaves it to the end of the process.
//!
//! From a message's point of view: `sendq` (posted) -> `wire` or `datagram` (delivered) -> `landing` (a request of
//! `recv` taken) or `rdma` (done to memory) -> `cq` (completed, polled). Underneath: `region`, `alloc`, `lock`, `words`
//! (shared memory), `process`, `service` (life).

mod ah;
mod alloc;
mod channel;
mod clock;
pub mod codes;
mod copy;
pub(crate) mod counters;
mod cq;
mod datagram;
mod fabric;
pub mod faults;
mod hca;
mod idle;
mod inbox;
mod landing;
mod link;
mod lock;
mod locked;
mod mr;
mod multicast;
mod pd;
mod process;
mod qp;
mod rdma;
mod recv;
mod region;
mod sendq;
mod service;
mod spec;
mod srq;
mod states;
mod strike;
mod tables;
mod trace;
mod wire;
mod words;
mod xrc;

pub use ah::Ah;
pub use channel::Channel;
pub use cq::Cq;
pub use fabric::Fabric;
pub use hca::Hca;
pub use mr::{Mr, Mw};
pub use pd::Pd;
pub use qp::Qp;
pub(crate) use region::{MAX_DEVICES, MAX_GROUPS, MAX_MEMBERS, MAX_MRS, MAX_PORTS, MAX_QPS, MAX_RULES};
pub use spec::*;
pub use srq::Srq;
pub use tables::Change;
pub use xrc::{Xrcd, XrcdOpen};

/// An errno, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", std::io::Error::from_raw_os_error(*.0))]
pub struct Errno(pub i32);

/// What the engine's calls give.
pub type Result<T> = std::result::Result<T, Errno>;

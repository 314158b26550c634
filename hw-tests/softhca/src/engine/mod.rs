// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated adapter, in plain Rust: what `verbs` translates C calls to.
//!
//! A *fabric* is a folder with one shared file that every process maps whole: queues, queue pairs, completion queues and
//! small payloads live in it. Whoever makes a work request possible executes it, in his own thread: there is no thread on
//! the data path. All calls take `&self` and may come from several threads. Objects are destroyed by `destroy`, which
//! answers EBUSY while others use them; dropping one without it leaves it to the end of the process.

pub mod codes;
pub mod faults;
mod spec;

use std::{os::fd::RawFd, sync::Arc};

pub use spec::*;

/// An errno, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", std::io::Error::from_raw_os_error(*.0))]
pub struct Errno(pub i32);

/// What the engine's calls give.
pub type Result<T> = std::result::Result<T, Errno>;

/// A joined fabric.
pub struct Fabric {}

impl Fabric {
    /// Joins the fabric in `spec.folder`, making its shared state if this process is the first. Once per process: keep it.
    /// # Errors
    /// The folder cannot be used; EINVAL if the adapters are not 1 to 4; ENOSPC if all process slots are taken.
    pub fn join(_spec: FabricSpec) -> Result<Arc<Fabric>> {
        todo!()
    }
    /// The adapters.
    pub fn devices(&self) -> &[DeviceSpec] {
        todo!()
    }
    /// The process that joined; after a fork the child must join anew.
    pub fn pid(&self) -> i32 {
        todo!()
    }
    /// Opens adapter `device`.
    /// # Errors
    /// ENODEV, EMFILE.
    pub fn open(self: &Arc<Self>, _device: usize) -> Result<Arc<Hca>> {
        todo!()
    }
}

/// An opened adapter.
pub struct Hca {}

impl Hca {
    /// What it can do.
    pub fn limits(&self) -> &'static Limits {
        todo!()
    }
    /// Its description.
    pub fn spec(&self) -> &DeviceSpec {
        todo!()
    }
    /// `codes::port_state` now. EINVAL for a port it does not have.
    /// # Errors
    /// EINVAL.
    pub fn port_state(&self, _port: u8) -> Result<u32> {
        todo!()
    }
    /// Readable when an async event waits.
    pub fn async_fd(&self) -> RawFd {
        todo!()
    }
    /// The next async event; waits unless the descriptor is `O_NONBLOCK`.
    /// # Errors
    /// EAGAIN, EINTR.
    pub fn read_async_event(&self) -> Result<AsyncEvent> {
        todo!()
    }
    /// A protection domain.
    /// # Errors
    /// ENOMEM.
    pub fn alloc_pd(self: &Arc<Self>) -> Result<Pd> {
        todo!()
    }
    /// A completion channel.
    /// # Errors
    /// EMFILE.
    pub fn create_channel(self: &Arc<Self>) -> Result<Channel> {
        todo!()
    }
    /// A completion queue for at least `cqe` completions; `cookie` comes back from `Channel::read_event` and in events.
    /// `flags`: `CQ_TIMESTAMP_*`.
    /// # Errors
    /// EINVAL, ENOMEM.
    pub fn create_cq(
        self: &Arc<Self>,
        _cqe: u32,
        _channel: Option<&Channel>,
        _cookie: u64,
        _flags: u32,
    ) -> Result<Cq> {
        todo!()
    }
    /// A shared receive queue.
    /// # Errors
    /// EINVAL, ENOMEM.
    pub fn create_srq(
        self: &Arc<Self>,
        _pd: &Pd,
        _max_wr: u32,
        _max_sge: u32,
        _limit: u32,
        _cookie: u64,
    ) -> Result<Srq> {
        todo!()
    }
    /// A queue pair, in RESET.
    /// # Errors
    /// EINVAL, ENOMEM.
    pub fn create_qp(self: &Arc<Self>, _init: &QpInit) -> Result<Qp> {
        todo!()
    }
    /// An address handle.
    /// # Errors
    /// EINVAL.
    pub fn create_ah(self: &Arc<Self>, _pd: &Pd, _attr: &AhAttr) -> Result<Ah> {
        todo!()
    }
    /// Raw ticks of the core clock now, masked.
    pub fn read_clock(&self) -> u64 {
        todo!()
    }
}

/// A protection domain.
pub struct Pd {}

impl Pd {
    /// Registers memory; `access` is `codes::access`.
    /// # Errors
    /// EINVAL (remote write or atomic without local write), EFAULT (not mapped), ENOMEM, EOPNOTSUPP.
    pub fn reg_mr(&self, _addr: u64, _len: u64, _iova: u64, _access: u32) -> Result<Mr> {
        todo!()
    }
    /// # Errors
    /// EBUSY.
    pub fn destroy(&self) -> Result<()> {
        todo!()
    }
}

/// A memory region.
pub struct Mr {}

impl Mr {
    /// Local key.
    pub fn lkey(&self) -> u32 {
        todo!()
    }
    /// Remote key.
    pub fn rkey(&self) -> u32 {
        todo!()
    }
    /// Ends the registration.
    /// # Errors
    /// None today.
    pub fn destroy(&self) -> Result<()> {
        todo!()
    }
}

/// A completion channel.
pub struct Channel {}

impl Channel {
    /// Readable when an event waits; may be made `O_NONBLOCK`.
    pub fn fd(&self) -> RawFd {
        todo!()
    }
    /// The cookie of the queue whose event comes next; waits unless the descriptor is `O_NONBLOCK`.
    /// # Errors
    /// EAGAIN, EINTR.
    pub fn read_event(&self) -> Result<u64> {
        todo!()
    }
    /// # Errors
    /// EBUSY while a queue uses it.
    pub fn destroy(&self) -> Result<()> {
        todo!()
    }
}

/// A completion queue.
pub struct Cq {}

impl Cq {
    /// Takes up to `out.len()` completions; the number of those written.
    /// # Errors
    /// EIO after an overrun.
    pub fn poll(&self, _out: &mut [Wc]) -> Result<usize> {
        todo!()
    }
    /// Asks for one event on the channel at the next completion (or the next solicited one).
    /// # Errors
    /// None today.
    pub fn arm(&self, _solicited_only: bool) -> Result<()> {
        todo!()
    }
    /// # Errors
    /// EINVAL if more completions wait than fit, ENOMEM.
    pub fn resize(&self, _cqe: u32) -> Result<()> {
        todo!()
    }
    /// How many completions fit.
    pub fn cqe(&self) -> u32 {
        todo!()
    }
    /// # Errors
    /// EBUSY while a queue pair uses it.
    pub fn destroy(&self) -> Result<()> {
        todo!()
    }
}

/// A shared receive queue.
pub struct Srq {}

impl Srq {
    /// # Errors
    /// The index of the first request not posted, and ENOMEM (full) or EINVAL (too many pieces).
    pub fn post_recv(&self, _wrs: &[RecvWr]) -> std::result::Result<(), (usize, Errno)> {
        todo!()
    }
    /// Arms (non-zero) or disarms the limit event.
    /// # Errors
    /// EINVAL if greater than the size.
    pub fn set_limit(&self, _limit: u32) -> Result<()> {
        todo!()
    }
    /// (`max_wr`, `max_sge`, limit): the sizes granted, and the limit, 0 once its event was given.
    pub fn query(&self) -> (u32, u32, u32) {
        todo!()
    }
    /// Its number, for `ibv_get_srq_num`.
    pub fn number(&self) -> u32 {
        todo!()
    }
    /// # Errors
    /// EBUSY while a queue pair uses it.
    pub fn destroy(&self) -> Result<()> {
        todo!()
    }
}

/// An address handle.
pub struct Ah {}

impl Ah {
    /// As created.
    pub fn attr(&self) -> &AhAttr {
        todo!()
    }
    /// # Errors
    /// None today.
    pub fn destroy(&self) -> Result<()> {
        todo!()
    }
}

/// A queue pair.
pub struct Qp {}

impl Qp {
    /// 24 bits.
    pub fn number(&self) -> u32 {
        todo!()
    }
    /// The sizes granted.
    pub fn cap(&self) -> QpCap {
        todo!()
    }
    /// `codes::qp_state` now.
    pub fn state(&self) -> u32 {
        todo!()
    }
    /// Changes attributes; `mask` is `codes::attr_mask`.
    /// # Errors
    /// EINVAL: a transition or mask that the state machine does not have, or a value out of range.
    pub fn modify(&self, _attr: &QpAttr, _mask: u32) -> Result<()> {
        todo!()
    }
    /// All attributes.
    pub fn query(&self) -> QpAttr {
        todo!()
    }
    /// Posts one send work request.
    /// # Errors
    /// ENOMEM (queue full), EINVAL (state, opcode, pieces, inline size).
    pub fn post_send(&self, _wr: &SendWr) -> Result<()> {
        todo!()
    }
    /// Posts one receive work request.
    /// # Errors
    /// ENOMEM (queue full), EINVAL (RESET, shared receive queue, too many pieces).
    pub fn post_recv(&self, _wr: &RecvWr) -> Result<()> {
        todo!()
    }
    /// Joins (or leaves) a multicast group.
    /// # Errors
    /// EINVAL (not UD, not a multicast address).
    pub fn attach_mcast(&self, _gid: &[u8; 16], _lid: u16) -> Result<()> {
        todo!()
    }
    /// # Errors
    /// EINVAL.
    pub fn detach_mcast(&self, _gid: &[u8; 16], _lid: u16) -> Result<()> {
        todo!()
    }
    /// # Errors
    /// EBUSY while attached to a multicast group.
    pub fn destroy(&self) -> Result<()> {
        todo!()
    }
}

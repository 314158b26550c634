// SPDX-License-Identifier: MIT OR Apache-2.0
//! An opened adapter: its limits, its ports, its async events; it makes the other objects.
//!
//! Called by: the C side. Grade: setup. Thread rule: any thread.

use std::{os::fd::RawFd, sync::Arc};

use super::{
    Ah, AhAttr, AsyncEvent, Channel, Cq, DeviceSpec, Errno, ObjectRef, Pd, PortSpec, Qp, QpInit, Result, Srq, Xrcd,
    XrcdOpen,
    channel::{ABOUT_CQ, ABOUT_DEVICE, ABOUT_PORT, ABOUT_QP, ABOUT_SRQ, Mailbox},
    clock,
    fabric::Fabric,
    qp,
};
use crate::{behaviour::Behaviour, limits::Limits};

/// Largest payload that travels in a completion, or waits with a stored request, in shared memory.
pub(crate) const MAX_CARRIED: u32 = 256;

/// An opened adapter.
pub struct Hca {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) device: usize,
    pub(crate) events: Mailbox,
}

impl Hca {
    pub(crate) fn open(fabric: &Arc<Fabric>, device: usize) -> Result<Arc<Hca>> {
        if device >= fabric.devices().len() {
            return Err(Errno(libc::ENODEV));
        }
        let events = Mailbox::new(fabric)?;
        events.expect(ABOUT_DEVICE, 0);
        for port in 1..=fabric.devices()[device].ports.len() {
            events.expect(ABOUT_PORT, port as u32);
        }
        fabric.opened(device, events.id);
        super::counters::map_all(fabric);
        Ok(Arc::new(Hca { fabric: Arc::clone(fabric), device, events }))
    }

    /// What it can do.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.spec().limits
    }

    /// How it does it.
    #[must_use]
    pub fn behaviour(&self) -> &Behaviour {
        &self.spec().behaviour
    }

    /// Its description.
    #[must_use]
    pub fn spec(&self) -> &DeviceSpec {
        &self.fabric.devices()[self.device]
    }

    /// A port as it is now.
    /// # Errors
    /// EINVAL for a port it does not have.
    pub fn port(&self, port: u32) -> Result<&PortSpec> {
        if port == 0 || port as usize > self.spec().ports.len() {
            return Err(Errno(libc::EINVAL));
        }
        Ok(self.fabric.port(self.device, port))
    }

    /// `codes::port_state` now.
    /// # Errors
    /// EINVAL for a port it does not have.
    pub fn port_state(&self, port: u8) -> Result<u32> {
        if port == 0 || usize::from(port) > self.spec().ports.len() {
            return Err(Errno(libc::EINVAL));
        }
        Ok(self.fabric.region().header().port_state[self.device][usize::from(port) - 1].seen())
    }

    /// Readable when an async event waits.
    #[must_use]
    pub fn async_fd(&self) -> RawFd {
        self.events.fd()
    }

    /// The next async event; waits unless the descriptor is `O_NONBLOCK`.
    /// # Errors
    /// EAGAIN, EINTR.
    pub fn read_async_event(&self) -> Result<AsyncEvent> {
        let record = self.events.read()?;
        if record.about == ABOUT_QP && self.behaviour().flush_needs_async_read {
            qp::event_was_read(&self.fabric, record.id);
            self.fabric.settle();
        }
        let object = match record.about {
            ABOUT_CQ => ObjectRef::Cq(record.cookie),
            ABOUT_QP => ObjectRef::Qp(record.cookie),
            ABOUT_SRQ => ObjectRef::Srq(record.cookie),
            ABOUT_PORT => ObjectRef::Port(record.id as u8),
            _ => ObjectRef::Device,
        };
        Ok(AsyncEvent { kind: record.event, object })
    }

    /// A protection domain.
    /// # Errors
    /// None today.
    pub fn alloc_pd(self: &Arc<Self>) -> Result<Pd> {
        Ok(Pd::new(self))
    }

    /// A completion channel.
    /// # Errors
    /// EMFILE.
    pub fn create_channel(self: &Arc<Self>) -> Result<Channel> {
        Channel::new(&self.fabric)
    }

    /// A completion queue for at least `cqe` completions; `cookie` comes back from `Channel::read_event` and in events.
    /// `flags`: `CQ_TIMESTAMP_*`.
    /// # Errors
    /// EINVAL, ENOMEM.
    pub fn create_cq(self: &Arc<Self>, cqe: u32, channel: Option<&Channel>, cookie: u64, flags: u32) -> Result<Cq> {
        if cqe == 0 || cqe > self.limits().max_cqe as u32 {
            return Err(Errno(libc::EINVAL));
        }
        Cq::new(self, cqe, channel, cookie, flags)
    }

    /// A shared receive queue.
    /// # Errors
    /// EINVAL, ENOMEM.
    pub fn create_srq(self: &Arc<Self>, pd: &Pd, max_wr: u32, max_sge: u32, limit: u32, cookie: u64) -> Result<Srq> {
        self.may_share_receives(max_wr, max_sge)?;
        if limit > max_wr {
            return Err(Errno(libc::EINVAL));
        }
        Srq::new(self, pd, max_wr, max_sge, limit, cookie, None)
    }

    /// Whether there can be a shared receive queue of this size.
    fn may_share_receives(&self, max_wr: u32, max_sge: u32) -> Result<()> {
        let (limits, ways) = (self.limits(), self.behaviour());
        if !ways.srq {
            return Err(Errno(ways.srq_errno.number()));
        }
        let fits = max_wr != 0 && max_wr <= limits.max_srq_wr as u32 && max_sge <= limits.max_srq_sge as u32;
        if fits { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    /// An XRC domain.
    /// # Errors
    /// EAGAIN (nobody has it open, and it is not to be made), EINVAL (it is open, and must not be), ENOMEM.
    pub fn open_xrcd(self: &Arc<Self>, how: XrcdOpen) -> Result<Xrcd> {
        Xrcd::open(self, how)
    }

    /// A shared receive queue that XRC connections of `domain` reach; its receives complete to `cq`.
    /// # Errors
    /// EINVAL, ENOMEM.
    pub fn create_xrc_srq(
        self: &Arc<Self>,
        pd: &Pd,
        domain: &Xrcd,
        cq: &Cq,
        max_wr: u32,
        max_sge: u32,
        cookie: u64,
    ) -> Result<Srq> {
        self.may_share_receives(max_wr, max_sge)?;
        Srq::new(self, pd, max_wr, max_sge, 0, cookie, Some((domain, cq)))
    }

    /// The answering end of an XRC connection (`XRC_RECV`), in RESET. It has no queues of its own.
    /// # Errors
    /// ENOMEM.
    pub fn create_xrc_recv(self: &Arc<Self>, domain: &Xrcd, cookie: u64) -> Result<Qp> {
        Qp::new_xrc_recv(self, domain, cookie)
    }

    /// A queue pair, in RESET.
    /// # Errors
    /// EINVAL, ENOMEM; no number (0) where the adapter leaves `errno` alone.
    pub fn create_qp(self: &Arc<Self>, init: &QpInit) -> Result<Qp> {
        Qp::new(self, init)
    }

    /// An address handle.
    /// # Errors
    /// EINVAL: no such port or GID index; on Ethernet an address without GRH.
    pub fn create_ah(self: &Arc<Self>, pd: &Pd, attr: &AhAttr) -> Result<Ah> {
        Ah::new(self, pd, attr)
    }

    /// Raw ticks of the core clock now, masked.
    #[must_use]
    pub fn read_clock(&self) -> u64 {
        clock::ticks(&self.spec().clock, clock::now())
    }
}

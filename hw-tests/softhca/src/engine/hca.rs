// SPDX-License-Identifier: MIT OR Apache-2.0
//! An opened adapter: its limits, its ports, its async events; it makes the other objects.
//!
//! Called by: the C side. Grade: setup. Thread rule: any thread.

use std::{os::fd::RawFd, sync::Arc};

use super::{
    Ah, AhAttr, AsyncEvent, Channel, Cq, DeviceSpec, Errno, Limits, ObjectRef, Pd, Qp, QpInit, Result, Srq, Xrcd,
    XrcdOpen,
    channel::{ABOUT_CQ, ABOUT_DEVICE, ABOUT_PORT, ABOUT_QP, ABOUT_SRQ, Mailbox},
    clock,
    codes::device_cap,
    fabric::Fabric,
    region::{MAX_GROUPS, MAX_MEMBERS, MAX_MRS, MAX_QPS},
};

/// Largest payload that a send request itself may hold, and that travels in shared memory.
pub(crate) const MAX_INLINE: u32 = 256;
/// Pieces of memory per request.
pub(crate) const MAX_SGE: usize = 16;
const MAX_WR: u32 = 1 << 15;
const MAX_CQE: u32 = 1 << 18;
/// 2^30: a copy between processes may move a little less than 2^31 bytes.
pub(crate) const MAX_MESSAGE: u32 = 1 << 30;

/// What of `ibv_device_cap_flags` is emulated.
const DEVICE_CAP_FLAGS: u32 = device_cap::PORT_ACTIVE_EVENT
    | device_cap::SYS_IMAGE_GUID
    | device_cap::RC_RNR_NAK_GEN
    | device_cap::SRQ_RESIZE
    | device_cap::XRC
    | device_cap::MEM_WINDOW
    | device_cap::MEM_WINDOW_TYPE_2B;

static LIMITS: Limits = Limits {
    max_mr_size: 1 << 47,
    page_size_cap: 0xffff_f000,
    max_qp: MAX_QPS as i32 - 64,
    max_qp_wr: MAX_WR as i32,
    device_cap_flags: DEVICE_CAP_FLAGS,
    max_sge: MAX_SGE as i32,
    max_sge_rd: MAX_SGE as i32,
    max_cq: 1 << 16,
    max_cqe: MAX_CQE as i32,
    max_mr: MAX_MRS as i32 - 1,
    max_mw: MAX_MRS as i32 - 1,
    max_pd: 1 << 16,
    max_qp_rd_atom: 16,
    max_res_rd_atom: 1 << 20,
    max_qp_init_rd_atom: 16,
    max_mcast_grp: MAX_GROUPS as i32,
    max_mcast_qp_attach: MAX_MEMBERS as i32,
    max_total_mcast_qp_attach: (MAX_GROUPS * MAX_MEMBERS) as i32,
    max_ah: i32::MAX,
    max_srq: 1 << 16,
    max_srq_wr: MAX_WR as i32,
    max_srq_sge: MAX_SGE as i32,
    max_pkeys: 128,
    local_ca_ack_delay: 15,
    max_inline: MAX_INLINE,
    max_msg_sz: MAX_MESSAGE,
};

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
    pub fn limits(&self) -> &'static Limits {
        &LIMITS
    }

    /// Its description.
    #[must_use]
    pub fn spec(&self) -> &DeviceSpec {
        &self.fabric.devices()[self.device]
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
        if cqe == 0 || cqe > MAX_CQE {
            return Err(Errno(libc::EINVAL));
        }
        Cq::new(self, cqe, channel, cookie, flags)
    }

    /// A shared receive queue.
    /// # Errors
    /// EINVAL, ENOMEM.
    pub fn create_srq(self: &Arc<Self>, pd: &Pd, max_wr: u32, max_sge: u32, limit: u32, cookie: u64) -> Result<Srq> {
        if max_wr == 0 || max_wr > MAX_WR || max_sge as usize > MAX_SGE || limit > max_wr {
            return Err(Errno(libc::EINVAL));
        }
        Srq::new(self, pd, max_wr, max_sge, limit, cookie, None)
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
        if max_wr == 0 || max_wr > MAX_WR || max_sge as usize > MAX_SGE {
            return Err(Errno(libc::EINVAL));
        }
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
    /// EINVAL, ENOMEM.
    pub fn create_qp(self: &Arc<Self>, init: &QpInit) -> Result<Qp> {
        let cap = &init.cap;
        let fits = cap.max_send_wr <= MAX_WR
            && cap.max_recv_wr <= MAX_WR
            && cap.max_send_sge as usize <= MAX_SGE
            && cap.max_recv_sge as usize <= MAX_SGE
            && cap.max_inline_data <= MAX_INLINE;
        if !fits {
            return Err(Errno(libc::EINVAL));
        }
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable-connected queue pairs: creation and state transitions (`ibv_create_qp(3)`, `ibv_modify_qp(3)`; InfiniBand
//! specification 10.3.1). `qp/post.rs` posts to them. Grade: setup. One thread at a time (`&mut`). Tests: `hw-tests`.

use super::cq::CqHandle;
use super::srq::SrqHandle;
use crate::verbs::handle::Handle;
use crate::verbs::{Access, CompletionQueue, ProtectionDomain, SharedReceiveQueue, TakesWork, errno, sys, unsupported};
use std::io;
use std::sync::Arc;
use sys::ibv_qp_attr_mask as Mask;

mod post;

pub use post::{PostError, Work, Wr};

type PostSend = unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> i32;

/// Capacities of a new queue pair.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairLimits {
    /// Send work requests outstanding.
    pub sends: u32,
    /// Spans of a send work request.
    pub spans: u32,
    /// Bytes that a work request may carry inline; halved until the adapter accepts.
    pub inline: u32,
}

/// The path to a peer's queue pair, for the move to ready-to-receive.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// The peer's queue pair.
    pub qp_num: u32,
    /// The packet sequence number with which the peer starts.
    pub psn: u32,
    /// MTU code that both sides use.
    pub mtu: u32,
    /// The peer's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The peer's GID, where packets carry a global route header (always on Ethernet).
    pub gid: Option<[u8; 16]>,
    /// This port's GID index, used with `gid`.
    pub gid_index: u8,
    /// This port, from 1.
    pub port: u8,
    /// InfiniBand service level.
    pub service_level: u8,
    /// Traffic class of the global route header.
    pub traffic_class: u8,
}

/// Limits of this side as the responder, for the move to ready-to-receive.
#[derive(Debug, Clone, Copy)]
pub struct Reception {
    /// Time for which senders wait if this side has no receive posted, as a code of the RNR NAK timer.
    pub rnr_timer: u8,
    /// Reads and atomics that this side answers at a time.
    pub max_dest_rd_atomic: u8,
}

/// Timers and counts of the move to ready-to-send.
#[derive(Debug, Clone, Copy)]
pub struct Transition {
    /// Acknowledge time-out code: 4.096 µs · 2ⁿ; 0 waits for ever.
    pub ack_timeout: u8,
    /// Tries on a missing acknowledgement, 0 to 7.
    pub retry_count: u8,
    /// Tries on a receiver that is not ready; 7 means for ever.
    pub rnr_retry: u8,
    /// Reads and atomics that this side may have outstanding.
    pub max_rd_atomic: u8,
    /// The packet sequence number with which this side starts.
    pub psn: u32,
}

/// A reliable-connected queue pair that receives through a shared receive queue.
#[derive(Debug)]
pub struct QueuePair {
    handle: Handle<sys::ibv_qp, Keep>,
    post: PostSend,
    max_inline: u32,
}

#[derive(Debug)]
struct Keep {
    _domain: Arc<ProtectionDomain>,
    _cq: Arc<CqHandle>,
    _srq: Arc<SrqHandle>,
}

impl QueuePair {
    /// Makes a queue pair in the reset state.
    ///
    /// # Errors
    /// The errno of `ibv_create_qp(3)`, such as `ENOMEM`; `EINVAL` if the provider set none.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        limits: QueuePairLimits,
    ) -> io::Result<Self> {
        let mut inline = limits.inline;
        loop {
            match Self::create(domain, cq, srq, QueuePairLimits { inline, ..limits }) {
                Err(error) if inline > 0 && error.raw_os_error() == Some(libc::EINVAL) => inline /= 2,
                outcome => return outcome,
            }
        }
    }

    fn create(
        domain: &Arc<ProtectionDomain>,
        cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        limits: QueuePairLimits,
    ) -> io::Result<Self> {
        let QueuePairLimits { sends: max_send_wr, spans: max_send_sge, inline: max_inline_data } = limits;
        let cap = sys::ibv_qp_cap { max_send_wr, max_send_sge, max_inline_data, ..Default::default() };
        let (send_cq, recv_cq, qp_type) = (cq.handle().raw(), cq.handle().raw(), sys::ibv_qp_type::IBV_QPT_RC);
        let shared = srq.handle().raw();
        let mut init = sys::ibv_qp_init_attr { send_cq, recv_cq, srq: shared, cap, qp_type, ..Default::default() };
        // SAFETY: the thread's own errno.
        unsafe { *libc::__errno_location() = 0 };
        let keep = Keep { _domain: Arc::clone(domain), _cq: Arc::clone(cq.handle()), _srq: Arc::clone(srq.handle()) };
        // SAFETY: R4: domain and queues are live, and `keep` keeps them alive; `init` is valid for the call.
        let handle = unsafe { Handle::new(sys::ibv_create_qp(domain.raw(), &raw mut init), keep) }.map_err(refusal)?;
        let post = domain.context().operations().post_send.ok_or_else(unsupported)?;
        Ok(Self { handle, post, max_inline: init.cap.max_inline_data })
    }
}

impl<K> Handle<sys::ibv_qp, K> {
    #[inline]
    pub(super) fn number(&self) -> u32 {
        // SAFETY: R4, the queue pair is live; the field is set when it is created.
        unsafe { (*self.raw()).qp_num }
    }

    pub(super) fn modify(&mut self, attr: &mut sys::ibv_qp_attr, mask: Mask) -> io::Result<()> {
        // SAFETY: R4, and `attr` is valid for the call; the kernel checks the transition.
        errno(unsafe { sys::ibv_modify_qp(self.raw(), attr, mask.0 as i32) })
    }

    /// Moves to a state that takes no attributes.
    pub(super) fn enter(&mut self, state: u32) -> io::Result<()> {
        let mut attr = sys::ibv_qp_attr { qp_state: state, ..sys::ibv_qp_attr::default() };
        self.modify(&mut attr, Mask::IBV_QP_STATE)
    }
}

impl TakesWork for QueuePair {
    #[inline]
    fn number(&self) -> u32 {
        self.handle.number()
    }

    fn max_inline(&self) -> u32 {
        self.max_inline
    }

    #[inline(always)]
    fn post(&mut self, wr: Wr, work: Work<'_>) -> Result<(), PostError> {
        self.post_work(wr, work)
    }

    fn initialise(&mut self, port: u8, pkey_index: u16, access: Access) -> io::Result<()> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_INIT,
            port_num: port,
            pkey_index,
            qp_access_flags: access.bits(),
            ..sys::ibv_qp_attr::default()
        };
        self.handle.modify(
            &mut attr,
            Mask::IBV_QP_STATE | Mask::IBV_QP_PORT | Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_ACCESS_FLAGS,
        )
    }

    fn reset(&mut self) -> io::Result<()> {
        self.handle.enter(sys::ibv_qp_state::IBV_QPS_RESET)
    }

    fn ready_to_receive(&mut self, path: &Path, to: &Reception) -> io::Result<()> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_RTR,
            path_mtu: path.mtu,
            dest_qp_num: path.qp_num,
            rq_psn: path.psn,
            max_dest_rd_atomic: to.max_dest_rd_atomic,
            min_rnr_timer: to.rnr_timer,
            ah_attr: address_vector(path),
            ..sys::ibv_qp_attr::default()
        };
        self.handle.modify(
            &mut attr,
            Mask::IBV_QP_STATE
                | Mask::IBV_QP_AV
                | Mask::IBV_QP_PATH_MTU
                | Mask::IBV_QP_DEST_QPN
                | Mask::IBV_QP_RQ_PSN
                | Mask::IBV_QP_MAX_DEST_RD_ATOMIC
                | Mask::IBV_QP_MIN_RNR_TIMER,
        )
    }

    fn ready_to_send(&mut self, to: &Transition) -> io::Result<()> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_RTS,
            sq_psn: to.psn,
            timeout: to.ack_timeout,
            retry_cnt: to.retry_count,
            rnr_retry: to.rnr_retry,
            max_rd_atomic: to.max_rd_atomic,
            ..sys::ibv_qp_attr::default()
        };
        self.handle.modify(
            &mut attr,
            Mask::IBV_QP_STATE
                | Mask::IBV_QP_SQ_PSN
                | Mask::IBV_QP_TIMEOUT
                | Mask::IBV_QP_RETRY_CNT
                | Mask::IBV_QP_RNR_RETRY
                | Mask::IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    fn fail(&mut self) -> io::Result<()> {
        self.handle.enter(sys::ibv_qp_state::IBV_QPS_ERR)
    }
}

/// Some providers (`bnxt_re`) set no errno if a queue pair exceeds a limit of the adapter.
fn refusal(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(0) { io::Error::from_raw_os_error(libc::EINVAL) } else { error }
}

pub(super) fn address_vector(path: &Path) -> sys::ibv_ah_attr {
    let (dlid, sl, port_num) = (path.lid, path.service_level, path.port);
    let mut vector = sys::ibv_ah_attr { dlid, sl, port_num, ..Default::default() };
    if let Some(gid) = path.gid {
        vector.is_global = 1;
        vector.grh.dgid.raw = gid;
        vector.grh.sgid_index = path.gid_index;
        vector.grh.hop_limit = 64;
        vector.grh.traffic_class = path.traffic_class;
    }
    vector
}

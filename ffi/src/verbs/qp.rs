// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable-connected queue pairs: made, moved through their states, and posted to.
//!
//! Posts are hot: a work request on the stack, one indirect call into the provider, nothing else by ibex. State changes
//! are setup grade. One thread at a time (`&mut`). Immediate data is given in host order and travels in network order.
//! Sources: `ibv_post_send(3)`, `ibv_modify_qp(3)`; IBTA volume 1, 10.3 (states). Tests: device tests in `hw-tests`.

use super::{Access, CompletionQueue, LocalSpan, ProtectionDomain, RemoteSpan, SharedReceiveQueue, cq, errno, srq};
use ibverbs_sys as sys;
use std::io;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use sys::ibv_qp_attr_mask as Mask;
use sys::ibv_send_flags as Flags;

type PostSend = unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> i32;

/// What a queue pair is asked to hold.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairLimits {
    /// Send work requests outstanding.
    pub sends: u32,
    /// Bytes a work request may carry inline. Where the adapter cannot, it is halved until it can.
    pub inline: u32,
}

/// The way to a peer's queue pair, for the move to ready-to-receive.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// The peer's queue pair.
    pub qp_num: u32,
    /// The packet sequence number the peer starts with.
    pub psn: u32,
    /// MTU code both sides use.
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

/// Timers and counts of the move to ready-to-send.
#[derive(Debug, Clone, Copy)]
pub struct Transition {
    /// Acknowledge time-out code: 4.096 µs · 2ⁿ; 0 waits for ever.
    pub ack_timeout: u8,
    /// Tries on a missing acknowledgement, 0 to 7.
    pub retry_count: u8,
    /// Tries on a receiver that is not ready; 7 means for ever.
    pub rnr_retry: u8,
    /// Time this side asks senders to wait when it is not ready, as a code of IBTA table 46.
    pub rnr_timer: u8,
    /// Reads and atomics this side may have outstanding.
    pub max_rd_atomic: u8,
    /// Reads and atomics this side answers at a time.
    pub max_dest_rd_atomic: u8,
    /// The packet sequence number this side starts with.
    pub psn: u32,
}

/// A post that did not happen: the errno of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostError(pub i32);

impl PostError {
    /// Whether the send queue was full, so that the same post may work after a completion.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.0 == libc::ENOMEM || self.0 == libc::EAGAIN
    }
}

/// How a work request is posted.
#[derive(Debug, Clone, Copy)]
pub struct Wr {
    /// Comes back in its completion.
    pub id: u64,
    /// Whether it completes into the queue when it succeeds. One that fails always does.
    pub signalled: bool,
}

impl Wr {
    fn flags(self) -> u32 {
        if self.signalled { Flags::IBV_SEND_SIGNALED.0 } else { 0 }
    }
}

/// A reliable-connected queue pair that receives through a shared receive queue.
#[derive(Debug)]
pub struct QueuePair {
    raw: NonNull<sys::ibv_qp>,
    post: PostSend,
    max_inline: u32,
    _keep: Keep,
}

/// What must outlive the queue pair.
#[derive(Debug)]
struct Keep {
    _domain: Arc<ProtectionDomain>,
    _cq: Arc<cq::Handle>,
    _srq: Arc<srq::Handle>,
}

// SAFETY: R4, libibverbs objects may be used and destroyed by any thread.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Makes a queue pair in the reset state.
    ///
    /// # Errors
    /// The errno of `ibv_create_qp(3)`: `ENOMEM` where the adapter has no more, or locked memory is short.
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
        let mut init = sys::ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: cq.handle().raw(),
            recv_cq: cq.handle().raw(),
            srq: srq.handle().raw(),
            cap: sys::ibv_qp_cap {
                max_send_wr: limits.sends,
                max_recv_wr: 0,
                max_send_sge: 2,
                max_recv_sge: 0,
                max_inline_data: limits.inline,
            },
            qp_type: sys::ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queues are live (R4) and kept so by `_keep`; `init` is valid for the call.
        let raw = NonNull::new(unsafe { sys::ibv_create_qp(domain.raw(), &raw mut init) });
        let raw = raw.ok_or_else(io::Error::last_os_error)?;
        let keep = Keep { _domain: Arc::clone(domain), _cq: Arc::clone(cq.handle()), _srq: Arc::clone(srq.handle()) };
        // SAFETY: the context is open; its operations are set once, when it is opened.
        let post = unsafe { (*domain.context().raw()).ops.post_send };
        let Some(post) = post else {
            // SAFETY: created above, used by nobody, destroyed once.
            unsafe { sys::ibv_destroy_qp(raw.as_ptr()) };
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        };
        Ok(Self { raw, post, max_inline: init.cap.max_inline_data, _keep: keep })
    }

    /// The queue pair number, 24 bits.
    #[must_use]
    #[inline]
    pub fn number(&self) -> u32 {
        // SAFETY: R4, the queue pair is live; the field is set when it is created.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// Bytes a work request may carry inline.
    #[must_use]
    pub fn max_inline(&self) -> u32 {
        self.max_inline
    }

    fn modify(&mut self, attr: &mut sys::ibv_qp_attr, mask: Mask) -> io::Result<()> {
        // SAFETY: R4, and `attr` is valid for the call; the kernel checks the transition.
        errno(unsafe { sys::ibv_modify_qp(self.raw.as_ptr(), attr, mask.0 as i32) })
    }

    /// Reset to initialised, on `port`; peers get `access`.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    pub fn initialise(&mut self, port: u8, pkey_index: u16, access: Access) -> io::Result<()> {
        let mut attr = blank();
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = port;
        attr.pkey_index = pkey_index;
        attr.qp_access_flags = access.bits();
        self.modify(
            &mut attr,
            Mask::IBV_QP_STATE | Mask::IBV_QP_PORT | Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_ACCESS_FLAGS,
        )
    }

    /// Any state to reset: what is posted is forgotten without a completion. The number stays.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    pub fn reset(&mut self) -> io::Result<()> {
        let mut attr = blank();
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_RESET;
        self.modify(&mut attr, Mask::IBV_QP_STATE)
    }

    /// Initialised to ready-to-receive to ready-to-send, towards `path`.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`: `EINVAL` for a path the adapter has no route to, `ETIMEDOUT` when the peer's
    /// link address could not be resolved (RoCE).
    pub fn connect(&mut self, path: &Path, to: &Transition) -> io::Result<()> {
        let mut attr = blank();
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = path.mtu;
        attr.dest_qp_num = path.qp_num;
        attr.rq_psn = path.psn;
        attr.max_dest_rd_atomic = to.max_dest_rd_atomic;
        attr.min_rnr_timer = to.rnr_timer;
        attr.ah_attr = address_vector(path);
        self.modify(
            &mut attr,
            Mask::IBV_QP_STATE
                | Mask::IBV_QP_AV
                | Mask::IBV_QP_PATH_MTU
                | Mask::IBV_QP_DEST_QPN
                | Mask::IBV_QP_RQ_PSN
                | Mask::IBV_QP_MAX_DEST_RD_ATOMIC
                | Mask::IBV_QP_MIN_RNR_TIMER,
        )?;
        let mut attr = blank();
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        attr.sq_psn = to.psn;
        attr.timeout = to.ack_timeout;
        attr.retry_cnt = to.retry_count;
        attr.rnr_retry = to.rnr_retry;
        attr.max_rd_atomic = to.max_rd_atomic;
        self.modify(
            &mut attr,
            Mask::IBV_QP_STATE
                | Mask::IBV_QP_SQ_PSN
                | Mask::IBV_QP_TIMEOUT
                | Mask::IBV_QP_RETRY_CNT
                | Mask::IBV_QP_RNR_RETRY
                | Mask::IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// Any state to error: what is posted completes as flushed.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    pub fn fail(&mut self) -> io::Result<()> {
        let mut attr = blank();
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
        self.modify(&mut attr, Mask::IBV_QP_STATE)
    }

    /// Posts a message gathered from one or two spans, with immediate data. Hot.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn send(&mut self, wr: Wr, spans: &[LocalSpan], immediate: u32) -> Result<(), PostError> {
        let mut raw = request(wr, sys::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, spans);
        raw.__bindgen_anon_1.imm_data = immediate.to_be();
        self.post(&mut raw)
    }

    /// Posts a message of `header` and `payload`, copied into the work request, with immediate data: both may be reused
    /// at once. Together at most [`Self::max_inline`] bytes. Hot.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn send_inline(&mut self, wr: Wr, header: &[u8], payload: &[u8], immediate: u32) -> Result<(), PostError> {
        let spans = [inline_span(header), inline_span(payload)];
        let used = if payload.is_empty() { &spans[..1] } else { &spans[..] };
        let mut raw = request(wr, sys::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, used);
        raw.send_flags |= Flags::IBV_SEND_INLINE.0;
        raw.__bindgen_anon_1.imm_data = immediate.to_be();
        self.post(&mut raw)
    }

    /// Posts an RDMA write of `local` to `remote`. Hot.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn write(&mut self, wr: Wr, local: LocalSpan, remote: RemoteSpan) -> Result<(), PostError> {
        self.rdma(wr, sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE, &[local], remote, 0)
    }

    /// Posts an RDMA write of `bytes`, copied into the work request. At most [`Self::max_inline`] bytes. Hot.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn write_inline(&mut self, wr: Wr, bytes: &[u8], remote: RemoteSpan) -> Result<(), PostError> {
        let span = [inline_span(bytes)];
        self.rdma(wr, sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE, &span, remote, Flags::IBV_SEND_INLINE.0)
    }

    /// Posts an RDMA read of `remote` into `local`. Hot.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn read(&mut self, wr: Wr, local: LocalSpan, remote: RemoteSpan) -> Result<(), PostError> {
        self.rdma(wr, sys::ibv_wr_opcode::IBV_WR_RDMA_READ, &[local], remote, 0)
    }

    /// Posts an atomic addition of `operand` to the 64 bits at `remote`; their old value comes to `local` (8 bytes). Hot.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn fetch_add(&mut self, wr: Wr, local: LocalSpan, remote: RemoteSpan, operand: u64) -> Result<(), PostError> {
        self.atomic(wr, sys::ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, local, remote, (operand, 0))
    }

    /// Posts an atomic compare-and-swap of the 64 bits at `remote`: if they equal `compare` they become `swap`; their old
    /// value comes to `local` (8 bytes). Hot.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn compare_swap(
        &mut self,
        wr: Wr,
        local: LocalSpan,
        remote: RemoteSpan,
        (compare, swap): (u64, u64),
    ) -> Result<(), PostError> {
        self.atomic(wr, sys::ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP, local, remote, (compare, swap))
    }

    #[inline]
    fn rdma(&mut self, wr: Wr, opcode: u32, local: &[LocalSpan], to: RemoteSpan, flags: u32) -> Result<(), PostError> {
        let mut raw = request(wr, opcode, local);
        raw.send_flags |= flags;
        raw.wr.rdma = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: to.addr, rkey: to.rkey };
        self.post(&mut raw)
    }

    #[inline]
    fn atomic(
        &mut self,
        wr: Wr,
        opcode: u32,
        local: LocalSpan,
        to: RemoteSpan,
        (compare_add, swap): (u64, u64),
    ) -> Result<(), PostError> {
        let local = [local];
        let mut raw = request(wr, opcode, &local);
        raw.wr.atomic =
            sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr: to.addr, compare_add, swap, rkey: to.rkey };
        self.post(&mut raw)
    }

    #[inline]
    fn post(&mut self, request: &mut sys::ibv_send_wr) -> Result<(), PostError> {
        let mut bad = ptr::null_mut();
        // SAFETY: R4; the request and its gather list live through the call, which copies them. The memory it names is
        // registered and the device's from here on (R2, R3: the promise each `LocalSpan` was made with), or inline, which
        // the provider copies before it returns (`ibv_post_send(3)`, IBV_SEND_INLINE).
        match unsafe { (self.post)(self.raw.as_ptr(), request, &raw mut bad) } {
            0 => Ok(()),
            code => Err(refused(code)),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: R4: created once, destroyed once, before what `_keep` holds.
        unsafe { sys::ibv_destroy_qp(self.raw.as_ptr()) };
    }
}

#[cold]
fn refused(code: i32) -> PostError {
    // Some providers answer -1 and set errno.
    PostError(if code == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) } else { code.abs() })
}

#[inline]
fn request(wr: Wr, opcode: u32, spans: &[LocalSpan]) -> sys::ibv_send_wr {
    // SAFETY: every field of `ibv_send_wr` is an integer, a pointer or a union of those, for which zero is a value.
    let mut raw: sys::ibv_send_wr = unsafe { mem::zeroed() };
    raw.wr_id = wr.id;
    raw.sg_list = spans.as_ptr().cast_mut().cast();
    raw.num_sge = spans.len() as i32;
    raw.opcode = opcode;
    raw.send_flags = wr.flags();
    raw
}

/// Bytes that are copied by the post itself: they need no key, and are never the device's.
#[inline]
fn inline_span(bytes: &[u8]) -> LocalSpan {
    LocalSpan(sys::ibv_sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, lkey: 0 })
}

pub(super) fn blank() -> sys::ibv_qp_attr {
    // SAFETY: every field of `ibv_qp_attr` is an integer or a union of integers, for which zero is a value.
    unsafe { mem::zeroed() }
}

pub(super) fn address_vector(path: &Path) -> sys::ibv_ah_attr {
    // SAFETY: every field of `ibv_ah_attr` is an integer or a union of integers, for which zero is a value.
    let mut vector: sys::ibv_ah_attr = unsafe { mem::zeroed() };
    vector.dlid = path.lid;
    vector.sl = path.service_level;
    vector.port_num = path.port;
    if let Some(gid) = path.gid {
        vector.is_global = 1;
        vector.grh.dgid.raw = gid;
        vector.grh.sgid_index = path.gid_index;
        vector.grh.hop_limit = 64;
        vector.grh.traffic_class = path.traffic_class;
    }
    vector
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unreliable-datagram queue pairs: small packets to anyone whose address is known, used to set connections up.
//!
//! Called by `ibex::connect::ud`. Setup grade; one thread at a time (`&mut`). It owns its completion queue and the slots of
//! its datagrams, so that nothing here touches the data path. Sources: `ibv_create_ah(3)`, `ibv_post_send(3)`.
//! Tests: device tests in `hw-tests`.

use super::qp::{address_vector, blank};
use super::{Arena, CompletionQueue, Context, Path, ProtectionDomain, errno};
use ibverbs_sys as sys;
use std::io;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use sys::ibv_qp_attr_mask as Mask;

/// Bytes of the global route header in front of every received datagram.
const GRH: usize = 40;
/// Set in the identifiers of receives; clear in those of sends.
const RECEIVE: u64 = 1 << 63;

/// The provider's `post_send` and `post_recv`.
type Operations = (
    unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> i32,
    unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32,
);

/// A datagram that came in: its first bytes, as many as it had.
#[derive(Debug, Clone)]
pub struct Datagram(pub Vec<u8>);

/// The way to a peer's port (`ibv_create_ah(3)`).
#[derive(Debug)]
pub struct AddressHandle {
    raw: NonNull<sys::ibv_ah>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: R4, libibverbs objects may be used and destroyed by any thread.
unsafe impl Send for AddressHandle {}

impl AddressHandle {
    /// Resolves the way to `path` (its queue pair and packet sequence numbers are not used).
    ///
    /// # Errors
    /// The errno of the verb: `ETIMEDOUT` or `EHOSTUNREACH` when the peer's link address could not be resolved (RoCE).
    pub fn new(domain: &Arc<ProtectionDomain>, path: &Path) -> io::Result<Self> {
        let mut vector = address_vector(path);
        // SAFETY: the domain is live (R4) and `vector` valid for the call.
        let raw = NonNull::new(unsafe { sys::ibv_create_ah(domain.raw(), &raw mut vector) });
        Ok(Self { raw: raw.ok_or_else(io::Error::last_os_error)?, _domain: Arc::clone(domain) })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: R4: created once, destroyed once. A send that still uses it finds it gone; see `UdQueuePair::is_sending`.
        unsafe { sys::ibv_destroy_ah(self.raw.as_ptr()) };
    }
}

/// A UD queue pair with its own completion queue and slots.
#[derive(Debug)]
pub struct UdQueuePair {
    // In the order they must go: queue, completions, memory (R3).
    raw: NonNull<sys::ibv_qp>,
    ops: Operations,
    cq: CompletionQueue,
    receives: Arena,
    sends: Arena,
    free_sends: Vec<u64>,
    size: usize,
    qkey: u32,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: R4, libibverbs objects may be used and destroyed by any thread.
unsafe impl Send for UdQueuePair {}

impl UdQueuePair {
    /// Makes a queue pair on `port`, ready to send and receive datagrams of up to `size` bytes, with `depth` slots each way.
    ///
    /// # Errors
    /// The errno of the verb that failed; `EOPNOTSUPP` and `EINVAL` are those of adapters without UD.
    pub fn new(
        context: &Arc<Context>,
        domain: &Arc<ProtectionDomain>,
        (port, pkey_index): (u8, u16),
        (size, depth): (usize, u32),
        qkey: u32,
    ) -> io::Result<Self> {
        // SAFETY: the context is open; its operations are set once, when it is opened.
        let ops = unsafe { (*context.raw()).ops };
        let ops = ops.post_send.zip(ops.post_recv).ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        let cq = CompletionQueue::new(context, 2 * depth, 16)?;
        let receives = Arena::new(domain, GRH + size, depth as usize)?;
        let sends = Arena::new(domain, size, depth as usize)?;
        let mut init = sys::ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: cq.handle().raw(),
            recv_cq: cq.handle().raw(),
            srq: ptr::null_mut(),
            cap: sys::ibv_qp_cap {
                max_send_wr: depth,
                max_recv_wr: depth,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: sys::ibv_qp_type::IBV_QPT_UD,
            sq_sig_all: 1,
        };
        // SAFETY: domain and queue are live (R4) and kept so by the fields below; `init` is valid for the call.
        let raw = NonNull::new(unsafe { sys::ibv_create_qp(domain.raw(), &raw mut init) });
        let raw = raw.ok_or_else(io::Error::last_os_error)?;
        let free_sends = (0..u64::from(depth)).collect();
        let mut ud = Self { raw, ops, cq, receives, sends, free_sends, size, qkey, _domain: Arc::clone(domain) };
        ud.start(port, pkey_index)?;
        for slot in 0..u64::from(depth) {
            ud.post_receive(slot)?;
        }
        Ok(ud)
    }

    /// The queue pair number, 24 bits.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: R4, the queue pair is live; the field is set when it is created.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    fn start(&mut self, port: u8, pkey_index: u16) -> io::Result<()> {
        let mut attr = blank();
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = port;
        attr.pkey_index = pkey_index;
        attr.qkey = self.qkey;
        self.modify(&mut attr, Mask::IBV_QP_STATE | Mask::IBV_QP_PORT | Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_QKEY)?;
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        self.modify(&mut attr, Mask::IBV_QP_STATE)?;
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        attr.sq_psn = 0;
        self.modify(&mut attr, Mask::IBV_QP_STATE | Mask::IBV_QP_SQ_PSN)
    }

    fn modify(&mut self, attr: &mut sys::ibv_qp_attr, mask: Mask) -> io::Result<()> {
        // SAFETY: R4, and `attr` is valid for the call.
        errno(unsafe { sys::ibv_modify_qp(self.raw.as_ptr(), attr, mask.0 as i32) })
    }

    fn post_receive(&mut self, slot: u64) -> io::Result<()> {
        let Some(mut span) = self.receives.span(slot as usize) else { return Ok(()) };
        let sg_list = (&raw mut span).cast();
        let mut request = sys::ibv_recv_wr { wr_id: RECEIVE | slot, next: ptr::null_mut(), sg_list, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: R4; the request lives through the call, which copies it; the slot is the device's until its completion
        // is polled (R2) and its arena goes after the queue pair (R3).
        errno(unsafe { (self.ops.1)(self.raw.as_ptr(), &raw mut request, &raw mut bad) })
    }

    /// Whether a send may not have left yet. Until it has, some adapters look its address handle up (soft-RoCE, `irdma`, `bnxt_re`):
    /// where that was destroyed, the send fails and takes the queue pair with it.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.free_sends.len() < self.sends.count()
    }

    /// Sends `bytes` to queue pair `number` over `way`, which is to live until [`Self::is_sending`] says no more. A datagram may be
    /// lost.
    ///
    /// # Errors
    /// `ENOBUFS` when all send slots are in flight (take completions with [`Self::receive`], then try again), `EMSGSIZE`
    /// for more bytes than a datagram carries, else the errno of the post.
    pub fn send(&mut self, way: &AddressHandle, number: u32, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.size {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let Some(slot) = self.free_sends.pop() else {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        };
        let posted = self.post_send(slot, way, number, bytes);
        if posted.is_err() {
            self.free_sends.push(slot);
        }
        posted
    }

    fn post_send(&mut self, slot: u64, way: &AddressHandle, number: u32, bytes: &[u8]) -> io::Result<()> {
        let no_slot = || io::Error::from_raw_os_error(libc::ENOBUFS);
        let mut span = self.sends.write(slot as usize, bytes).ok_or_else(no_slot)?;
        // SAFETY: every field is an integer, a pointer or a union of those, for which zero is a value.
        let mut request: sys::ibv_send_wr = unsafe { mem::zeroed() };
        request.wr_id = slot;
        request.sg_list = (&raw mut span).cast();
        request.num_sge = 1;
        request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        request.send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        request.wr.ud = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
            ah: way.raw.as_ptr(),
            remote_qpn: number,
            remote_qkey: self.qkey,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: R4; the request lives through the call, which copies it; the slot is not reused before its completion
        // (R2) and its arena goes after the queue pair (R3).
        errno(unsafe { (self.ops.0)(self.raw.as_ptr(), &raw mut request, &raw mut bad) })
    }

    /// Takes what completed: gives each datagram that came in to `take` and posts its slot again. Never blocks. Returns how
    /// many came in. A poll that finds nothing reads one word of the completion queue.
    ///
    /// # Errors
    /// The completion queue is broken, or a slot could not be posted again.
    pub fn receive(&mut self, mut take: impl FnMut(Datagram)) -> io::Result<usize> {
        let completed: Vec<_> = self.cq.poll()?.iter().map(|c| (c.id(), c.succeeded(), c.len() as usize)).collect();
        let mut received = 0;
        for (id, succeeded, len) in completed {
            if id & RECEIVE == 0 {
                self.free_sends.push(id);
                continue;
            }
            let slot = id & !RECEIVE;
            let mut bytes = vec![0; len.saturating_sub(GRH).min(self.size)];
            if succeeded && self.receives.read(slot as usize, GRH, &mut bytes) {
                received += 1;
                take(Datagram(bytes));
            }
            self.post_receive(slot)?;
        }
        Ok(received)
    }
}

impl Drop for UdQueuePair {
    fn drop(&mut self) {
        // SAFETY: R4: created once, destroyed once; the fields go after this, so the slots outlive the queue (R3).
        unsafe { sys::ibv_destroy_qp(self.raw.as_ptr()) };
    }
}

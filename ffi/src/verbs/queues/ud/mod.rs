// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unreliable-datagram queue pairs: small packets to any known address, used to set connections up. Called by
//! `ibex::connect::ud`. Setup grade; one thread at a time (`&mut`). Each has its own completion queue and slots.
//! Sources: `ibv_create_ah(3)`, `ibv_post_send(3)`. Tests: device tests in `hw-tests`; `ud/sends.rs`.

use super::qp::address_vector;
use crate::verbs::handle::Handle;
use crate::verbs::{
    Access, Arena, CompletesWork as _, CompletionQueue, Context, HugePages, Path, ProtectionDomain, Status, errno, sys,
    unsupported,
};
use std::io;
use std::ptr;
use std::sync::Arc;
use sys::ibv_qp_attr_mask as Mask;

mod sends;

use sends::Sends;

/// Bytes of the global route header in front of every received datagram.
const GRH: usize = 40;
/// Set in the identifiers of receives; clear in those of sends.
const RECEIVE: u64 = 1 << 63;
/// Position, above the slot, and mask of the queue pair's life in an identifier.
const LIFE: (u32, u64) = (32, 0x7fff_ffff);

type Operations = (
    unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> i32,
    unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32,
);

/// The path to a peer's port (`ibv_create_ah(3)`). Some adapters (soft-RoCE, `irdma`, `bnxt_re`) look it up by number
/// when the datagram leaves, so the queue pair holds it until the send has completed ([`UdQueuePair::send`]).
#[derive(Debug)]
pub struct AddressHandle(Handle<sys::ibv_ah, Arc<ProtectionDomain>>);

impl AddressHandle {
    /// Resolves `path` (its queue pair and packet sequence numbers are not used).
    ///
    /// # Errors
    /// The errno of the verb: `ETIMEDOUT` or `EHOSTUNREACH` when the peer's link address could not be resolved (RoCE).
    pub fn new(domain: &Arc<ProtectionDomain>, path: &Path) -> io::Result<Arc<Self>> {
        let mut vector = address_vector(path);
        // SAFETY: the domain is live (R4) and `vector` valid for the call.
        let raw = unsafe { sys::ibv_create_ah(domain.raw(), &raw mut vector) };
        // SAFETY: R4: the verb has just made it from `domain`, which the handle keeps alive.
        unsafe { Handle::new(raw, Arc::clone(domain)) }.map(|handle| Arc::new(Self(handle)))
    }
}

/// A UD queue pair with its own completion queue and slots.
#[derive(Debug)]
pub struct UdQueuePair {
    /// The first field: dropped before the address handles that its sends name (R3), and before its completion queue.
    handle: Handle<sys::ibv_qp, Arc<ProtectionDomain>>,
    ops: Operations,
    cq: CompletionQueue,
    receives: Arena,
    outgoing: Arena,
    /// Slots of `outgoing` in flight, with their address handles.
    sends: Sends<AddressHandle>,
    size: usize,
    depth: u32,
    /// Port and partition key index.
    place: (u8, u16),
    qkey: u32,
    /// Number of restarts. `receive` ignores completions of an earlier life, which some adapters leave in the queue.
    life: u64,
}

impl UdQueuePair {
    /// Makes a queue pair on `port`, ready for datagrams of up to `size` bytes, with `depth` slots each way.
    ///
    /// # Errors
    /// The errno of the verb that failed; `EOPNOTSUPP` or `EINVAL` if the adapter has no UD.
    pub fn new(
        context: &Arc<Context>,
        domain: &Arc<ProtectionDomain>,
        place: (u8, u16),
        (size, depth): (usize, u32),
        qkey: u32,
    ) -> io::Result<Self> {
        let ops = context.operations();
        let ops = ops.post_send.zip(ops.post_recv).ok_or_else(unsupported)?;
        let cq = CompletionQueue::new(context, 2 * depth, 16, None)?;
        let (max_send_wr, max_recv_wr, max_send_sge, max_recv_sge) = (depth, depth, 1, 1);
        let cap = sys::ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data: 0 };
        let (send_cq, recv_cq, qp_type) = (cq.handle().raw(), cq.handle().raw(), sys::ibv_qp_type::IBV_QPT_UD);
        let mut init = sys::ibv_qp_init_attr { send_cq, recv_cq, cap, qp_type, sq_sig_all: 1, ..Default::default() };
        // SAFETY: R4: domain and completion queue are live, and the fields keep them so; `init` is valid for the call.
        let handle = unsafe { Handle::new(sys::ibv_create_qp(domain.raw(), &raw mut init), Arc::clone(domain)) }?;
        // Made after the queue pair: if that fails, no memory of arenas stays mapped for the life of the domain.
        let arena = |slot| Arena::with(domain, slot, depth as usize, Access::LOCAL_WRITE, HugePages::No);
        let (receives, outgoing, sends) = (arena(GRH + size)?, arena(size)?, Sends::new(depth));
        let mut ud = Self { handle, ops, cq, receives, outgoing, sends, size, depth, place, qkey, life: 0 };
        ud.start()?;
        Ok(ud)
    }

    /// Starts the queue pair again after an error. Its number stays; datagrams in flight are lost, in both directions.
    ///
    /// # Errors
    /// The errno of the verb; `EINVAL`: the adapter cannot start a queue pair again (`irdma`), which is useless then.
    pub fn restart(&mut self) -> io::Result<()> {
        // Fails if the queue pair is in that state already, or cannot enter it; it can be reset all the same.
        let _ = self.handle.enter(sys::ibv_qp_state::IBV_QPS_ERR);
        self.handle.enter(sys::ibv_qp_state::IBV_QPS_RESET)?;
        // Completions of the old life take room that the new one needs.
        while !self.cq.poll()?.is_empty() {}
        self.life = (self.life + 1) & LIFE.1;
        self.sends.end_all();
        self.start()
    }

    /// The queue pair number, 24 bits.
    pub fn number(&self) -> u32 {
        self.handle.number()
    }

    /// Moves from reset to ready-to-send, and posts all receives.
    fn start(&mut self) -> io::Result<()> {
        let (port, pkey_index) = self.place;
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_INIT,
            port_num: port,
            pkey_index,
            qkey: self.qkey,
            ..sys::ibv_qp_attr::default()
        };
        let what = Mask::IBV_QP_STATE | Mask::IBV_QP_PORT | Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_QKEY;
        self.handle.modify(&mut attr, what)?;
        self.handle.enter(sys::ibv_qp_state::IBV_QPS_RTR)?;
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        self.handle.modify(&mut attr, Mask::IBV_QP_STATE | Mask::IBV_QP_SQ_PSN)?;
        (0..u64::from(self.depth)).try_for_each(|slot| self.post_receive(slot))
    }

    fn id(&self, slot: u64) -> u64 {
        (self.life << LIFE.0) | slot
    }

    fn post_receive(&mut self, slot: u64) -> io::Result<()> {
        let Some(mut span) = self.receives.span(slot as usize) else { return Ok(()) };
        let sg_list = (&raw mut span).cast();
        let mut request =
            sys::ibv_recv_wr { wr_id: RECEIVE | self.id(slot), next: ptr::null_mut(), sg_list, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: R4; the call copies the request; the slot is the device's until its completion (R2, R3).
        errno(unsafe { (self.ops.1)(self.handle.raw(), &raw mut request, &raw mut bad) })
    }

    /// Sends `bytes` to queue pair `number` over `way`. A datagram may be lost.
    ///
    /// # Errors
    /// `ENOBUFS` when all send slots are in flight (take completions with [`Self::receive`], then try again),
    /// `EMSGSIZE` for more bytes than a datagram carries, else the errno of the post.
    pub fn send(&mut self, way: &Arc<AddressHandle>, number: u32, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.size {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let no_slot = || io::Error::from_raw_os_error(libc::ENOBUFS);
        let slot = self.sends.begin(way).ok_or_else(no_slot)?;
        let posted = self.post_send(slot, way, number, bytes);
        if posted.is_err() {
            self.sends.end(slot);
        }
        posted
    }

    fn post_send(&mut self, slot: u32, way: &AddressHandle, number: u32, bytes: &[u8]) -> io::Result<()> {
        let no_slot = || io::Error::from_raw_os_error(libc::ENOBUFS);
        let mut span = self.outgoing.write(slot as usize, bytes).ok_or_else(no_slot)?;
        let mut request = sys::ibv_send_wr {
            wr_id: self.id(u64::from(slot)),
            sg_list: (&raw mut span).cast(),
            num_sge: 1,
            opcode: sys::ibv_wr_opcode::IBV_WR_SEND,
            send_flags: sys::ibv_send_flags::IBV_SEND_SIGNALED.0,
            ..Default::default()
        };
        request.wr.ud = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
            ah: way.0.raw(),
            remote_qpn: number,
            remote_qkey: self.qkey,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: R4; the call copies the request; `sends` keeps slot and address handle until its completion (R2, R3).
        errno(unsafe { (self.ops.0)(self.handle.raw(), &raw mut request, &raw mut bad) })
    }

    /// Takes completions: gives the bytes of each datagram, as many as came and fit, to `take`, and posts its slot
    /// again. Never blocks. Returns the number of datagrams.
    ///
    /// # Errors
    /// A request failed ([`Self::restart`] the queue pair), a slot was not posted again, or the queue is broken.
    pub fn receive(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        let completed: Vec<_> = self.cq.poll()?.iter().map(|c| (c.id(), c.status().0, c.len() as usize)).collect();
        let (mut received, mut failed) = (0, None);
        for (id, status, len) in completed {
            if (id >> LIFE.0) & LIFE.1 != self.life {
                continue;
            }
            let (slot, is_receive) = (id as u32, id & RECEIVE != 0);
            if !is_receive {
                self.sends.end(slot);
            }
            if status != Status::SUCCESS {
                // The first failure is the cause; the others were flushed because of it.
                failed.get_or_insert((is_receive, status));
            } else if is_receive {
                let mut bytes = vec![0; len.saturating_sub(GRH).min(self.size)];
                if self.receives.read(slot as usize, GRH, &mut bytes) {
                    received += 1;
                    take(&bytes);
                }
                self.post_receive(u64::from(slot))?;
            }
        }
        match failed {
            None => Ok(received),
            Some((is_receive, status)) => {
                let what = if is_receive { "receive" } else { "send" };
                Err(io::Error::other(format!("the {what} of a datagram failed with status {status}")))
            }
        }
    }
}

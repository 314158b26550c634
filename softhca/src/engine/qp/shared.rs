// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs as they lie in the region. Called by: send and wire (both ends of a request), the rest of this folder.
//! Grade: hot: the structure's first two lines change on modify only, so both sides keep them cached. Thread rule, the
//! order of locks: `sq.lock` of one queue pair, then `resp.lock` of one, then a receive queue's, then a completion
//! queue's. `state` changes under `resp.lock`. `lock_sends` and `lock_answers` take these two, and finish changes that
//! a process has left half done because it died with the lock.

use crate::behaviour::Behaviour;
use crate::engine::codes::qp_state::{ERR, INIT, RESET};
use crate::engine::codes::{event, wc_status};
use crate::engine::memory::layout::{QP_BYTES, qp_at};
use crate::engine::qp::inbox::Inbox;
use crate::engine::recv::xrc;
use crate::engine::send::queue::SendQueue;
use crate::engine::{
    ABOUT_QP, Count, CqShared, Deferred, Fabric, Held, Record, RecvQueue, Shared, SharedLock, W32, W64, failed_recv,
};

/// Bits of a partition key: its number, and whether the holder may talk to all members or to full ones only.
const PARTITION: u32 = 0x7fff;
const FULL_MEMBER: u32 = 0x8000;

/// State of the answering side, written by threads that deliver to this queue pair.
#[repr(C, align(64))]
pub(crate) struct Responder {
    pub(crate) lock: SharedLock,
    /// Packet sequence number expected next.
    pub(crate) psn: W32,
    pub(crate) established: W32,
    /// The receive request in hand, taken and not completed (its name in a completion, plus one); 0 for none.
    pub(crate) in_hand: W32,
    /// For an `XRC_RECV`: number of the shared queue from which the request was taken.
    pub(crate) srqn: W32,
}

#[repr(C, align(64))]
pub(crate) struct QpShared {
    /// 0 while there is no queue pair.
    pub(crate) qpn: W32,
    pub(crate) kind: W32,
    pub(crate) state: W32,
    /// Token of the process; 0 while the place is free.
    pub(crate) owner: W32,
    pub(crate) device: W32,
    pub(crate) port: W32,
    /// 8 bits; counts resets. Completions of an earlier epoch are dropped when they are polled.
    pub(crate) epoch: W32,
    pub(crate) pd: W32,
    pub(crate) dest_qpn: W32,
    pub(crate) to_device: W32,
    /// 0: no port has the address.
    pub(crate) to_port: W32,
    pub(crate) access: W32,
    pub(crate) qkey: W32,
    /// Index of its partition key (16 bits), and the key itself above.
    partition: W32,
    /// The path MTU, as a power of two.
    pub(crate) mtu_bits: W32,
    pub(crate) signal_all: W32,

    pub(crate) send_cq: W64,
    pub(crate) recv_cq: W64,
    /// Offset of its shared receive queue; 0: its own queue.
    pub(crate) srq: W64,
    pub(super) cookie: W64,
    pub(super) context: W32,
    pub(crate) min_rnr_timer: W32,
    pub(crate) timeout: W32,
    pub(crate) retry_cnt: W32,
    pub(crate) rnr_retry: W32,
    pub(crate) max_rd_atomic: W32,
    pub(crate) max_dest_rd_atomic: W32,
    pub(super) generation: W32,

    pub(crate) sq: SendQueue,
    pub(crate) resp: Responder,
    pub(crate) rq: RecvQueue,
    pub(crate) inbox: Inbox,
    /// In a free place: index of the next free place, plus one.
    pub(super) next_free: W32,
    /// Domain of an `XRC_RECV`.
    pub(crate) xrcd: W32,
    /// Its owner asked for an event when the request that was in progress at SQD has ended.
    pub(crate) tells_drained: W32,
    /// It has failed; its requests are flushed when its owner has read the event about that.
    pub(crate) withheld: W32,
    /// Its path: the LID of the peer (0: none), its own GID's index plus one (0: none), and the port that they led to.
    pub(crate) dlid: W32,
    pub(crate) sgid: W32,
    pub(crate) routed_port: W32,
}

// SAFETY: words and such structures only, repr(C), zero is a free place.
unsafe impl Shared for QpShared {}

const _: () = assert!(size_of::<QpShared>() as u64 <= QP_BYTES);

pub(crate) fn place(fabric: &Fabric, number: u32) -> &'static QpShared {
    fabric.region().at(qp_at(number & 0xffff))
}

impl QpShared {
    pub(crate) fn index(&self) -> u32 {
        self.qpn.get() & 0xffff
    }

    /// Returns its number, with its epoch above: its name in completions.
    pub(crate) fn name(&self) -> u32 {
        self.qpn.get() | (self.epoch.get() << 24)
    }

    pub(crate) fn pkey_index(&self) -> u16 {
        self.partition.get() as u16
    }

    /// Takes its partition key from `keys`. With an index beyond these it has no key, and its packets are refused.
    pub(crate) fn set_partition(&self, index: u16, keys: &[u16]) {
        let key = keys.get(usize::from(index)).copied().unwrap_or(0);
        self.partition.set(u32::from(index) | (u32::from(key) << 16));
    }

    /// Whether the two accept each other's packets: one partition, with a full member (InfiniBand specification
    /// 10.9.3).
    pub(crate) fn shares_partition(&self, other: &QpShared) -> bool {
        let (own, others) = (self.partition.get() >> 16, other.partition.get() >> 16);
        (own ^ others) & PARTITION == 0 && (own | others) & FULL_MEMBER != 0 && own & PARTITION != 0
    }

    #[inline]
    pub(crate) fn recv_queue(&self, fabric: &Fabric) -> &'static RecvQueue {
        match self.srq.get() {
            0 => fabric.region().at(fabric.region().offset_of(&self.rq)),
            offset => fabric.region().at(offset),
        }
    }

    pub(crate) fn recv_cq(&self, fabric: &Fabric) -> &'static CqShared {
        fabric.region().at(self.recv_cq.get())
    }

    pub(crate) fn send_cq(&self, fabric: &Fabric) -> &'static CqShared {
        fabric.region().at(self.send_cq.get())
    }

    pub(crate) fn behaviour<'a>(&self, fabric: &'a Fabric) -> &'a Behaviour {
        &fabric.devices()[self.device.get() as usize].behaviour
    }

    /// Tells its owner of `event`, if its adapter raises such events.
    pub(crate) fn raise(&self, fabric: &Fabric, event: u32) {
        if !self.behaviour(fabric).async_events.raises(event) {
            return;
        }
        let record = Record { about: ABOUT_QP, id: self.qpn.get(), event, cookie: self.cookie.get() };
        fabric.pipes.send(self.context.get(), record);
    }

    #[cold]
    pub(crate) fn count(&self, fabric: &Fabric, what: Count) {
        let (device, port) = (self.device.get() as usize, (self.port.get() as usize).wrapping_sub(1));
        fabric.texts.count(fabric.header(), device, port, what);
    }

    #[inline]
    pub(crate) fn lock_sends(&self, fabric: &Fabric) -> Held<'_> {
        let held = self.sq.lock.lock(fabric);
        if held.is_inherited && self.qpn.get() != 0 && self.send_cq.get() != 0 {
            self.send_cq(fabric).inherit(fabric);
        }
        held
    }

    #[inline]
    pub(crate) fn lock_answers(&self, fabric: &Fabric) -> Held<'_> {
        let held = self.resp.lock.lock(fabric);
        if held.is_inherited && self.qpn.get() != 0 {
            self.inherit(fabric);
        }
        held
    }

    /// Called after the process that delivered to this queue pair has died: puts back the receive request in hand,
    /// unless that was about to complete, and flushes the receives if the queue pair is in the error state.
    #[cold]
    fn inherit(&self, fabric: &Fabric) {
        if self.recv_cq.get() != 0 {
            let queue = self.recv_queue(fabric);
            queue.inherit(fabric);
            self.recv_cq(fabric).inherit(fabric);
            self.put_back(fabric, queue);
        } else if let Some((entry, _held)) = xrc::find(fabric, self.resp.srqn.get(), self.xrcd.get()) {
            self.put_back(fabric, entry.queue(fabric));
        }
        if self.state.get() == ERR {
            self.fail_receives(fabric);
        }
    }

    /// Puts the request in hand back into `queue`: its message did not arrive.
    #[cold]
    pub(crate) fn put_back(&self, fabric: &Fabric, queue: &RecvQueue) {
        match self.resp.in_hand.swap(0) {
            0 => {}
            name => queue.put_back(fabric, name.wrapping_sub(1)),
        }
    }

    /// Enters the error state and flushes receives. The caller holds `resp.lock`, and flushes the sends afterwards.
    pub(crate) fn fail_receives(&self, fabric: &Fabric) {
        let before = self.state.get();
        self.state.publish(ERR);
        if self.srq.get() != 0 {
            let is_told = self.behaviour(fabric).last_wqe_event;
            if is_told && before != ERR && before != RESET && before != INIT {
                self.raise(fabric, event::QP_LAST_WQE_REACHED);
            }
            return;
        }
        if self.withheld.get() != 0 {
            return;
        }
        // Under the poster's lock: a request posted at this moment is either flushed here or sees the state.
        let _posting = self.rq.posting.lock.lock(fabric);
        while let Some(wqe) = self.rq.take(fabric, self) {
            if let Some(reserved) = self.recv_cq(fabric).reserve(fabric) {
                reserved.commit(fabric, self, &failed_recv(wc_status::WR_FLUSH_ERR, wqe, 0));
            }
        }
    }
}

/// Stops a queue pair once no lock is held.
pub(crate) fn fail_later(fabric: &Fabric, qp: &QpShared) {
    fabric.deferred.add(Deferred::Flush(qp.index()));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs as they lie in the region, and how they stop.
//!
//! Called by: the C side, wire (the peer's), process (a dead one's), fabric (put-off failures). Grade: setup, but for
//! the structure itself, which is hot: its first two lines change on modify only, so both sides keep them cached. Lock
//! order: `sq.lock` of one queue pair, then `resp.lock` of one, then a receive queue's, then a completion queue's.
//! `state` changes under `resp.lock`. `object` is what a program holds, `grant` its sizes, `modify` changes it,
//! `places` finds room for it, `leaving` says what becomes of its completions when it goes.

mod grant;
mod leaving;
mod modify;
mod object;
mod places;

use super::{
    channel::{ABOUT_QP, Record},
    codes::{
        event,
        qp_state::{ERR, INIT, RESET},
        qp_type::XRC_RECV,
        wc_status,
    },
    cq::{self, CqShared},
    fabric::{Fabric, PutOff},
    inbox::Inbox,
    lock::SharedLock,
    recv::RecvQueue,
    region::{QP_BYTES, Shared, qp_at},
    sendq::{self, SendQueue},
    words::{W32, W64},
};
use crate::behaviour::Behaviour;

pub use object::Qp;
pub(crate) use places::{all, release_all_of};

/// Bits of a partition key: its number, and whether the holder may talk to all members or to full ones only.
const PARTITION: u32 = 0x7fff;
const FULL_MEMBER: u32 = 0x8000;

/// What the side that answers keeps: written by whoever delivers to this queue pair.
#[repr(C, align(64))]
pub(crate) struct Responder {
    pub(crate) lock: SharedLock,
    /// Packet sequence number expected next.
    pub(crate) psn: W32,
    /// A packet has arrived since RTR.
    pub(crate) established: W32,
}

/// A queue pair as it lies in the region.
#[repr(C, align(64))]
pub(crate) struct QpShared {
    /// 0 while the place is free.
    pub(crate) qpn: W32,
    pub(crate) kind: W32,
    pub(crate) state: W32,
    pub(crate) owner: W32,
    pub(crate) device: W32,
    pub(crate) port: W32,
    /// 8 bits, counting resets: completions from before one are not given any more.
    pub(crate) epoch: W32,
    pub(crate) pd: W32,
    pub(crate) dest_qpn: W32,
    pub(crate) to_device: W32,
    /// 0: nobody has the address.
    pub(crate) to_port: W32,
    pub(crate) access: W32,
    pub(crate) qkey: W32,
    /// Index of its partition key (16 bits), and the key itself above.
    partition: W32,
    /// The least packets hold, as a power of two.
    pub(crate) mtu_bits: W32,
    pub(crate) signal_all: W32,

    pub(crate) send_cq: W64,
    pub(crate) recv_cq: W64,
    /// 0: its own queue.
    pub(crate) srq: W64,
    cookie: W64,
    context: W32,
    pub(crate) min_rnr_timer: W32,
    pub(crate) timeout: W32,
    pub(crate) retry_cnt: W32,
    pub(crate) rnr_retry: W32,
    pub(crate) max_rd_atomic: W32,
    pub(crate) max_dest_rd_atomic: W32,
    generation: W32,

    pub(crate) sq: SendQueue,
    pub(crate) resp: Responder,
    pub(crate) rq: RecvQueue,
    pub(crate) inbox: Inbox,
    /// Among the free places: the next one plus one.
    next_free: W32,
    /// Domain of an `XRC_RECV`.
    pub(crate) xrcd: W32,
    /// Its owner wants to know when the request that was under way at SQD is over.
    pub(crate) tells_drained: W32,
    /// It has failed, and its requests are not flushed before its owner has read the event that says so.
    pub(crate) withheld: W32,
    /// Its path: the LID of the peer (0: none), its own GID's index plus one (0: none), and the port that they led to.
    pub(crate) dlid: W32,
    pub(crate) sgid: W32,
    pub(crate) routed_port: W32,
}

// SAFETY: words and such structures only, repr(C), zero is a free place.
unsafe impl Shared for QpShared {}

const _: () = assert!(size_of::<QpShared>() as u64 <= QP_BYTES);

/// The place that a number names.
#[inline]
pub(crate) fn place(fabric: &Fabric, number: u32) -> &'static QpShared {
    fabric.region().at(qp_at(number & 0xffff))
}

impl QpShared {
    pub(crate) fn index(&self) -> u32 {
        self.qpn.get() & 0xffff
    }

    /// Index of its partition key.
    pub(crate) fn pkey_index(&self) -> u16 {
        self.partition.get() as u16
    }

    /// Its partition key is the one at `index` of `keys`; beyond them it has none, and talks to nobody.
    pub(crate) fn set_partition(&self, index: u16, keys: &[u16]) {
        let key = keys.get(usize::from(index)).copied().unwrap_or(0);
        self.partition.set(u32::from(index) | (u32::from(key) << 16));
    }

    /// Whether packets between the two are taken: same partition, and one a full member (InfiniBand specification
    /// 10.9.3).
    #[inline]
    pub(crate) fn shares_partition(&self, other: &QpShared) -> bool {
        let (own, others) = (self.partition.get() >> 16, other.partition.get() >> 16);
        (own ^ others) & PARTITION == 0 && (own | others) & FULL_MEMBER != 0 && own & PARTITION != 0
    }

    /// Where its receives come from.
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

    /// How its adapter behaves.
    pub(crate) fn behaviour<'a>(&self, fabric: &'a Fabric) -> &'a Behaviour {
        &fabric.devices()[self.device.get() as usize].behaviour
    }

    /// Tells its owner, if its adapter raises such events.
    pub(crate) fn raise(&self, fabric: &Fabric, event: u32) {
        if !self.behaviour(fabric).async_events.raises(event) {
            return;
        }
        let record = Record { about: ABOUT_QP, id: self.qpn.get(), event, cookie: self.cookie.get() };
        fabric.pipes.send(self.context.get(), record);
    }

    /// Enters the error state, as far as `resp.lock`, which the caller holds, allows: receives are flushed here, sends
    /// by whoever settles what was put off.
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
        while let Some(wqe) = self.rq.take(fabric) {
            if let Some(reserved) = self.recv_cq(fabric).reserve(fabric) {
                reserved.commit(fabric, self, &cq::failed_recv(wc_status::WR_FLUSH_ERR, wqe, 0));
            }
        }
    }
}

/// Stops a queue pair once no lock is held.
pub(crate) fn fail_later(fabric: &Fabric, qp: &QpShared) {
    fabric.put_off(PutOff::Flush(qp.index()));
}

/// Enters the error state and flushes both queues. No lock is held.
pub(crate) fn flush_sends(fabric: &Fabric, index: u32) {
    let qp = place(fabric, index);
    let _held = qp.sq.lock.lock(fabric);
    if qp.qpn.get() != 0 && qp.state.get() != RESET {
        sendq::fail(fabric, qp);
    }
}

/// The owner of the queue pair of this number has read an event about it: what was withheld is flushed.
pub(crate) fn event_was_read(fabric: &Fabric, number: u32) {
    let qp = place(fabric, number);
    if qp.qpn.get() == number && qp.withheld.swap(0) != 0 {
        flush_sends(fabric, qp.index());
    }
}

/// Stops all queue pairs that complete to this queue.
pub(crate) fn fail_all_with(fabric: &Fabric, cq: u64) {
    for qp in all(fabric).filter(|qp| qp.send_cq.get() == cq || qp.recv_cq.get() == cq) {
        flush_sends(fabric, qp.index());
    }
}

/// The queue pairs whose sends wait for a request in this shared receive queue.
pub(crate) fn waiting_for(fabric: &Fabric, srq: u64) -> Vec<u32> {
    // Which queue an XRC connection waits for is its peer's request's to say: all of them look.
    let may_use = |qp: &QpShared| qp.srq.get() == srq || qp.kind.get() == XRC_RECV;
    let waited = |qp: &&QpShared| qp.rq.wanted.get() != 0 && may_use(qp);
    all(fabric)
        .filter(waited)
        .map(|qp| {
            qp.rq.wanted.set(0);
            qp.dest_qpn.get() & 0xffff
        })
        .collect()
}

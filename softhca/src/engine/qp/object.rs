// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair as a program holds it: asked, given requests, attached to multicast groups.
//!
//! Called by: the C side. Grade: setup, but for `post_send` and `post_recv`, which are hot. Thread rule: any thread.
//! How it is made and destroyed is written in `lifetime`, how it changes in `modify`.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32},
};

use crate::engine::{
    Errno, Result,
    adapter::{hca::Hca, pd::InPd},
    codes::{
        qp_state::{ERR, RESET, SQD},
        qp_type::UD,
    },
    cq::ring::CqShared,
    fabric::deferred::Deferred,
    faults::verdict::on_post,
    qp::{multicast, shared::QpShared},
    recv::queue::RecvQueue,
    send::{post, request::SendWr},
    service::deferred::run_deferred,
    spec::{
        attributes::{QpAttr, QpCap},
        work_request::RecvWr,
    },
};

/// A queue pair.
pub struct Qp {
    pub(crate) hca: Arc<Hca>,
    pub(crate) shared: &'static QpShared,
    pub(super) number: u32,
    pub(super) cap: QpCap,
    /// As last set, for `query`.
    pub(super) attr: Mutex<QpAttr>,
    /// What it uses; `None` once destroyed.
    pub(super) uses: Mutex<Option<Uses>>,
    /// The shared queue its receives come from, and the queue they complete to.
    pub(super) shares: Option<(&'static RecvQueue, &'static CqShared)>,
    /// It was in ERR, or was reset.
    pub(super) spent: AtomicBool,
    /// Where it completes: nowhere, to one queue or to two.
    pub(super) completes_to: Vec<&'static CqShared>,
}

/// What a queue pair uses: its domain, and counters of users of queues.
pub(super) struct Uses {
    pub(super) _in_pd: Option<InPd>,
    pub(super) counters: Vec<Arc<AtomicU32>>,
}

impl Qp {
    /// 24 bits.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The sizes granted.
    #[must_use]
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// `codes::qp_state` now.
    #[must_use]
    pub fn state(&self) -> u32 {
        self.shared.state.seen()
    }

    /// All attributes. Packet sequence numbers are those of now.
    #[must_use]
    pub fn query(&self) -> QpAttr {
        let mut attr = *self.attr.lock().unwrap_or_else(PoisonError::into_inner);
        attr.qp_state = self.state();
        attr.cur_qp_state = attr.qp_state;
        attr.sq_draining = u8::from(attr.qp_state == SQD && self.shared.sq.wait.get() != 0);
        attr.sq_psn = self.shared.sq.psn.get();
        attr.rq_psn = self.shared.resp.psn.get();
        attr.cap = self.cap;
        attr
    }

    /// Posts one send work request.
    /// # Errors
    /// ENOMEM (queue full), EINVAL (state, opcode, pieces, inline size), or what the adapter says instead
    /// (`send::refusal`).
    #[inline]
    pub fn post_send(&self, wr: &SendWr) -> Result<()> {
        let fabric = &*self.hca.fabric;
        if fabric.has_faults {
            on_post(fabric, self.shared)?;
        }
        let result = {
            let _held = self.shared.sq.lock.lock(fabric);
            post::post(fabric, self.shared, wr)
        };
        run_deferred(fabric);
        result
    }

    /// Posts one receive work request.
    /// # Errors
    /// ENOMEM (queue full), EINVAL (RESET, shared receive queue, too many pieces).
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr) -> Result<()> {
        let (fabric, qp) = (&*self.hca.fabric, self.shared);
        if qp.srq.get() != 0 || self.cap.max_recv_wr == 0 {
            return Err(Errno(libc::EINVAL));
        }
        let state = {
            let _held = qp.rq.posting.lock.lock(fabric);
            let state = qp.state.get();
            if state == RESET {
                return Err(Errno(libc::EINVAL));
            }
            qp.rq.post(fabric, wr)?;
            state
        };
        if state == ERR {
            let _answers = qp.resp.lock.lock(fabric);
            qp.fail_receives(fabric);
        } else if qp.rq.wanted.get() != 0 && qp.rq.wanted.swap(0) != 0 {
            fabric.defer(Deferred::Retry(qp.dest_qpn.get() & 0xffff));
        }
        run_deferred(fabric);
        Ok(())
    }

    /// Joins a multicast group.
    /// # Errors
    /// EINVAL (not UD, not a multicast address), ENOMEM (too many groups or members).
    pub fn attach_mcast(&self, gid: &[u8; 16], _lid: u16) -> Result<()> {
        if self.shared.kind.get() != UD || gid[0] != 0xff {
            return Err(Errno(libc::EINVAL));
        }
        multicast::join(&self.hca.fabric, self.shared.index(), gid)
    }

    /// Leaves a multicast group.
    /// # Errors
    /// EINVAL: it is not a member.
    pub fn detach_mcast(&self, gid: &[u8; 16], _lid: u16) -> Result<()> {
        let is_left = multicast::leave(&self.hca.fabric, self.shared.index(), Some(gid));
        if is_left { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Where it completes.
    pub(super) fn completion_queues(&self) -> impl Iterator<Item = &'static CqShared> {
        self.completes_to.iter().copied()
    }

    /// As when it was made: no requests, and no completions of former ones. The caller holds both locks, or nobody else
    /// knows the queue pair.
    pub(super) fn reset(&self) {
        let (fabric, qp) = (&*self.hca.fabric, self.shared);
        qp.epoch.set((qp.epoch.get() + 1) & 0xff);
        qp.sq.clear();
        qp.resp.psn.set(0);
        qp.resp.established.set(0);
        qp.inbox.clear();
        if qp.srq.get() == 0 {
            qp.rq.clear(fabric);
        }
        qp.rq.wanted.set(0);
        qp.tells_drained.set(0);
        for word in [&qp.withheld, &qp.dlid, &qp.sgid, &qp.routed_port] {
            word.set(0);
        }
        qp.dest_qpn.set(0);
        qp.to_port.set(0);
        qp.access.set(0);
        qp.qkey.set(0);
        *self.attr.lock().unwrap_or_else(PoisonError::into_inner) = QpAttr { cap: self.cap, ..QpAttr::default() };
    }
}

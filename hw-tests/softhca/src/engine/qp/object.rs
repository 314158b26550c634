// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair as a program holds it: made, asked, given receives, ended.
//!
//! Called by: the C side. Grade: setup, but for `post_recv`, which is hot. Thread rule: any thread.

use std::collections::BTreeSet;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use super::{
    super::{
        Errno, QpAttr, QpCap, QpInit, RecvWr, Result, Srq, Xrcd,
        channel::ABOUT_QP,
        codes::{
            qp_state::{ERR, RESET, SQD},
            qp_type::{RC, UC, UD, XRC_RECV, XRC_SEND},
        },
        cq::CqShared,
        fabric::PutOff,
        hca::Hca,
        multicast,
        pd::InPd,
        recv::RecvQueue,
    },
    QpShared, grant, places,
};

/// A queue pair.
pub struct Qp {
    pub(crate) hca: Arc<Hca>,
    pub(crate) shared: &'static QpShared,
    number: u32,
    pub(super) cap: QpCap,
    /// As last set, for `query`.
    pub(super) attr: Mutex<QpAttr>,
    /// What it uses; `None` once destroyed.
    uses: Mutex<Option<Uses>>,
    /// The shared queue its receives come from, and the queue they complete to.
    pub(super) shares: Option<(&'static RecvQueue, &'static CqShared)>,
    /// It was in ERR, or was reset.
    pub(super) spent: AtomicBool,
    /// Where it completes: nowhere, to one queue or to two.
    completes_to: Vec<&'static CqShared>,
}

/// What a queue pair uses: its domain, and counters of users of queues.
struct Uses {
    _in_pd: Option<InPd>,
    counters: Vec<Arc<AtomicU32>>,
}

impl Qp {
    pub(crate) fn new(hca: &Arc<Hca>, init: &QpInit) -> Result<Qp> {
        if ![RC, UC, UD, XRC_SEND].contains(&init.kind) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if init.kind == XRC_SEND && init.srq.is_some() {
            return Err(Errno(libc::EINVAL));
        }
        let fabric = &*hca.fabric;
        let has_receives = init.srq.is_none() && init.kind != XRC_SEND;
        let cap = grant::granted(hca, init)?;
        let (qp, number) = places::take(fabric, hca)?;
        qp.pd.set(init.pd.0.id);
        qp.signal_all.set(u32::from(init.sq_sig_all));
        qp.send_cq.set(init.send_cq.offset);
        qp.recv_cq.set(if init.kind == XRC_SEND { 0 } else { init.recv_cq.offset });
        qp.srq.set(init.srq.map_or(0, |srq| srq.offset));
        let give_back = |_: &Errno| places::give_back(fabric, number, hca.device);
        qp.sq.begin(fabric, &cap, hca.limits().max_msg_sz).inspect_err(give_back)?;
        if has_receives {
            qp.rq
                .begin(fabric, cap.max_recv_wr, cap.max_recv_sge, init.pd.0.id, false)
                .inspect_err(|_| qp.sq.end(fabric))
                .inspect_err(give_back)?;
        }
        if matches!(init.kind, RC | UC) {
            qp.inbox.begin(fabric);
        }
        let mut counters = vec![Arc::clone(&init.send_cq.users), Arc::clone(&init.recv_cq.users)];
        counters.extend(init.srq.map(|srq: &Srq| Arc::clone(&srq.users)));
        Ok(Qp::begin(hca, qp, number, init.kind, cap, init.cookie, Uses { _in_pd: Some(init.pd.enter()), counters }))
    }

    pub(crate) fn new_xrc_recv(hca: &Arc<Hca>, domain: &Xrcd, cookie: u64) -> Result<Qp> {
        let (qp, number) = places::take(&hca.fabric, hca)?;
        for word in [&qp.send_cq, &qp.recv_cq, &qp.srq] {
            word.set(0);
        }
        qp.pd.set(0);
        qp.signal_all.set(0);
        qp.xrcd.set(domain.id);
        let uses = Uses { _in_pd: None, counters: vec![Arc::clone(&domain.users)] };
        Ok(Qp::begin(hca, qp, number, XRC_RECV, QpCap::default(), cookie, uses))
    }

    /// What all kinds have in common; from here on it is found.
    fn begin(hca: &Arc<Hca>, qp: &'static QpShared, number: u32, kind: u32, cap: QpCap, cookie: u64, uses: Uses) -> Qp {
        let fabric = &*hca.fabric;
        qp.kind.set(kind);
        qp.state.set(RESET);
        qp.owner.set(fabric.token());
        qp.device.set(hca.device as u32);
        qp.port.set(1);
        qp.epoch.set((qp.epoch.get() + 1) & 0xff);
        qp.cookie.set(cookie);
        qp.context.set(hca.events.id);
        for counter in &uses.counters {
            counter.fetch_add(1, Ordering::AcqRel);
        }
        hca.events.expect(ABOUT_QP, number);
        let queues: BTreeSet<u64> = [qp.send_cq.get(), qp.recv_cq.get()].into_iter().filter(|at| *at != 0).collect();
        let made = Qp {
            hca: Arc::clone(hca),
            shared: qp,
            number,
            cap,
            attr: Mutex::default(),
            uses: Mutex::new(Some(uses)),
            shares: (qp.srq.get() != 0).then(|| (qp.recv_queue(fabric), qp.recv_cq(fabric))),
            spent: AtomicBool::new(false),
            completes_to: queues.into_iter().map(|queue| fabric.region().at(queue)).collect(),
        };
        made.reset();
        qp.qpn.publish(number);
        made
    }

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
            fabric.put_off(PutOff::Kick(qp.dest_qpn.get() & 0xffff));
        }
        fabric.settle();
        Ok(())
    }

    /// Where it completes.
    pub(super) fn completion_queues(&self) -> impl Iterator<Item = &'static CqShared> {
        self.completes_to.iter().copied()
    }

    /// Ends it: its requests are forgotten, and its completions as the adapter does with them.
    /// # Errors
    /// EBUSY while attached to a multicast group.
    pub fn destroy(&self) -> Result<()> {
        let fabric = &*self.hca.fabric;
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.is_some() && multicast::is_member(fabric, self.shared.index()) {
            return Err(Errno(libc::EBUSY));
        }
        let Some(uses) = uses.take() else { return Ok(()) };
        self.hca.events.forget(ABOUT_QP, self.number);
        {
            let _answers = self.shared.resp.lock.lock(fabric);
            let state = self.shared.state.get();
            self.shared.state.publish(RESET);
            self.before_leaving(state);
        }
        places::release(fabric, self.shared);
        self.after_leaving();
        for counter in uses.counters {
            counter.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

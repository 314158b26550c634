// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes queue pairs, destroys and resets them. The adapter's behaviour determines the fate of unpolled completions,
//! and of requests of a shared receive queue. Called by: `verbs`, modify. Grade: setup. Thread rule: any thread; one at
//! a time destroys or resets a queue pair, between `before_leaving` and `after_leaving`.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::behaviour::Purge;
use crate::engine::codes::qp_state::{ERR, INIT, RESET};
use crate::engine::codes::qp_type::{RC, UC, UD, XRC_RECV, XRC_SEND};
use crate::engine::qp::{capabilities, object, table};
use crate::engine::{Errno, Hca, Qp, QpCap, QpInit, QpShared, Result, Use, Xrcd};

impl Hca {
    /// Creates the answering end of an XRC connection (`XRC_RECV`), in RESET. It has no queues of its own.
    /// Errors: ENOMEM.
    pub fn create_xrc_recv(self: &Arc<Self>, domain: &Xrcd, cookie: u64) -> Result<Qp> {
        let (qp, number) = table::take(&self.fabric, self.device)?;
        for word in [&qp.send_cq, &qp.recv_cq, &qp.srq] {
            word.set(0);
        }
        qp.pd.set(0);
        qp.signal_all.set(0);
        qp.xrcd.set(domain.id);
        Ok(Qp::begin(self, qp, number, XRC_RECV, QpCap::default(), cookie, vec![domain.users.enter()]))
    }

    /// Creates a queue pair, in RESET.
    /// Errors: EINVAL, ENOMEM; no number (0) if the adapter leaves `errno` alone.
    pub fn create_qp(self: &Arc<Self>, init: &QpInit) -> Result<Qp> {
        if ![RC, UC, UD, XRC_SEND].contains(&init.kind) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if init.kind == XRC_SEND && init.srq.is_some() {
            return Err(Errno(libc::EINVAL));
        }
        let fabric = &*self.fabric;
        let has_receives = init.srq.is_none() && init.kind != XRC_SEND;
        let cap = capabilities::granted(self, init)?;
        let (qp, number) = table::take(fabric, self.device)?;
        qp.pd.set(init.pd.id);
        qp.signal_all.set(u32::from(init.sq_sig_all));
        qp.send_cq.set(init.send_cq.offset);
        qp.recv_cq.set(if init.kind == XRC_SEND { 0 } else { init.recv_cq.offset });
        qp.srq.set(init.srq.map_or(0, |srq| srq.offset));
        let (wr, sge) = (cap.max_recv_wr, cap.max_recv_sge);
        let receives = || if has_receives { qp.rq.begin(fabric, wr, sge, init.pd.id, false) } else { Ok(()) };
        let begun = qp.sq.begin(fabric, &cap, self.limits().max_msg_sz).and_then(|()| receives());
        begun.inspect_err(|_| table::release(fabric, number & 0xffff))?;
        if matches!(init.kind, RC | UC) {
            qp.inbox.begin(fabric);
        }
        let mut uses = vec![init.pd.users.enter(), init.send_cq.users.enter(), init.recv_cq.users.enter()];
        uses.extend(init.srq.map(|srq| srq.users.enter()));
        Ok(Qp::begin(self, qp, number, init.kind, cap, init.cookie, uses))
    }
}

impl Qp {
    /// Sets the fields that all kinds have; from now on the queue pair can be found.
    fn begin(hca: &Arc<Hca>, qp: &'static QpShared, qpn: u32, kind: u32, cap: QpCap, cookie: u64, own: Vec<Use>) -> Qp {
        let fabric = &*hca.fabric;
        qp.kind.set(kind);
        qp.state.set(RESET);
        qp.port.set(1);
        qp.epoch.set((qp.epoch.get() + 1) & 0xff);
        qp.cookie.set(cookie);
        qp.context.set(hca.events.id);
        let queues: BTreeSet<u64> = [qp.send_cq.get(), qp.recv_cq.get()].into_iter().filter(|at| *at != 0).collect();
        let made = Qp {
            hca: Arc::clone(hca),
            shared: qp,
            number: qpn,
            cap,
            attr: Mutex::default(),
            uses: Mutex::new(Some(own)),
            shares: (qp.srq.get() != 0).then(|| (qp.recv_queue(fabric), qp.recv_cq(fabric))),
            spent: AtomicBool::new(false),
            completes_to: queues.into_iter().map(|queue| fabric.region().at(queue)).collect(),
        };
        made.reset();
        qp.qpn.publish(qpn);
        made
    }

    /// Destroys it: forgets its requests, and treats its completions as the adapter does.
    /// Errors: EBUSY while attached to a multicast group.
    pub fn destroy(&self) -> Result<()> {
        let fabric = &*self.hca.fabric;
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.is_some() && object::is_member(fabric, self.shared.index()) {
            return Err(Errno(libc::EBUSY));
        }
        let Some(_ended) = uses.take() else { return Ok(()) };
        {
            let _answers = self.shared.lock_answers(fabric);
            let state = self.shared.state.get();
            self.shared.state.publish(RESET);
            self.before_leaving(state);
        }
        table::release(fabric, self.shared.index());
        self.after_leaving();
        Ok(())
    }

    /// Called before it is destroyed or reset. Keeps completions that outlive it, and loses a request that it has taken
    /// if the adapter does so. The caller holds `resp.lock`, so nothing arrives.
    pub(super) fn before_leaving(&self, state: u32) {
        let (fabric, qp, ways) = (&*self.hca.fabric, self.shared, self.hca.behaviour());
        if ways.purge_cq_on_destroy == Purge::No {
            for cq in &self.completes_to {
                cq.keep(fabric, qp);
            }
        }
        let is_connected = !matches!(state, RESET | INIT | ERR);
        if let Some((queue, _)) = self.shares
            && ways.srq_wr_lost_on_destroy.taken()
            && is_connected
        {
            let _held = queue.lock_taking(fabric);
            queue.take(fabric, qp);
        }
    }

    /// Called after it was destroyed or reset. Purges its remaining completions. Requests of a shared queue whose
    /// completions no program will poll become free, or are lost.
    pub(super) fn after_leaving(&self) {
        let (fabric, ways) = (&*self.hca.fabric, self.hca.behaviour());
        if let Some((queue, cq)) = self.shares {
            let is_lost = ways.srq_wr_lost_on_destroy.purged();
            cq.withdraw(fabric, self.number(), 0, |wqe| {
                if !is_lost {
                    queue.free(fabric, wqe);
                }
            });
        }
        if ways.purge_cq_on_destroy == Purge::Compact {
            for cq in &self.completes_to {
                cq.compact(fabric);
            }
        }
    }
}

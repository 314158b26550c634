// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a queue pair is made, and how it is destroyed.
//!
//! Called by: the C side. Grade: setup. Thread rule: any thread.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::engine::{
    Errno, Result,
    adapter::hca::Hca,
    codes::{
        qp_state::RESET,
        qp_type::{RC, UC, UD, XRC_RECV, XRC_SEND},
    },
    fabric::pipes::ABOUT_QP,
    qp::{
        capabilities::{self, QpInit},
        multicast,
        object::{Qp, Uses},
        shared::QpShared,
        table,
    },
    recv::{srq::Srq, xrc::Xrcd},
    spec::attributes::QpCap,
};

impl Hca {
    /// The answering end of an XRC connection (`XRC_RECV`), in RESET. It has no queues of its own.
    /// # Errors
    /// ENOMEM.
    pub fn create_xrc_recv(self: &Arc<Self>, domain: &Xrcd, cookie: u64) -> Result<Qp> {
        let (qp, number) = table::take(&self.fabric, self.device)?;
        for word in [&qp.send_cq, &qp.recv_cq, &qp.srq] {
            word.set(0);
        }
        qp.pd.set(0);
        qp.signal_all.set(0);
        qp.xrcd.set(domain.id);
        let uses = Uses { _in_pd: None, counters: vec![Arc::clone(&domain.users)] };
        Ok(Qp::begin(self, qp, number, XRC_RECV, QpCap::default(), cookie, uses))
    }

    /// A queue pair, in RESET.
    /// # Errors
    /// EINVAL, ENOMEM; no number (0) where the adapter leaves `errno` alone.
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
        qp.pd.set(init.pd.0.id);
        qp.signal_all.set(u32::from(init.sq_sig_all));
        qp.send_cq.set(init.send_cq.offset);
        qp.recv_cq.set(if init.kind == XRC_SEND { 0 } else { init.recv_cq.offset });
        qp.srq.set(init.srq.map_or(0, |srq| srq.offset));
        let give_back = |_: &Errno| table::give_back(fabric, number, self.device);
        qp.sq.begin(fabric, &cap, self.limits().max_msg_sz).inspect_err(give_back)?;
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
        Ok(Qp::begin(self, qp, number, init.kind, cap, init.cookie, Uses { _in_pd: Some(init.pd.enter()), counters }))
    }
}

impl Qp {
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
        table::release(fabric, self.shared);
        self.after_leaving();
        for counter in uses.counters {
            counter.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair changes: its state and its attributes.
//!
//! Called by: the C side. Which changes are allowed is said in `transitions`. Grade: setup. Thread rule: any thread; a
//! change holds both locks of the queue pair, so that nobody works on it meanwhile.

use std::sync::{PoisonError, atomic::Ordering};

use crate::{
    behaviour::AtomicAccess,
    engine::{
        Errno, Result,
        adapter::ah,
        codes::{
            access, attr_mask,
            link_layer::INFINIBAND,
            qp_state::{ERR, INIT, RESET, RTR, RTS, SQD},
            qp_type::is_reliable,
        },
        fabric::deferred::Deferred,
        qp::{object::Qp, shared::place, transitions},
        send::{completion, retry},
        service::deferred::run_deferred,
        spec::attributes::{AhAttr, QpAttr, set_of},
    },
    limits::Atomics,
};

impl Qp {
    /// Changes attributes; `mask` is `codes::attr_mask`.
    /// # Errors
    /// EINVAL: a transition or mask that the state machine does not have, a value out of range, or a queue pair that
    /// this adapter cannot use again; EINVAL or EOPNOTSUPP for atomics that it does not have.
    pub fn modify(&self, attr: &QpAttr, mask: u32) -> Result<()> {
        let (fabric, qp) = (&*self.hca.fabric, self.shared);
        let mut waiting_peer = None;
        {
            let _sends = qp.sq.lock.lock(fabric);
            let now = qp.state.get();
            let spec = self.hca.spec();
            let limits = self.hca.limits();
            let to = transitions::check(qp.kind.get(), now, attr, mask, &spec.ports, qp.port.get(), limits)?;
            if mask & attr_mask::AV != 0 {
                ah::check(&self.hca, &attr.ah_attr)?;
            }
            self.may_be_accessed(attr, mask)?;
            if !self.hca.behaviour().qp_recycle_via_reset {
                if to == INIT && self.spent.load(Ordering::Acquire) {
                    return Err(Errno(libc::EINVAL));
                }
                self.spent.fetch_or(matches!(to, RESET | ERR), Ordering::AcqRel);
            }
            if to == ERR {
                if now == RESET {
                    qp.state.publish(ERR);
                } else {
                    completion::fail(fabric, qp);
                }
            } else {
                let _answers = qp.resp.lock.lock(fabric);
                if to == RESET {
                    qp.state.publish(RESET);
                    self.before_leaving(now);
                    let _posting = qp.rq.posting.lock.lock(fabric);
                    self.reset();
                } else {
                    self.apply(attr, mask);
                    qp.state.publish(to);
                }
            }
            if to == RTR || (to == RTS && now != RTS) {
                waiting_peer = Some(qp.dest_qpn.get());
            }
            if to == RTS && now != RTS {
                // What was posted before this, where the adapter allows it, or while the queue was drained.
                qp.tells_drained.set(0);
                retry::run(fabric, qp, false);
            }
            if to == SQD && now == RTS && mask & attr_mask::EN_SQD_ASYNC_NOTIFY != 0 && attr.en_sqd_async_notify != 0 {
                // What is under way ends first.
                qp.tells_drained.set(1);
                if qp.sq.wait.get() == 0 {
                    retry::run(fabric, qp, false);
                }
            }
        }
        if qp.state.get() == RESET {
            self.after_leaving();
        }
        // 0 is nobody's number, and what an unused place has.
        if let Some(peer) = waiting_peer.filter(|peer| *peer != 0 && is_reliable(qp.kind.get())) {
            // It may have sent before we were ready, and waits.
            let other = place(fabric, peer);
            if other.qpn.get() == peer {
                fabric.timers.watch_process(fabric, other.owner.get());
                fabric.defer(Deferred::Retry(peer & 0xffff));
            }
        }
        run_deferred(fabric);
        Ok(())
    }

    /// Whether peers can be given the rights that queue pairs ask for: atomics must be there.
    fn may_be_accessed(&self, attr: &QpAttr, mask: u32) -> Result<()> {
        if self.hca.limits().atomics != Atomics::None {
            return Ok(());
        }
        let kept = *self.attr.lock().unwrap_or_else(PoisonError::into_inner);
        let given = mask & attr_mask::ACCESS_FLAGS != 0;
        let asks = |flags: u32| flags & access::REMOTE_ATOMIC != 0;
        match self.hca.behaviour().atomic_access_without_cap {
            AtomicAccess::Einval if given && asks(attr.qp_access_flags) => Err(Errno(libc::EINVAL)),
            AtomicAccess::Eopnotsupp if mask & (attr_mask::ACCESS_FLAGS | attr_mask::MAX_DEST_RD_ATOMIC) != 0 => {
                // Without a depth for what comes in, rights to read and for atomics are off, and nothing is said.
                let has_depth = mask & attr_mask::MAX_DEST_RD_ATOMIC != 0;
                let depth = if has_depth { attr.max_dest_rd_atomic } else { kept.max_dest_rd_atomic };
                let flags = if given { attr.qp_access_flags } else { kept.qp_access_flags };
                if depth != 0 && asks(flags) { Err(Errno(libc::EOPNOTSUPP)) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// The rights as a query shows them.
    fn shown(&self, flags: u32) -> u32 {
        let (limits, ways) = (self.hca.limits(), self.hca.behaviour());
        let hides = limits.atomics == Atomics::None && ways.atomic_access_without_cap == AtomicAccess::Accepted;
        if hides { flags & !access::REMOTE_ATOMIC } else { flags }
    }

    fn apply(&self, attr: &QpAttr, mask: u32) {
        let qp = self.shared;
        let mut kept = self.attr.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut *kept;
        let has = |bit: u32| mask & bit != 0;
        if has(attr_mask::PORT) {
            qp.port.set(u32::from(attr.port_num));
            kept.port_num = attr.port_num;
        }
        if has(attr_mask::PKEY_INDEX) {
            kept.pkey_index = attr.pkey_index;
        }
        if has(attr_mask::PORT) || has(attr_mask::PKEY_INDEX) {
            let keys = &self.hca.fabric.port(self.hca.device, qp.port.get()).pkeys;
            qp.set_partition(kept.pkey_index, keys);
        }
        if has(attr_mask::ACCESS_FLAGS) {
            qp.access.set(attr.qp_access_flags);
            kept.qp_access_flags = self.shown(attr.qp_access_flags);
        }
        if has(attr_mask::QKEY) {
            qp.qkey.set(attr.qkey);
            kept.qkey = attr.qkey;
        }
        if has(attr_mask::AV) {
            let path = AhAttr {
                port_num: if attr.ah_attr.port_num == 0 { qp.port.get() as u8 } else { attr.ah_attr.port_num },
                ..set_of(&attr.ah_attr)
            };
            let to = self.hca.fabric.route(self.hca.device, path.port_num, &path);
            qp.to_device.set(to.map_or(0, |to| to.0));
            qp.to_port.set(to.map_or(0, |to| to.1));
            qp.routed_port.set(qp.to_port.get());
            qp.dlid.set(if self.hca.spec().link_layer == INFINIBAND { u32::from(path.dlid) } else { 0 });
            qp.sgid.set(if path.is_global != 0 { u32::from(path.grh.sgid_index) + 1 } else { 0 });
            kept.ah_attr = path;
        }
        if has(attr_mask::PATH_MTU) {
            qp.mtu_bits.set(attr.path_mtu + 7);
            kept.path_mtu = attr.path_mtu;
        }
        if has(attr_mask::DEST_QPN) {
            qp.dest_qpn.set(attr.dest_qp_num);
            kept.dest_qp_num = attr.dest_qp_num;
        }
        if has(attr_mask::RQ_PSN) {
            qp.resp.psn.set(attr.rq_psn & 0xff_ffff);
            kept.rq_psn = attr.rq_psn & 0xff_ffff;
        }
        if has(attr_mask::SQ_PSN) {
            qp.sq.psn.set(attr.sq_psn & 0xff_ffff);
            kept.sq_psn = attr.sq_psn & 0xff_ffff;
        }
        for (bit, word, field, value) in [
            (attr_mask::TIMEOUT, &qp.timeout, &mut kept.timeout, attr.timeout),
            (attr_mask::RETRY_CNT, &qp.retry_cnt, &mut kept.retry_cnt, attr.retry_cnt),
            (attr_mask::RNR_RETRY, &qp.rnr_retry, &mut kept.rnr_retry, attr.rnr_retry),
            (attr_mask::MIN_RNR_TIMER, &qp.min_rnr_timer, &mut kept.min_rnr_timer, attr.min_rnr_timer),
            (attr_mask::MAX_QP_RD_ATOMIC, &qp.max_rd_atomic, &mut kept.max_rd_atomic, attr.max_rd_atomic),
            (
                attr_mask::MAX_DEST_RD_ATOMIC,
                &qp.max_dest_rd_atomic,
                &mut kept.max_dest_rd_atomic,
                attr.max_dest_rd_atomic,
            ),
        ] {
            if has(bit) {
                word.set(u32::from(value));
                *field = value;
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes a queue pair's state and attributes, if the state machine permits it. Called by: `verbs`. Grade: setup.
//! Thread rule: any thread; a change holds both locks of the queue pair, so no other thread works on it then. Source:
//! InfiniBand specification 10.3.1 (queue pair states); the man page and the kernel follow it.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::behaviour::AtomicAccess;
use crate::engine::codes::attr_mask::{
    ACCESS_FLAGS, ALT_PATH, AV, CUR_STATE, DEST_QPN, EN_SQD_ASYNC_NOTIFY, MAX_DEST_RD_ATOMIC, MAX_QP_RD_ATOMIC,
    MIN_RNR_TIMER, PATH_MIG_STATE, PATH_MTU, PKEY_INDEX, PORT, QKEY, RETRY_CNT, RNR_RETRY, RQ_PSN, SQ_PSN, STATE,
    TIMEOUT,
};
use crate::engine::codes::link_layer::INFINIBAND;
use crate::engine::codes::qp_state::{ERR, INIT, RESET, RTR, RTS, SQD, SQE};
use crate::engine::codes::qp_type::{RC, UC, UD, XRC_RECV, XRC_SEND};
use crate::engine::codes::{access, is_reliable};
use crate::engine::send::{execution, retry};
use crate::engine::spec::set_of;
use crate::engine::{AhAttr, Deferred, Errno, PortSpec, Qp, QpAttr, Result, adapter, place, run_deferred};
use crate::limits::{Atomics, Limits};

impl Qp {
    /// Changes attributes; `mask` is `codes::attr_mask`.
    /// Errors: EINVAL: a transition or mask that the state machine does not have, a value out of range, or a queue pair
    /// that this adapter cannot use again; EINVAL or EOPNOTSUPP for atomics that it does not have.
    pub fn modify(&self, attr: &QpAttr, mask: u32) -> Result<()> {
        let (fabric, qp) = (&*self.hca.fabric, self.shared);
        let mut waiting_peer = None;
        {
            let _sends = qp.lock_sends(fabric);
            let now = qp.state.get();
            let spec = self.hca.spec();
            let limits = self.hca.limits();
            let to = check(qp.kind.get(), now, attr, mask, &spec.ports, qp.port.get(), limits)?;
            if mask & AV != 0 {
                adapter::check(&self.hca, &attr.ah_attr)?;
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
                    execution::fail(fabric, qp);
                }
            } else {
                let _answers = qp.lock_answers(fabric);
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
                // Runs requests that were posted while the queue was drained, or before RTS if the adapter allows that.
                qp.tells_drained.set(0);
                retry::run(fabric, qp, false);
            }
            if to == SQD && now == RTS && mask & EN_SQD_ASYNC_NOTIFY != 0 && attr.en_sqd_async_notify != 0 {
                // The request in progress ends first.
                qp.tells_drained.set(1);
                if qp.sq.wait.get() == 0 {
                    retry::run(fabric, qp, false);
                }
            }
        }
        if qp.state.get() == RESET {
            self.after_leaving();
        }
        // An unused place has the number 0.
        if let Some(peer) = waiting_peer.filter(|peer| *peer != 0 && is_reliable(qp.kind.get())) {
            // The peer may have sent before this queue pair was ready, and waits.
            let other = place(fabric, peer);
            if other.qpn.get() == peer {
                fabric.timers.watch_process(fabric, other.owner.get());
                fabric.deferred.add(Deferred::Retry(peer & 0xffff));
            }
        }
        run_deferred(fabric);
        Ok(())
    }

    /// Refuses rights to atomics that the adapter does not have.
    fn may_be_accessed(&self, attr: &QpAttr, mask: u32) -> Result<()> {
        if self.hca.limits().atomics != Atomics::None {
            return Ok(());
        }
        let kept = *self.attr.lock().unwrap_or_else(PoisonError::into_inner);
        let given = mask & ACCESS_FLAGS != 0;
        let asks = |flags: u32| flags & access::REMOTE_ATOMIC != 0;
        match self.hca.behaviour().atomic_access_without_cap {
            AtomicAccess::Einval if given && asks(attr.qp_access_flags) => Err(Errno(libc::EINVAL)),
            AtomicAccess::Eopnotsupp if mask & (ACCESS_FLAGS | MAX_DEST_RD_ATOMIC) != 0 => {
                // Without a depth for incoming requests, rights to read and for atomics are off, without an error.
                let has_depth = mask & MAX_DEST_RD_ATOMIC != 0;
                let depth = if has_depth { attr.max_dest_rd_atomic } else { kept.max_dest_rd_atomic };
                let flags = if given { attr.qp_access_flags } else { kept.qp_access_flags };
                if depth != 0 && asks(flags) { Err(Errno(libc::EOPNOTSUPP)) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

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
        if has(PORT) {
            qp.port.set(u32::from(attr.port_num));
            kept.port_num = attr.port_num;
        }
        if has(PKEY_INDEX) {
            kept.pkey_index = attr.pkey_index;
        }
        if has(PORT) || has(PKEY_INDEX) {
            let keys = &self.hca.fabric.port(self.hca.device, qp.port.get()).pkeys;
            qp.set_partition(kept.pkey_index, keys);
        }
        if has(ACCESS_FLAGS) {
            qp.access.set(attr.qp_access_flags);
            kept.qp_access_flags = self.shown(attr.qp_access_flags);
        }
        if has(AV) {
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
        if has(PATH_MTU) {
            qp.mtu_bits.set(attr.path_mtu + 7);
            kept.path_mtu = attr.path_mtu;
        }
        for (bit, word, value) in [
            (QKEY, &qp.qkey, attr.qkey),
            (DEST_QPN, &qp.dest_qpn, attr.dest_qp_num),
            (RQ_PSN, &qp.resp.psn, attr.rq_psn & 0xff_ffff),
            (SQ_PSN, &qp.sq.psn, attr.sq_psn & 0xff_ffff),
        ] {
            if has(bit) {
                word.set(value);
            }
        }
        for (bit, word, field, value) in [
            (TIMEOUT, &qp.timeout, &mut kept.timeout, attr.timeout),
            (RETRY_CNT, &qp.retry_cnt, &mut kept.retry_cnt, attr.retry_cnt),
            (RNR_RETRY, &qp.rnr_retry, &mut kept.rnr_retry, attr.rnr_retry),
            (MIN_RNR_TIMER, &qp.min_rnr_timer, &mut kept.min_rnr_timer, attr.min_rnr_timer),
            (MAX_QP_RD_ATOMIC, &qp.max_rd_atomic, &mut kept.max_rd_atomic, attr.max_rd_atomic),
            (MAX_DEST_RD_ATOMIC, &qp.max_dest_rd_atomic, &mut kept.max_dest_rd_atomic, attr.max_dest_rd_atomic),
        ] {
            if has(bit) {
                word.set(u32::from(value));
                *field = value;
            }
        }
    }
}

/// A transition (from, to) of these types of queue pairs, the attributes that it needs, and those that it allows.
type Rule = (u32, u32, &'static [u32], u32, u32);

const CONNECTED: &[u32] = &[RC, UC, XRC_SEND, XRC_RECV];
/// Connected types that answer requests, and those that do not.
const ANSWERING: &[u32] = &[RC, XRC_RECV];
const SENDING: &[u32] = &[UC, XRC_SEND];

const HOW_ACCESSED: u32 = PKEY_INDEX | PORT | ACCESS_FLAGS;
const PATH: u32 = AV | PATH_MTU | DEST_QPN | RQ_PSN;
const AT_RTR: u32 = ALT_PATH | ACCESS_FLAGS | PKEY_INDEX;
const RETRIES: u32 = TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;
const AT_RTS: u32 = ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE;
const AT_SQD: u32 = AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE;
const ANSWERS: u32 = MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;

const RULES: &[Rule] = &[
    (RESET, INIT, CONNECTED, HOW_ACCESSED, 0),
    (RESET, INIT, &[UD], PKEY_INDEX | PORT | QKEY, 0),
    (INIT, INIT, CONNECTED, 0, HOW_ACCESSED),
    (INIT, INIT, &[UD], 0, PKEY_INDEX | PORT | QKEY),
    (INIT, RTR, ANSWERING, PATH | ANSWERS, AT_RTR),
    (INIT, RTR, SENDING, PATH, AT_RTR),
    (INIT, RTR, &[UD], 0, PKEY_INDEX | QKEY),
    (RTR, RTS, &[RC], RETRIES | SQ_PSN, AT_RTS | MIN_RNR_TIMER),
    (RTR, RTS, &[XRC_SEND], RETRIES | SQ_PSN, AT_RTS),
    (RTR, RTS, &[XRC_RECV], TIMEOUT | SQ_PSN, AT_RTS | MIN_RNR_TIMER),
    (RTR, RTS, &[UC], SQ_PSN, AT_RTS),
    (RTR, RTS, &[UD], SQ_PSN, QKEY),
    (RTS, RTS, ANSWERING, 0, AT_RTS | MIN_RNR_TIMER),
    (RTS, RTS, SENDING, 0, AT_RTS),
    (RTS, RTS, &[UD], 0, QKEY),
    (RTS, SQD, &[RC, UC, UD, XRC_SEND, XRC_RECV], 0, EN_SQD_ASYNC_NOTIFY),
    (SQD, RTS, ANSWERING, 0, AT_RTS | MIN_RNR_TIMER),
    (SQD, RTS, SENDING, 0, AT_RTS),
    (SQD, RTS, &[UD], 0, QKEY),
    (SQD, SQD, &[RC], 0, AT_SQD | PORT | RETRIES | ANSWERS),
    (SQD, SQD, &[XRC_SEND], 0, AT_SQD | PORT | RETRIES),
    (SQD, SQD, &[XRC_RECV], 0, AT_SQD | PORT | TIMEOUT | ANSWERS),
    (SQD, SQD, &[UC], 0, AT_SQD),
    (SQD, SQD, &[UD], 0, PKEY_INDEX | QKEY),
    (SQE, RTS, &[UC], 0, ACCESS_FLAGS),
    (SQE, RTS, &[UD], 0, QKEY),
];

/// Returns the state after a modification. EINVAL: the state machine has no such transition, an attribute is missing or
/// not allowed, or a value is out of range.
pub(super) fn check(
    kind: u32,
    now: u32,
    attr: &QpAttr,
    mask: u32,
    ports: &[PortSpec],
    port: u32,
    limits: &Limits,
) -> Result<u32> {
    const EINVAL: Errno = Errno(libc::EINVAL);
    if mask & CUR_STATE != 0 && attr.cur_qp_state != now {
        return Err(EINVAL);
    }
    let to = if mask & STATE == 0 { now } else { attr.qp_state };
    let given = mask & !(STATE | CUR_STATE);
    if to == RESET || to == ERR {
        return if given == 0 { Ok(to) } else { Err(EINVAL) };
    }
    let is_it = |rule: &&Rule| (rule.0, rule.1) == (now, to) && rule.2.contains(&kind);
    let (.., needs, allows) = *RULES.iter().find(is_it).ok_or(EINVAL)?;
    if given & needs != needs || given & !(needs | allows) != 0 {
        return Err(EINVAL);
    }
    let has = |bit: u32| mask & bit != 0;
    let port = if has(PORT) { u32::from(attr.port_num) } else { port };
    let spec = ports.get((port as usize).wrapping_sub(1)).ok_or(EINVAL)?;
    let in_range = !(has(PKEY_INDEX) && usize::from(attr.pkey_index) >= spec.pkeys.len().max(1))
        && !(has(PATH_MTU) && (!(1..=5).contains(&attr.path_mtu) || attr.path_mtu > u32::from(spec.mtu)))
        && !(has(TIMEOUT) && attr.timeout > 31)
        && !(has(RETRY_CNT) && attr.retry_cnt > 7)
        && !(has(RNR_RETRY) && attr.rnr_retry > 7)
        && !(has(MIN_RNR_TIMER) && attr.min_rnr_timer > 31)
        && !(has(MAX_QP_RD_ATOMIC) && i32::from(attr.max_rd_atomic) > limits.max_qp_init_rd_atom)
        && !(has(MAX_DEST_RD_ATOMIC) && i32::from(attr.max_dest_rd_atomic) > limits.max_qp_rd_atom)
        && !(has(DEST_QPN) && attr.dest_qp_num > 0xff_ffff);
    if in_range { Ok(to) } else { Err(EINVAL) }
}

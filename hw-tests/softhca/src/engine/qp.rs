// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs: as they lie in the region, how they are made, changed, stopped and ended.
//!
//! Called by: the C side, wire (the peer's), process (a dead one's), fabric (put-off failures). Grade: setup, but for the
//! structure itself, which is hot: its first two lines change on modify only, so both sides keep them cached.
//! Places of queue pairs never become anything else, so a stale number finds a queue pair that says it is another.
//! Lock order: `sq.lock` of one queue pair, then `resp.lock` of one, then a receive queue's, then a completion queue's.
//! `state` changes under `resp.lock`. A number is the place's index (16 bits) and its generation (8 bits).

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use super::{
    Errno, QpAttr, QpCap, QpInit, RecvWr, Result, Srq, ah,
    channel::{ABOUT_QP, Record},
    codes::{
        attr_mask, event,
        qp_state::{ERR, INIT, RESET, RTR, RTS, SQD},
        qp_type::{RC, UC, UD},
        wc_status,
    },
    cq,
    cq::CqShared,
    fabric::{Fabric, PutOff},
    hca::{Hca, MAX_INLINE},
    lock::SharedLock,
    pd::InPd,
    recv::RecvQueue,
    region::{Group, MAX_QPS, QP_BYTES, Shared, qp_at},
    sendq::{self, SendQueue},
    states,
    words::{W32, W64},
};

/// Numbers below are the special queue pairs'.
const FIRST_INDEX: u32 = 64;
/// So many places are used before any is used again.
const FRESH: u32 = 1024;

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
    pub(crate) pkey_index: W32,
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
    /// Among the free places: the next one plus one.
    next_free: W32,
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

    /// Tells its owner.
    pub(crate) fn raise(&self, fabric: &Fabric, event: u32) {
        let record = Record { about: ABOUT_QP, id: self.qpn.get(), event, cookie: self.cookie.get() };
        fabric.pipes.send(self.context.get(), record);
    }

    /// Enters the error state, as far as `resp.lock`, which the caller holds, allows: receives are flushed here, sends by
    /// whoever settles what was put off.
    pub(crate) fn fail_receives(&self, fabric: &Fabric) {
        let before = self.state.get();
        self.state.publish(ERR);
        if self.srq.get() != 0 {
            if before != ERR && before != RESET && before != INIT {
                self.raise(fabric, event::QP_LAST_WQE_REACHED);
            }
            return;
        }
        // Under the poster's lock: a request posted at this moment is either flushed here or sees the state.
        let _posting = self.rq.posting.lock.lock(fabric);
        while let Some(wqe) = self.rq.take(fabric) {
            if let Some(reserved) = self.recv_cq(fabric).reserve(fabric) {
                reserved.commit(fabric, self, &cq::failed_recv(wc_status::WR_FLUSH_ERR, wqe));
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

fn all(fabric: &Fabric) -> impl Iterator<Item = &'static QpShared> {
    let region = fabric.region();
    let used = region.header().qps_used.seen();
    (0..used).map(|index| region.at::<QpShared>(qp_at(FIRST_INDEX + index))).filter(|qp| qp.qpn.get() != 0)
}

/// Stops all queue pairs that complete to this queue.
pub(crate) fn fail_all_with(fabric: &Fabric, cq: u64) {
    for qp in all(fabric).filter(|qp| qp.send_cq.get() == cq || qp.recv_cq.get() == cq) {
        flush_sends(fabric, qp.index());
    }
}

/// The queue pairs whose sends wait for a request in this shared receive queue.
pub(crate) fn waiting_for(fabric: &Fabric, srq: u64) -> Vec<u32> {
    let waited = |qp: &&QpShared| qp.srq.get() == srq && qp.rq.wanted.get() != 0;
    all(fabric)
        .filter(waited)
        .map(|qp| {
            qp.rq.wanted.set(0);
            qp.dest_qpn.get() & 0xffff
        })
        .collect()
}

/// Frees the queue pairs of a dead process.
pub(crate) fn release_all_of(fabric: &Fabric, token: u32) {
    for qp in all(fabric).filter(|qp| qp.owner.get() == token) {
        release(fabric, qp);
    }
}

/// Takes the queue pair out of the world: nobody can find it, or is still working on it, when this returns.
fn release(fabric: &Fabric, qp: &QpShared) {
    leave_groups(fabric, qp.index(), None);
    let index = qp.index();
    {
        let _sends = qp.sq.lock.lock(fabric);
        let _answers = qp.resp.lock.lock(fabric);
        qp.state.publish(RESET);
        qp.qpn.publish(0);
        qp.sq.end(fabric);
        qp.rq.end(fabric);
    }
    let region = fabric.region();
    let header = region.header();
    let _tables = header.tables.lock(fabric);
    qp.next_free.set(0);
    match header.qps_free_last.get() {
        0 => header.qps_free.set(index + 1),
        last => region.at::<QpShared>(qp_at(last - 1)).next_free.set(index + 1),
    }
    header.qps_free_last.set(index + 1);
}

/// A free place, if possible one that has been free for long.
fn take_place(fabric: &Fabric) -> Result<&'static QpShared> {
    let region = fabric.region();
    let header = region.header();
    let _tables = header.tables.lock(fabric);
    let used = header.qps_used.get();
    let first = header.qps_free.get();
    // At first new places, so that a number is not soon given again; later, old ones, so that memory stays small.
    let index = if used < FRESH || (first == 0 && used < MAX_QPS - FIRST_INDEX) {
        header.qps_used.publish(used + 1);
        FIRST_INDEX + used
    } else {
        if first == 0 {
            return Err(Errno(libc::ENOMEM));
        }
        let next = region.at::<QpShared>(qp_at(first - 1)).next_free.get();
        header.qps_free.set(next);
        if next == 0 {
            header.qps_free_last.set(0);
        }
        first - 1
    };
    let qp: &QpShared = region.at(qp_at(index));
    let generation = (qp.generation.get() + 1) & 0xff;
    qp.generation.set(generation);
    Ok(qp)
}

fn leave_groups(fabric: &Fabric, index: u32, gid: Option<[u64; 2]>) -> bool {
    let header = fabric.region().header();
    let _tables = header.tables.lock(fabric);
    let mut left = false;
    for group in &header.groups {
        if gid.is_some_and(|gid| gid != [group.gid[0].get(), group.gid[1].get()]) {
            continue;
        }
        for member in group.members.iter().filter(|member| member.get() == index + 1) {
            member.set(0);
            left = true;
        }
    }
    left
}

/// A queue pair.
pub struct Qp {
    pub(crate) hca: Arc<Hca>,
    pub(crate) shared: &'static QpShared,
    number: u32,
    cap: QpCap,
    /// As last set, for `query`.
    attr: Mutex<QpAttr>,
    /// What it uses; `None` once destroyed.
    uses: Mutex<Option<(InPd, Vec<Arc<AtomicU32>>)>>,
}

impl Qp {
    pub(crate) fn new(hca: &Arc<Hca>, init: &QpInit) -> Result<Qp> {
        if ![RC, UC, UD].contains(&init.kind) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let fabric = &*hca.fabric;
        let qp = take_place(fabric)?;
        let index = (fabric.region().offset_of(qp) - qp_at(0)) / QP_BYTES;
        let number = index as u32 | (qp.generation.get() << 16);
        let asked = &init.cap;
        let cap = QpCap {
            max_send_wr: asked.max_send_wr.max(1).next_power_of_two(),
            max_recv_wr: if init.srq.is_some() { 0 } else { asked.max_recv_wr.max(1).next_power_of_two() },
            max_send_sge: asked.max_send_sge.max(2),
            max_recv_sge: if init.srq.is_some() { 0 } else { asked.max_recv_sge.max(1) },
            max_inline_data: MAX_INLINE,
        };
        qp.kind.set(init.kind);
        qp.state.set(RESET);
        qp.owner.set(fabric.token());
        qp.device.set(hca.device as u32);
        qp.port.set(1);
        qp.epoch.set((qp.epoch.get() + 1) & 0xff);
        qp.pd.set(init.pd.0.id);
        qp.signal_all.set(u32::from(init.sq_sig_all));
        qp.send_cq.set(init.send_cq.offset);
        qp.recv_cq.set(init.recv_cq.offset);
        qp.srq.set(init.srq.map_or(0, |srq| srq.offset));
        qp.cookie.set(init.cookie);
        qp.context.set(hca.events.id);
        qp.sq.begin(fabric, cap.max_send_wr, cap.max_send_sge)?;
        if init.srq.is_none() {
            qp.rq
                .begin(fabric, cap.max_recv_wr, cap.max_recv_sge, init.pd.0.id, false)
                .inspect_err(|_| qp.sq.end(fabric))?;
        }
        let mut counters = vec![Arc::clone(&init.send_cq.users), Arc::clone(&init.recv_cq.users)];
        counters.extend(init.srq.map(|srq: &Srq| Arc::clone(&srq.users)));
        for counter in &counters {
            counter.fetch_add(1, Ordering::AcqRel);
        }
        hca.events.expect(ABOUT_QP, number);
        let made = Qp {
            hca: Arc::clone(hca),
            shared: qp,
            number,
            cap,
            attr: Mutex::default(),
            uses: Mutex::new(Some((init.pd.enter(), counters))),
        };
        made.reset();
        qp.qpn.publish(number);
        Ok(made)
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

    /// Back to the beginning: no requests, no completions of former ones. Both locks held, or nobody knows it.
    fn reset(&self) {
        let (fabric, qp) = (&*self.hca.fabric, self.shared);
        qp.epoch.set((qp.epoch.get() + 1) & 0xff);
        qp.sq.clear();
        qp.resp.psn.set(0);
        qp.resp.established.set(0);
        if qp.srq.get() == 0 {
            qp.rq.clear(fabric);
        }
        qp.rq.wanted.set(0);
        qp.dest_qpn.set(0);
        qp.to_port.set(0);
        qp.access.set(0);
        qp.qkey.set(0);
        *self.attr.lock().unwrap_or_else(PoisonError::into_inner) = QpAttr { cap: self.cap, ..QpAttr::default() };
    }

    /// Changes attributes; `mask` is `codes::attr_mask`.
    /// # Errors
    /// EINVAL: a transition or mask that the state machine does not have, or a value out of range.
    pub fn modify(&self, attr: &QpAttr, mask: u32) -> Result<()> {
        let (fabric, qp) = (&*self.hca.fabric, self.shared);
        let mut kick = None;
        {
            let _sends = qp.sq.lock.lock(fabric);
            let now = qp.state.get();
            let spec = self.hca.spec();
            let limits = self.hca.limits();
            let to = states::check(qp.kind.get(), now, attr, mask, &spec.ports, qp.port.get(), limits)?;
            if mask & attr_mask::AV != 0 {
                ah::check(&self.hca, &attr.ah_attr)?;
            }
            if to == ERR {
                if now == RESET {
                    qp.state.publish(ERR);
                } else {
                    sendq::fail(fabric, qp);
                }
            } else {
                let _answers = qp.resp.lock.lock(fabric);
                if to == RESET {
                    qp.state.publish(RESET);
                    let _posting = qp.rq.posting.lock.lock(fabric);
                    self.reset();
                } else {
                    self.apply(attr, mask);
                    qp.state.publish(to);
                }
            }
            if to == RTR || (to == RTS && now != RTS) {
                kick = Some(qp.dest_qpn.get());
            }
            if to == RTS && now == SQD {
                sendq::run(fabric, qp, false);
            }
            if to == SQD && now == RTS && mask & attr_mask::EN_SQD_ASYNC_NOTIFY != 0 && attr.en_sqd_async_notify != 0 {
                qp.raise(fabric, event::SQ_DRAINED);
            }
        }
        if let Some(peer) = kick.filter(|_| qp.kind.get() == RC) {
            // It may have sent before we were ready, and waits.
            let other = place(fabric, peer);
            if other.qpn.get() == peer {
                fabric.service.watch_process(fabric, other.owner.get());
                fabric.put_off(PutOff::Kick(peer & 0xffff));
            }
        }
        fabric.settle();
        Ok(())
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
            qp.pkey_index.set(u32::from(attr.pkey_index));
            kept.pkey_index = attr.pkey_index;
        }
        if has(attr_mask::ACCESS_FLAGS) {
            qp.access.set(attr.qp_access_flags);
            kept.qp_access_flags = attr.qp_access_flags;
        }
        if has(attr_mask::QKEY) {
            qp.qkey.set(attr.qkey);
            kept.qkey = attr.qkey;
        }
        if has(attr_mask::AV) {
            let path = super::AhAttr {
                port_num: if attr.ah_attr.port_num == 0 { qp.port.get() as u8 } else { attr.ah_attr.port_num },
                ..attr.ah_attr
            };
            let to = self.hca.fabric.route(self.hca.device, path.port_num, &path);
            qp.to_device.set(to.map_or(0, |to| to.0));
            qp.to_port.set(to.map_or(0, |to| to.1));
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

    /// All attributes. Packet sequence numbers are those of now.
    #[must_use]
    pub fn query(&self) -> QpAttr {
        let mut attr = *self.attr.lock().unwrap_or_else(PoisonError::into_inner);
        attr.qp_state = self.state();
        attr.cur_qp_state = attr.qp_state;
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
        if qp.srq.get() != 0 {
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

    /// Joins a multicast group.
    /// # Errors
    /// EINVAL (not UD, not a multicast address), ENOMEM (too many groups or members).
    pub fn attach_mcast(&self, gid: &[u8; 16], _lid: u16) -> Result<()> {
        if self.shared.kind.get() != UD || gid[0] != 0xff {
            return Err(Errno(libc::EINVAL));
        }
        let fabric = &*self.hca.fabric;
        let key = group_key(gid);
        let header = fabric.region().header();
        let _tables = header.tables.lock(fabric);
        let is = |group: &&Group| [group.gid[0].get(), group.gid[1].get()] == key;
        let is_empty = |group: &&Group| group.members.iter().all(|member| member.get() == 0);
        let group =
            header.groups.iter().find(is).or_else(|| header.groups.iter().find(is_empty)).ok_or(Errno(libc::ENOMEM))?;
        let me = self.shared.index() + 1;
        if is(&group) && group.members.iter().any(|member| member.get() == me) {
            return Ok(());
        }
        let place = group.members.iter().find(|member| member.get() == 0).ok_or(Errno(libc::ENOMEM))?;
        group.gid[0].set(key[0]);
        group.gid[1].set(key[1]);
        place.publish(me);
        Ok(())
    }

    /// Leaves a multicast group.
    /// # Errors
    /// EINVAL: it is not a member.
    pub fn detach_mcast(&self, gid: &[u8; 16], _lid: u16) -> Result<()> {
        let left = leave_groups(&self.hca.fabric, self.shared.index(), Some(group_key(gid)));
        if left { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Ends it: its requests and completions are forgotten.
    /// # Errors
    /// EBUSY while attached to a multicast group.
    pub fn destroy(&self) -> Result<()> {
        let fabric = &*self.hca.fabric;
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let me = self.shared.index() + 1;
        let is_member = |group: &Group| group.members.iter().any(|member| member.get() == me);
        if uses.is_some() && fabric.region().header().groups.iter().any(is_member) {
            return Err(Errno(libc::EBUSY));
        }
        let Some((_in_pd, counters)) = uses.take() else { return Ok(()) };
        self.hca.events.forget(ABOUT_QP, self.number);
        release(fabric, self.shared);
        for counter in counters {
            counter.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// A group's address as two words.
pub(crate) fn group_key(gid: &[u8; 16]) -> [u64; 2] {
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| gid[at + i]));
    [half(0), half(8)]
}

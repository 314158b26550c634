// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair as a program holds it: queried, given requests, attached to multicast groups. Owns the groups of the
//! region, too; a member is the index of its queue pair plus one. Called by: `verbs`; datagram (the members of a
//! group). Grade: setup, but for `post_send` and `post_recv`, which are hot, and `members` for senders to groups.
//! Thread rule: any thread; changes of groups hold the region's lock of the tables.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::codes::qp_state::{ERR, RESET, SQD};
use crate::engine::codes::qp_type::UD;
use crate::engine::faults::verdict::on_post;
use crate::engine::memory::layout::Group;
use crate::engine::qp::table;
use crate::engine::send::post;
use crate::engine::{
    CqShared, Deferred, Errno, Fabric, Hca, QpAttr, QpCap, QpShared, RecvQueue, RecvWr, Result, SendWr, Use,
    run_deferred,
};

/// A queue pair.
pub struct Qp {
    pub(crate) hca: Arc<Hca>,
    pub(crate) shared: &'static QpShared,
    pub(super) number: u32,
    pub(super) cap: QpCap,
    /// The attributes as the program last set them, for `query`.
    pub(super) attr: Mutex<QpAttr>,
    /// Its domain and queues; `None` once destroyed.
    pub(super) uses: Mutex<Option<Vec<Use>>>,
    /// The shared queue its receives come from, and the queue they complete to.
    pub(super) shares: Option<(&'static RecvQueue, &'static CqShared)>,
    pub(super) spent: AtomicBool,
    /// Its completion queues: none, one or two.
    pub(super) completes_to: Vec<&'static CqShared>,
}

impl Qp {
    /// Returns the number: 24 bits.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the sizes granted.
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// Returns the `codes::qp_state` now.
    pub fn state(&self) -> u32 {
        self.shared.state.seen()
    }

    /// Returns all attributes. Packet sequence numbers are those of now.
    pub fn query(&self) -> QpAttr {
        let mut attr = *self.attr.lock().unwrap_or_else(PoisonError::into_inner);
        attr.qp_state = self.state();
        attr.cur_qp_state = attr.qp_state;
        attr.sq_draining = u8::from(attr.qp_state == SQD && self.shared.sq.wait.get() != 0);
        attr.qkey = self.shared.qkey.get();
        attr.dest_qp_num = self.shared.dest_qpn.get();
        attr.sq_psn = self.shared.sq.psn.get();
        attr.rq_psn = self.shared.resp.psn.get();
        attr.cap = self.cap;
        attr
    }

    /// Posts one send work request.
    /// Errors: ENOMEM (queue full), EINVAL (state, opcode, pieces, inline size), or the adapter's own error
    /// (`send::post`).
    #[inline(always)]
    pub fn post_send(&self, wr: &SendWr) -> Result<()> {
        let fabric = &*self.hca.fabric;
        if fabric.has_faults {
            on_post(fabric, self.shared)?;
        }
        let result = {
            let _held = self.shared.lock_sends(fabric);
            post::post(fabric, self.shared, wr)
        };
        run_deferred(fabric);
        result
    }

    /// Posts one receive work request.
    /// Errors: ENOMEM (queue full), EINVAL (RESET, shared receive queue, too many pieces).
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
            let _answers = qp.lock_answers(fabric);
            qp.fail_receives(fabric);
        } else if qp.rq.wanted.get() != 0 && qp.rq.wanted.swap(0) != 0 {
            fabric.deferred.add(Deferred::Retry(qp.dest_qpn.get() & 0xffff));
        }
        run_deferred(fabric);
        Ok(())
    }

    /// Joins a multicast group.
    /// Errors: EINVAL (not UD, not a multicast address), ENOMEM (too many groups or members).
    pub fn attach_mcast(&self, gid: &[u8; 16], _lid: u16) -> Result<()> {
        if self.shared.kind.get() != UD || gid[0] != 0xff {
            return Err(Errno(libc::EINVAL));
        }
        let (groups, key, me) = (&self.hca.fabric.header().groups, key_of(gid), self.shared.index() + 1);
        let _tables = table::lock(&self.hca.fabric);
        let is = |group: &&Group| group.key() == key;
        let is_empty = |group: &&Group| group.members.iter().all(|member| member.get() == 0);
        let group = groups.iter().find(is).or_else(|| groups.iter().find(is_empty)).ok_or(Errno(libc::ENOMEM))?;
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
    /// Errors: EINVAL: it is not a member.
    pub fn detach_mcast(&self, gid: &[u8; 16], _lid: u16) -> Result<()> {
        let is_left = leave(&self.hca.fabric, self.shared.index(), Some(gid));
        if is_left { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Forgets requests, completions and attributes. Both locks are held, or no other thread knows the queue pair.
    pub(super) fn reset(&self) {
        let (fabric, qp) = (&*self.hca.fabric, self.shared);
        qp.epoch.set((qp.epoch.get() + 1) & 0xff);
        qp.sq.clear();
        qp.resp.psn.set(0);
        qp.resp.established.set(0);
        qp.resp.in_hand.set(0);
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

impl Group {
    fn key(&self) -> [u64; 2] {
        [self.gid[0].get(), self.gid[1].get()]
    }
}

fn key_of(gid: &[u8; 16]) -> [u64; 2] {
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| gid[at + i]));
    [half(0), half(8)]
}

pub(crate) fn members(fabric: &Fabric, gid: &[u8; 16]) -> impl Iterator<Item = u32> {
    let key = key_of(gid);
    let group = fabric.header().groups.iter().find(|group| group.key() == key);
    group.into_iter().flat_map(|group| &group.members).filter_map(|member| member.seen().checked_sub(1))
}

pub(super) fn is_member(fabric: &Fabric, index: u32) -> bool {
    fabric.header().groups.iter().any(|group| group.members.iter().any(|member| member.get() == index + 1))
}

/// Removes queue pair `index` from the group `gid`, or from all groups; returns whether it was in one.
pub(super) fn leave(fabric: &Fabric, index: u32, gid: Option<&[u8; 16]>) -> bool {
    let header = fabric.header();
    let key = gid.map(key_of);
    let _tables = table::lock(fabric);
    let mut left = false;
    for group in header.groups.iter().filter(|group| key.is_none_or(|key| key == group.key())) {
        for member in group.members.iter().filter(|member| member.get() == index + 1) {
            member.set(0);
            left = true;
        }
    }
    left
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared receive queues, plain and of XRC, as a program holds them; the queue itself is `queue`. Called by: `verbs`.
//! Grade: posting is hot. Thread rule: any thread.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::codes::event;
use crate::engine::qp::table;
use crate::engine::recv::xrc;
use crate::engine::{Cq, Deferred, Errno, Hca, Pd, RecvQueue, RecvWr, Result, Use, Users, Xrcd, run_deferred};

/// A shared receive queue.
pub struct Srq {
    hca: Arc<Hca>,
    /// For XRC: its number there.
    xrc: Option<u32>,
    pub(crate) offset: u64,
    shared: &'static RecvQueue,
    /// Its domains and, for XRC, its completion queue; `None` once destroyed.
    uses: Mutex<Option<Vec<Use>>>,
    pub(crate) users: Users,
    /// Memory that it has outgrown, which a thread may still read.
    outgrown: Mutex<Vec<u64>>,
}

impl Srq {
    /// Posts requests until one is refused.
    /// Errors: ENOMEM (full) or EINVAL (too many pieces) for the last request taken from `wrs`.
    pub fn post_recv<'a>(&self, wrs: impl IntoIterator<Item = RecvWr<'a>>) -> Result<()> {
        let fabric = &*self.hca.fabric;
        let result = {
            let _held = self.shared.posting.lock.lock(fabric);
            wrs.into_iter().try_for_each(|wr| self.shared.post(fabric, &wr))
        };
        if self.shared.wanted.get() != 0 && self.shared.wanted.swap(0) != 0 {
            for sender in table::waiting_for(fabric, self.offset) {
                fabric.deferred.add(Deferred::Retry(sender));
            }
        }
        run_deferred(fabric);
        result
    }

    /// Lets it hold at least `max_wr` requests.
    /// Errors: EINVAL: 0, more than the adapter can, or fewer than are in it now; ENOMEM.
    pub fn resize(&self, max_wr: u32) -> Result<()> {
        if max_wr == 0 || max_wr > self.hca.limits().max_srq_wr as u32 {
            return Err(Errno(libc::EINVAL));
        }
        let mut outgrown = self.outgrown.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.resize(&self.hca.fabric, max_wr, &mut outgrown)
    }

    /// Arms (non-zero) or disarms the limit event.
    /// Errors: EINVAL if greater than the size.
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        if limit > self.shared.capacity.get() {
            return Err(Errno(libc::EINVAL));
        }
        self.shared.limit.publish(limit);
        // Fewer than the new limit may be there already.
        let _held = self.shared.lock_taking(&self.hca.fabric);
        self.shared.check_limit(&self.hca.fabric);
        Ok(())
    }

    /// (`max_wr`, `max_sge`, limit): the sizes granted, and the limit, 0 once its event was given.
    pub fn query(&self) -> (u32, u32, u32) {
        (self.shared.capacity.get(), self.shared.max_sge.get(), self.shared.limit.seen())
    }

    /// Returns its number, for `ibv_get_srq_num`.
    pub fn number(&self) -> u32 {
        self.xrc.unwrap_or_else(|| self.shared.id.get())
    }

    /// Errors: EBUSY while a queue pair uses it.
    pub fn destroy(&self) -> Result<()> {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        self.users.are_gone()?;
        if let Some(_ended) = uses.take() {
            let fabric = &self.hca.fabric;
            if let Some(number) = self.xrc {
                // No program will poll its remaining completions.
                let cq = xrc::entry(fabric, number).cq(fabric);
                xrc::leave(fabric, number);
                cq.withdraw(fabric, 0, self.offset, |_| {});
            }
            self.shared.end(fabric);
            for block in self.outgrown.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                fabric.release(block);
            }
            fabric.release(self.offset);
        }
        Ok(())
    }
}

impl Hca {
    /// Creates a shared receive queue; with `xrc` for XRC connections of this domain, whose receives complete there.
    /// Errors: EINVAL, ENOMEM, or the adapter's own error if it has no shared receive queues.
    pub fn create_srq(
        self: &Arc<Self>,
        pd: &Pd,
        max_wr: u32,
        max_sge: u32,
        cookie: u64,
        xrc: Option<(&Xrcd, &Cq)>,
    ) -> Result<Srq> {
        let (limits, ways) = (self.limits(), self.behaviour());
        if !ways.srq {
            return Err(Errno(ways.srq_errno.number()));
        }
        if max_wr == 0 || max_wr > limits.max_srq_wr as u32 || max_sge > limits.max_srq_sge as u32 {
            return Err(Errno(libc::EINVAL));
        }
        let fabric = &self.fabric;
        let offset = fabric.allocate(size_of::<RecvQueue>() as u64)?;
        let shared: &RecvQueue = fabric.region().at(offset);
        shared.begin(fabric, max_wr, max_sge, pd.id, true).inspect_err(|_| fabric.release(offset))?;
        let tells = ways.async_events.raises(event::SRQ_LIMIT_REACHED);
        shared.context.set(if tells { self.events.id } else { 0 });
        shared.id.set(fabric.next_id() & 0xff_ffff);
        shared.cookie.set(cookie);
        let mut held = vec![pd.users.enter()];
        let enter = |(domain, cq): (&Xrcd, &Cq)| {
            held.extend([domain.users.enter(), cq.users.enter()]);
            xrc::enter(fabric, domain.id, pd.id, offset, cq.offset).inspect_err(|_| {
                shared.end(fabric);
                fabric.release(offset);
            })
        };
        let xrc = xrc.map(enter).transpose()?;
        let (users, outgrown) = Default::default();
        Ok(Srq { hca: Arc::clone(self), xrc, offset, shared, uses: Mutex::new(Some(held)), users, outgrown })
    }
}

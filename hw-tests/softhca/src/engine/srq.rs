// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared receive queues.
//!
//! Called by: the C side. Grade: posting is hot. Thread rule: any thread. The queue itself is `recv`.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use super::{
    Errno, Pd, RecvWr, Result, alloc, channel::ABOUT_SRQ, fabric::PutOff, hca::Hca, pd::InPd, qp, recv::RecvQueue,
};

/// A shared receive queue.
pub struct Srq {
    hca: Arc<Hca>,
    pub(crate) offset: u64,
    shared: &'static RecvQueue,
    in_pd: Mutex<Option<InPd>>,
    pub(crate) users: Arc<AtomicU32>,
}

impl Srq {
    pub(crate) fn new(hca: &Arc<Hca>, pd: &Pd, max_wr: u32, max_sge: u32, limit: u32, cookie: u64) -> Result<Srq> {
        let fabric = &hca.fabric;
        let offset = alloc::allocate(fabric, size_of::<RecvQueue>() as u64)?;
        let shared: &RecvQueue = fabric.region().at(offset);
        shared.begin(fabric, max_wr, max_sge, pd.0.id, true).inspect_err(|_| alloc::release(fabric, offset))?;
        shared.context.set(hca.events.id);
        shared.id.set(fabric.next_id() & 0xff_ffff);
        shared.cookie.set(cookie);
        shared.limit.set(limit);
        hca.events.expect(ABOUT_SRQ, shared.id.get());
        Ok(Srq { hca: Arc::clone(hca), offset, shared, in_pd: Mutex::new(Some(pd.enter())), users: Arc::default() })
    }

    /// # Errors
    /// The index of the first request not posted, and ENOMEM (full) or EINVAL (too many pieces).
    pub fn post_recv(&self, wrs: &[RecvWr]) -> std::result::Result<(), (usize, Errno)> {
        let fabric = &*self.hca.fabric;
        let mut result = Ok(());
        {
            let _held = self.shared.posting.lock.lock(fabric);
            for (index, wr) in wrs.iter().enumerate() {
                if let Err(errno) = self.shared.post(fabric, wr) {
                    result = Err((index, errno));
                    break;
                }
            }
        }
        if self.shared.wanted.get() != 0 && self.shared.wanted.swap(0) != 0 {
            for sender in qp::waiting_for(fabric, self.offset) {
                fabric.put_off(PutOff::Kick(sender));
            }
        }
        fabric.settle();
        result
    }

    /// Arms (non-zero) or disarms the limit event.
    /// # Errors
    /// EINVAL if greater than the size.
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        if limit > self.shared.size() {
            return Err(Errno(libc::EINVAL));
        }
        self.shared.limit.publish(limit);
        // Fewer than the new limit may be there already.
        let _held = self.shared.lock_taking(&self.hca.fabric);
        super::landing::check_limit(&self.hca.fabric, self.shared);
        Ok(())
    }

    /// (`max_wr`, `max_sge`, limit): the sizes granted, and the limit, 0 once its event was given.
    #[must_use]
    pub fn query(&self) -> (u32, u32, u32) {
        (self.shared.size(), self.shared.max_sge(), self.shared.limit.seen())
    }

    /// Its number, for `ibv_get_srq_num`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.shared.id.get()
    }

    /// # Errors
    /// EBUSY while a queue pair uses it.
    pub fn destroy(&self) -> Result<()> {
        let mut in_pd = self.in_pd.lock().unwrap_or_else(PoisonError::into_inner);
        if self.users.load(Ordering::Acquire) != 0 {
            return Err(Errno(libc::EBUSY));
        }
        if in_pd.take().is_some() {
            self.hca.events.forget(ABOUT_SRQ, self.shared.id.get());
            self.shared.end(&self.hca.fabric);
            alloc::release(&self.hca.fabric, self.offset);
        }
        Ok(())
    }
}

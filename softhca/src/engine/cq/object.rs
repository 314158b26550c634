// SPDX-License-Identifier: MIT OR Apache-2.0
//! A completion queue as a program holds it: made, armed, resized, ended.
//!
//! Called by: the C side. Grade: setup, but for `arm`. Thread rule: any thread.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use crate::engine::{
    Errno, Result,
    adapter::{
        channel::{Channel, ChannelState},
        hca::Hca,
    },
    codes::event,
    cq::ring::{CqShared, PER_ENTRY},
    fabric::pipes::ABOUT_CQ,
    memory::layout::MAX_CARRIED,
    spec::work_request::{CQ_TIMESTAMP_RAW, CQ_TIMESTAMP_WALL},
};

/// A completion queue.
pub struct Cq {
    pub(crate) hca: Arc<Hca>,
    pub(crate) offset: u64,
    pub(super) shared: &'static CqShared,
    channel: Option<Arc<ChannelState>>,
    /// Queue pairs that complete here (twice if both ways).
    pub(crate) users: Arc<AtomicU32>,
    gone: Mutex<bool>,
}

impl Cq {
    /// Asks for one event on the channel at the next completion (or the next solicited one). An adapter that compares
    /// what it has completed with what was polled then gives it for the former ones, too.
    pub fn arm(&self, solicited_only: bool) {
        let fill = &self.shared.filling;
        let held = fill.lock.lock(&self.hca.fabric);
        if !solicited_only && let Some(ready_ns) = self.unread_that_is_told() {
            fill.armed.set(0);
            drop(held);
            return self.shared.notify(&self.hca.fabric, ready_ns);
        }
        // An outstanding request for any completion is not weakened by one for solicited ones.
        if !(solicited_only && fill.armed.get() == 1) {
            fill.armed.set(if solicited_only { 2 } else { 1 });
        }
    }

    /// The time from which the oldest unpolled completion may be seen, if there is one, and if the adapter gives an
    /// event for it when the queue is armed. The caller holds the fillers' lock.
    fn unread_that_is_told(&self) -> Option<u64> {
        let (fabric, shared) = (&*self.hca.fabric, self.shared);
        let is_told = fabric.devices()[shared.device.get() as usize].behaviour.arm_tells_of_unread;
        let head = shared.emptying.head.seen();
        let is_unread = is_told && head != shared.filling.tail.get();
        is_unread.then(|| if fabric.has_model { shared.extra(fabric, head).ready_ns.get() } else { 0 })
    }

    /// # Errors
    /// EINVAL if more completions wait than fit, ENOMEM.
    pub fn resize(&self, cqe: u32) -> Result<()> {
        let (fabric, cq) = (&*self.hca.fabric, self.shared);
        if cqe == 0 || cqe > self.hca.limits().max_cqe as u32 {
            return Err(Errno(libc::EINVAL));
        }
        let size = cqe.next_power_of_two();
        let fresh = fabric.allocate(u64::from(size) * PER_ENTRY)?;
        let old = {
            let _polling = cq.emptying.poll_lock.lock(fabric);
            let _filling = cq.filling.lock.lock(fabric);
            let (head, tail) = (cq.emptying.head.get(), cq.filling.tail.get());
            if tail.wrapping_sub(head) > size {
                fabric.release(fresh);
                return Err(Errno(libc::EINVAL));
            }
            let (old, old_size) = (cq.entries.get(), u64::from(cq.mask.get()) + 1);
            let region = fabric.region();
            for index in (0..tail.wrapping_sub(head)).map(|step| u64::from(head.wrapping_add(step))) {
                let (from, to) = (index & (old_size - 1), index & (u64::from(size) - 1));
                let parts = [(0, 64), (64, 64), (128, u64::from(MAX_CARRIED))];
                for (before, bytes) in parts {
                    let source = region.bytes(old + before * old_size + from * bytes);
                    let target = region.bytes(fresh + before * u64::from(size) + to * bytes);
                    // SAFETY: both places are inside their rings, which both locks give to us (rule M2).
                    unsafe { std::ptr::copy_nonoverlapping(source, target, bytes as usize) };
                }
            }
            cq.mask.set(size - 1);
            cq.entries.publish(fresh);
            cq.filling.head_seen.set(head);
            old
        };
        fabric.release(old);
        Ok(())
    }

    /// How many completions fit.
    #[must_use]
    pub fn cqe(&self) -> u32 {
        (self.shared.mask.get() + 1).min(self.hca.limits().max_cqe as u32)
    }

    /// # Errors
    /// EBUSY while a queue pair uses it.
    pub fn destroy(&self) -> Result<()> {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if self.users.load(Ordering::Acquire) != 0 {
            return Err(Errno(libc::EBUSY));
        }
        if std::mem::replace(&mut *gone, true) {
            return Ok(());
        }
        let id = self.shared.id.get();
        self.hca.events.forget(ABOUT_CQ, id);
        if let Some(channel) = &self.channel {
            channel.mailbox.forget(ABOUT_CQ, id);
            channel.users.fetch_sub(1, Ordering::AcqRel);
        }
        self.hca.fabric.release(self.shared.entries.get());
        self.hca.fabric.release(self.offset);
        Ok(())
    }
}

impl Hca {
    /// A completion queue for at least `cqe` completions; `cookie` comes back from `Channel::read_event` and in events.
    /// `flags`: `CQ_TIMESTAMP_*`.
    /// # Errors
    /// EINVAL, ENOMEM.
    pub fn create_cq(self: &Arc<Self>, cqe: u32, channel: Option<&Channel>, cookie: u64, flags: u32) -> Result<Cq> {
        if cqe == 0 || cqe > self.limits().max_cqe as u32 {
            return Err(Errno(libc::EINVAL));
        }
        let fabric = &self.fabric;
        let size = cqe.next_power_of_two();
        let offset = fabric.allocate(size_of::<CqShared>() as u64)?;
        let entries = fabric.allocate(u64::from(size) * PER_ENTRY).inspect_err(|_| fabric.release(offset))?;
        let shared: &CqShared = fabric.region().at(offset);
        let id = fabric.next_id();
        shared.id.set(id);
        shared.mask.set(size - 1);
        shared.flags.set(flags & (CQ_TIMESTAMP_RAW | CQ_TIMESTAMP_WALL));
        shared.stamping.set(shared.flags.get());
        shared.device.set(self.device as u32);
        shared.channel.set(channel.map_or(0, |channel| channel.0.mailbox.id));
        // An event that the adapter does not raise goes nowhere.
        let tells = self.behaviour().async_events.raises(event::CQ_ERR);
        shared.context.set(if tells { self.events.id } else { 0 });
        shared.owner.set(fabric.token());
        shared.cookie.set(cookie);
        shared.entries.publish(entries);
        self.events.expect(ABOUT_CQ, id);
        if let Some(channel) = channel {
            channel.0.users.fetch_add(1, Ordering::AcqRel);
            channel.0.mailbox.expect(ABOUT_CQ, id);
        }
        Ok(Cq {
            hca: Arc::clone(self),
            offset,
            shared,
            channel: channel.map(|channel| Arc::clone(&channel.0)),
            users: Arc::default(),
            gone: Mutex::new(false),
        })
    }
}

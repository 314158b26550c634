// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended reliable connections: domains that processes share, and their shared receive queues, found by number. A
//! request on an XRC connection names the queue that takes it, which may be another process' than the queue pair it
//! arrives at. Owns the table of those queues, and the header's table of domains opened by a file. Called by: `verbs`
//! (domains), srq (enters a queue), wire (finds one), burial. Grade: setup, but for `find`. Thread rule: the region's
//! lock of the tables guards domains and the entering of queues. A thread that delivers to a queue holds its entry's
//! lock, after a queue pair's responder lock and before the queue's. Source: InfiniBand annex A14; `ibv_open_xrcd(3)`.

use std::sync::Arc;

use crate::engine::memory::layout::{MAX_XRC_QUEUES, OpenDomain, xrc_queue_at};
use crate::engine::qp::table;
use crate::engine::{CqShared, Errno, Fabric, Hca, Held, RecvQueue, Result, Shared, SharedLock, Users, W32, W64};

#[repr(C, align(64))]
pub(crate) struct XrcQueue {
    lock: SharedLock,
    /// 0 while free.
    number: W32,
    generation: W32,
    pub(crate) owner: W32,
    domain: W32,
    pub(crate) pd: W32,
    /// The queue, and the completion queue of its receives.
    pub(crate) queue: W64,
    cq: W64,
}

// SAFETY: words only, repr(C), zero is a free place.
unsafe impl Shared for XrcQueue {}

const _: () = assert!(size_of::<XrcQueue>() == 64);

/// Bits of a number that are the index of the entry; the rest, to 24, are the generation.
const INDEX_BITS: u32 = MAX_XRC_QUEUES.trailing_zeros();

pub(crate) fn entry(fabric: &Fabric, number: u32) -> &'static XrcQueue {
    fabric.region().at(xrc_queue_at(number & (MAX_XRC_QUEUES - 1)))
}

/// Returns the queue of this number, if it is of this domain; it does not go away while the lock is held.
pub(crate) fn find(fabric: &Fabric, number: u32, domain: u32) -> Option<(&'static XrcQueue, Held<'static>)> {
    let entry = entry(fabric, number);
    let held = entry.lock.lock(fabric);
    if held.is_inherited && entry.number.get() != 0 {
        entry.queue(fabric).inherit(fabric);
        entry.cq(fabric).inherit(fabric);
    }
    (number != 0 && entry.number.get() == number && entry.domain.get() == domain).then_some((entry, held))
}

/// Enters the queue at `queue` under a new number of `domain` and returns the number; ENOMEM if no entry is free.
pub(crate) fn enter(fabric: &Fabric, domain: u32, pd: u32, queue: u64, cq: u64) -> Result<u32> {
    let _tables = table::lock(fabric);
    let (index, entry) = (0..MAX_XRC_QUEUES)
        .map(|index| (index, entry(fabric, index)))
        .find(|(_, entry)| entry.number.get() == 0)
        .ok_or(Errno(libc::ENOMEM))?;
    let _held = entry.lock.lock(fabric);
    let generation = (entry.generation.get() + 1) & ((1 << (24 - INDEX_BITS)) - 1);
    entry.generation.set(generation.max(1));
    entry.owner.set(fabric.token());
    entry.domain.set(domain);
    entry.pd.set(pd);
    entry.queue.set(queue);
    entry.cq.set(cq);
    let number = (generation.max(1) << INDEX_BITS) | index;
    entry.number.publish(number);
    Ok(number)
}

/// Removes the queue of this number: when this returns, no thread finds it or delivers to it.
pub(crate) fn leave(fabric: &Fabric, number: u32) {
    let entry = entry(fabric, number);
    let _held = entry.lock.lock(fabric);
    if entry.number.get() == number {
        entry.number.publish(0);
    }
}

/// Finishes changes that a dead process has begun at queues of others; removes its own queues, and closes its domains.
pub(crate) fn release_all_of(fabric: &Fabric, token: u32) {
    for index in 0..MAX_XRC_QUEUES {
        let entry = entry(fabric, index);
        if entry.lock.is_of(token) {
            drop(find(fabric, index, 0));
        }
        if entry.number.get() != 0 && entry.owner.get() == token {
            leave(fabric, entry.number.get());
        }
    }
    let _tables = table::lock(fabric);
    for domain in fabric.header().domains.iter().filter(|domain| domain.owner.get() == token) {
        domain.owner.publish(0);
    }
}

impl XrcQueue {
    pub(crate) fn queue(&self, fabric: &Fabric) -> &'static RecvQueue {
        fabric.region().at(self.queue.get())
    }

    pub(crate) fn cq(&self, fabric: &Fabric) -> &'static CqShared {
        fabric.region().at(self.cq.get())
    }
}

/// How a domain is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcdOpen {
    /// Device and number of the file that names it: processes that open it by the same file share it. `None`: private.
    pub file: Option<(u64, u64)>,
    /// Make it if no process has it open.
    pub create: bool,
    /// Fail if a process has it open.
    pub exclusive: bool,
}

/// An XRC domain.
pub struct Xrcd {
    hca: Arc<Hca>,
    pub(crate) id: u32,
    /// Its place among the opened ones, if a file names it.
    place: Option<usize>,
    pub(crate) users: Users,
}

impl Xrcd {
    /// Errors: EBUSY while a queue or queue pair of this process is in it.
    pub fn close(&self) -> Result<()> {
        self.users.are_gone()?;
        if let Some(place) = self.place {
            let _tables = table::lock(&self.hca.fabric);
            self.hca.fabric.header().domains[place].owner.publish(0);
        }
        Ok(())
    }
}

impl Hca {
    /// Opens an XRC domain.
    /// Errors: EAGAIN (not open, and not to be made), EINVAL (open, and `exclusive`; or private without `create`),
    /// ENOMEM.
    pub fn open_xrcd(self: &Arc<Self>, how: XrcdOpen) -> Result<Xrcd> {
        let fabric = &self.fabric;
        let mut id = fabric.next_id();
        let mut place = None;
        if let Some(file) = how.file {
            let header = fabric.header();
            let _tables = table::lock(fabric);
            let is_it = |domain: &&OpenDomain| {
                domain.owner.get() != 0
                    && domain.device.get() == self.device as u32
                    && (domain.file[0].get(), domain.file[1].get()) == file
            };
            match header.domains.iter().find(is_it) {
                Some(_) if how.exclusive => return Err(Errno(libc::EINVAL)),
                Some(domain) => id = domain.id.get(),
                None if how.create => {}
                None => return Err(Errno(libc::EAGAIN)),
            }
            let free = header.domains.iter().position(|domain| domain.owner.get() == 0).ok_or(Errno(libc::ENOMEM))?;
            let domain = &header.domains[free];
            domain.device.set(self.device as u32);
            domain.id.set(id);
            domain.file[0].set(file.0);
            domain.file[1].set(file.1);
            domain.owner.publish(fabric.token());
            place = Some(free);
        } else if !how.create {
            return Err(Errno(libc::EINVAL));
        }
        Ok(Xrcd { hca: Arc::clone(self), id, place, users: Users::default() })
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of receive requests, a queue pair's own or shared by several. Called by: qp and srq (post), wire (takes
//! one for a message), `cq::poll` (looks up the memory for a payload, then frees the request). Grade: hot. The poster's
//! fields, the takers' and the constant ones lie on different cache lines. Takers look at the poster's line only when
//! the requests they knew of are used up, and at a request only if some request may be too short for the message.
//! Thread rule: posters hold `posting.lock`; takers of a shared queue hold `taking.lock`, those of a queue pair's own
//! its responder lock. A request is the taker's from the publication of `posted` until its owner's poll frees it; until
//! it completes, the taker's queue pair notes it, so that the next holder of the lock puts it back if the taker dies.

use crate::engine::codes::{access, event};
use crate::engine::mr::table;
use crate::engine::{
    ABOUT_SRQ, Errno, Fabric, Held, Pieces, QpShared, Record, RecvWr, Result, Sge, Shared, SharedLock, W32, W64, place,
};

/// A request as it lies in the ring (rule M2: plain; its poster's, then its taker's); its pieces follow.
#[repr(C)]
struct Request {
    wr_id: u64,
    pieces: u32,
    bytes: u32,
    /// In the free list of a shared queue: the next free request plus one.
    next: u32,
    _pad: u32,
}

#[repr(C, align(64))]
pub(crate) struct Posting {
    pub(crate) lock: SharedLock,
    /// Number of requests ever posted; and ever freed.
    posted: W32,
    freed: W32,
    /// First free request plus one (shared queue).
    free: W32,
}

#[repr(C, align(64))]
struct Taking {
    lock: SharedLock,
    taken: W32,
    /// `posted` as last read.
    posted_seen: W32,
    /// Shared queue: index of the queue pair for which a request was last taken.
    taker: W32,
}

#[repr(C, align(64))]
pub(crate) struct RecvQueue {
    size: W32,
    stride: W32,
    pub(super) max_sge: W32,
    pd: W32,
    requests: W64,
    /// Shared queue: a ring of request numbers in the order of posting; 0 for a queue pair's own.
    order: W64,
    /// Complement of the least room of all posted requests, bytes; 0 if none was posted.
    not_shortest: W32,
    /// Not 0: some sender waits for a request (a hint; the sender's timer looks, too).
    pub(crate) wanted: W32,
    /// Shared queue: an event is due when fewer requests are left; 0 when not armed.
    pub(crate) limit: W32,
    /// Pipe of the limit event, and number and cookie of the shared queue.
    pub(crate) context: W32,
    pub(crate) id: W32,
    /// Shared queue: most requests in it, posted and not freed; at most `size`.
    pub(super) capacity: W32,
    pub(crate) cookie: W64,
    pub(crate) posting: Posting,
    taking: Taking,
}

// SAFETY: words and such structures only, repr(C), zero is an empty queue of size 0.
unsafe impl Shared for RecvQueue {}

impl RecvQueue {
    pub(crate) fn begin(&self, fabric: &Fabric, size: u32, max_sge: u32, pd: u32, shared: bool) -> Result<()> {
        let size = size.max(1).next_power_of_two();
        let max_sge = max_sge.max(1);
        let stride = (size_of::<Request>() as u32 + max_sge * size_of::<Sge>() as u32).next_multiple_of(64);
        let requests = fabric.allocate(u64::from(size) * u64::from(stride))?;
        let order =
            if shared { fabric.allocate(u64::from(size) * 4).inspect_err(|_| fabric.release(requests))? } else { 0 };
        self.size.set(size);
        self.capacity.set(size);
        self.stride.set(stride);
        self.max_sge.set(max_sge);
        self.pd.set(pd);
        self.order.set(order);
        self.requests.set(requests);
        self.limit.set(0);
        self.wanted.set(0);
        self.clear(fabric);
        Ok(())
    }

    /// Forgets all requests. The caller holds both sides' locks, or no other thread knows the queue.
    pub(crate) fn clear(&self, fabric: &Fabric) {
        self.not_shortest.set(0);
        self.posting.posted.set(0);
        self.posting.freed.set(0);
        self.taking.taken.set(0);
        self.taking.posted_seen.set(0);
        if self.order.get() != 0 {
            self.posting.free.set(0);
            self.add_free(fabric, 0);
        }
    }

    /// Puts requests from `first` on into the free list, the lowest in front.
    fn add_free(&self, fabric: &Fabric, first: u32) {
        for index in (first..self.size.get()).rev() {
            // SAFETY: inside the ring, and no request yet (rule M2).
            unsafe { (*self.request(fabric, index)).next = self.posting.free.get() };
            self.posting.free.set(index + 1);
        }
    }

    /// Lets a shared queue hold at least `capacity` requests; EINVAL: more are in it; ENOMEM. `outgrown` gets its
    /// former memory, to be released when no thread can be reading there: when the queue ends.
    pub(crate) fn resize(&self, fabric: &Fabric, capacity: u32, outgrown: &mut Vec<u64>) -> Result<()> {
        let capacity = capacity.next_power_of_two();
        let _posting = self.posting.lock.lock(fabric);
        let _taking = self.lock_taking(fabric);
        let posted = self.posting.posted.get();
        if posted.wrapping_sub(self.posting.freed.get()) > capacity {
            return Err(Errno(libc::EINVAL));
        }
        let (before, region) = (self.size.get(), fabric.region());
        if capacity > before {
            let stride = u64::from(self.stride.get());
            let requests = fabric.allocate(u64::from(capacity) * stride)?;
            let order = fabric.allocate(u64::from(capacity) * 4).inspect_err(|_| fabric.release(requests))?;
            let (from, to) = (region.bytes(self.requests.get()), region.bytes(requests));
            // SAFETY: both rings have room for the former size; requests that are taken do not change (rule M2).
            unsafe { std::ptr::copy_nonoverlapping(from, to, (u64::from(before) * stride) as usize) };
            let mut count = self.taking.taken.get();
            while count != posted {
                let place = region.at::<W32>(order + u64::from(count & (capacity - 1)) * 4);
                place.set(self.order_of(fabric, count).get());
                count = count.wrapping_add(1);
            }
            outgrown.extend([self.requests.get(), self.order.get()]);
            self.requests.publish(requests);
            self.order.set(order);
            self.size.set(capacity);
            self.add_free(fabric, before);
        }
        self.capacity.set(capacity);
        Ok(())
    }

    pub(crate) fn end(&self, fabric: &Fabric) {
        fabric.release(self.requests.swap(0));
        fabric.release(self.order.swap(0));
        self.size.set(0);
    }

    fn request(&self, fabric: &Fabric, index: u32) -> *mut Request {
        fabric.region().bytes(self.requests.get() + u64::from(index) * u64::from(self.stride.get())).cast()
    }

    /// Index of the request that a completion names: by a count in a queue pair's own queue, by index in a shared one.
    fn place(&self, wqe: u32) -> u32 {
        if self.order.get() == 0 { wqe.wrapping_sub(1) & (self.size.get() - 1) } else { wqe }
    }

    /// Appends a request. The caller holds `posting.lock`. ENOMEM: full; EINVAL: too many pieces.
    #[inline(always)]
    pub(crate) fn post(&self, fabric: &Fabric, wr: &RecvWr) -> Result<()> {
        if wr.sge.len() > self.max_sge.get() as usize {
            return Err(Errno(libc::EINVAL));
        }
        let posted = self.posting.posted.get();
        let mask = self.size.get() - 1;
        let is_own = self.order.get() == 0;
        let place = if is_own {
            if posted.wrapping_sub(self.posting.freed.seen()) > mask {
                return Err(Errno(libc::ENOMEM));
            }
            posted & mask
        } else {
            let is_full = posted.wrapping_sub(self.posting.freed.get()) >= self.capacity.get();
            match self.posting.free.get() {
                first if first != 0 && !is_full => first - 1,
                _ => return Err(Errno(libc::ENOMEM)),
            }
        };
        let request = self.request(fabric, place);
        if !is_own {
            // SAFETY: a request in the free list is the poster's (rule M2).
            self.posting.free.set(unsafe { (*request).next });
        }
        let mut bytes = 0_u32;
        let mut usable = true;
        for sge in wr.sge {
            bytes = bytes.saturating_add(sge.length);
            let len = u64::from(sge.length);
            let find = || table::find(fabric, sge.lkey, self.pd.get(), sge.addr, len, access::LOCAL_WRITE);
            usable &= len == 0 || find().is_some();
        }
        // SAFETY: the request is the poster's until `posted` is published; the stride has room for `max_sge` pieces.
        unsafe {
            (*request).wr_id = wr.wr_id;
            (*request).pieces = wr.sge.len() as u32;
            (*request).bytes = bytes;
            let list: *mut Sge = request.add(1).cast();
            std::ptr::copy_nonoverlapping(wr.sge.as_ptr(), list, wr.sge.len());
        }
        // A request that cannot be used counts as empty, so that takers look at it.
        let room = if usable { bytes } else { 0 };
        if !room > self.not_shortest.get() {
            self.not_shortest.set(!room);
        }
        if !is_own {
            self.order_of(fabric, posted).set(place);
        }
        self.posting.posted.publish(posted.wrapping_add(1));
        Ok(())
    }

    fn order_of(&self, fabric: &Fabric, count: u32) -> &'static W32 {
        fabric.region().at(self.order.get() + u64::from(count & (self.size.get() - 1)) * 4)
    }

    /// Returns the bytes that every request posted so far has room for.
    pub(crate) fn shortest(&self) -> u32 {
        !self.not_shortest.get()
    }

    /// Locks a shared queue for takers; those of a queue pair's own hold the responder lock.
    #[inline]
    pub(crate) fn lock_taking(&self, fabric: &Fabric) -> Option<Held<'_>> {
        (self.order.get() != 0).then(|| {
            let held = self.taking.lock.lock(fabric);
            if held.is_inherited {
                self.forget_untaken(fabric);
            }
            held
        })
    }

    /// Called after a taker has died: removes its note of a request that it has not taken.
    #[cold]
    fn forget_untaken(&self, fabric: &Fabric) {
        let (taken, note) = (self.taking.taken.get(), &place(fabric, self.taking.taker.get()).resp.in_hand);
        if taken != self.posting.posted.seen() && note.get() == self.order_of(fabric, taken).get() + 1 {
            note.set(0);
        }
    }

    /// Takes the oldest request, if any, for a message to `qp`, which notes it. Returns its name in completions.
    #[inline]
    pub(crate) fn take(&self, fabric: &Fabric, qp: &QpShared) -> Option<u32> {
        let taken = self.taking.taken.get();
        if taken == self.taking.posted_seen.get() {
            self.taking.posted_seen.set(self.posting.posted.seen());
            if taken == self.taking.posted_seen.get() {
                return None;
            }
        }
        let next = taken.wrapping_add(1);
        let wqe = if self.order.get() == 0 {
            next
        } else {
            self.taking.taker.set(qp.index());
            self.order_of(fabric, taken).get()
        };
        // Noted before the taking: if this process dies in between, `inherit` drops the note, or puts nothing back.
        qp.resp.in_hand.publish(wqe.wrapping_add(1));
        self.taking.taken.publish(next);
        Some(wqe)
    }

    /// Called after a process has died that took a request here or put one back: takes over the locks that name it.
    #[cold]
    pub(crate) fn inherit(&self, fabric: &Fabric) {
        drop(self.posting.lock.lock(fabric));
        drop(self.lock_taking(fabric));
    }

    /// Puts back a request that was taken and will not complete: in a shared queue behind all others.
    #[cold]
    pub(crate) fn put_back(&self, fabric: &Fabric, wqe: u32) {
        if self.order.get() == 0 {
            return self.taking.taken.publish(wqe.wrapping_sub(1));
        }
        let _held = self.posting.lock.lock(fabric);
        let posted = self.posting.posted.get();
        self.order_of(fabric, posted).set(wqe);
        self.posting.freed.set(self.posting.freed.get().wrapping_add(1));
        self.posting.posted.publish(posted.wrapping_add(1));
    }

    /// Notifies a shared queue's owner once if requests are fewer than the limit. The caller holds the takers' lock.
    #[cold]
    pub(crate) fn check_limit(&self, fabric: &Fabric) {
        let limit = self.limit.get();
        let left = self.posting.posted.seen().wrapping_sub(self.taking.taken.get());
        if limit != 0 && left < limit && self.limit.replace(limit, 0) {
            self.raise(fabric, event::SRQ_LIMIT_REACHED);
        }
    }

    pub(crate) fn raise(&self, fabric: &Fabric, event: u32) {
        let record = Record { about: ABOUT_SRQ, id: self.id.get(), event, cookie: self.cookie.get() };
        fabric.pipes.send(self.context.get(), record);
    }

    pub(crate) fn wr_id(&self, fabric: &Fabric, wqe: u32) -> u64 {
        // SAFETY: a taken request does not change until freed (rule M2).
        unsafe { (*self.request(fabric, self.place(wqe))).wr_id }
    }

    pub(crate) fn room(&self, fabric: &Fabric, wqe: u32) -> u32 {
        // SAFETY: a taken request does not change until freed (rule M2).
        unsafe { (*self.request(fabric, self.place(wqe))).bytes }
    }

    /// Returns the memory of request `wqe`, in its owner's space; `None` if a registration does not allow to write it.
    #[inline]
    pub(crate) fn pieces(&self, fabric: &Fabric, wqe: u32, pd: u32) -> Option<Pieces> {
        let request = self.request(fabric, self.place(wqe));
        // SAFETY: a taken request does not change (rule M2); the stride has room for the pieces that `post` checked.
        let list = unsafe { std::slice::from_raw_parts(request.add(1).cast::<Sge>(), (*request).pieces as usize) };
        let pd = if self.order.get() == 0 { pd } else { self.pd.get() };
        let mut pieces = Pieces::new();
        for sge in list.iter().filter(|sge| sge.length != 0) {
            let len = u64::from(sge.length);
            pieces.push(table::find(fabric, sge.lkey, pd, sge.addr, len, access::LOCAL_WRITE)?, len);
        }
        Some(pieces)
    }

    /// Frees request `wqe`. Called by its owner's poll.
    #[inline]
    pub(crate) fn free(&self, fabric: &Fabric, wqe: u32) {
        if self.order.get() == 0 {
            self.posting.freed.publish(wqe);
            return;
        }
        let _held = self.posting.lock.lock(fabric);
        // SAFETY: a taken request belongs to its owner once its completion was polled (rule M2).
        unsafe { (*self.request(fabric, wqe)).next = self.posting.free.get() };
        self.posting.free.set(wqe + 1);
        self.posting.freed.set(self.posting.freed.get().wrapping_add(1));
    }
}

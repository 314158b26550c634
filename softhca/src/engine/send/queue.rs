// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of send requests in the region; a request executed at once is never stored. Called by: the queue pairs,
//! the rest of this folder. Grade: hot. Thread rule: `lock`.

use crate::engine::memory::layout::MAX_CARRIED;
use crate::engine::wire::{Operation, To};
use crate::engine::{Fabric, QpCap, Result, Sge, Shared, SharedLock, W32, W64, clock};

/// `SendQueue::wait`: why the oldest request waits.
pub(super) const NOTHING: u32 = 0;
pub(super) const RECEIVER: u32 = 1;
pub(super) const ANSWER: u32 = 2;
pub(super) const TURN: u32 = 3;

#[repr(C, align(64))]
pub(crate) struct SendQueue {
    pub(crate) lock: SharedLock,
    /// Number of requests ever posted, executed, and freed (by the poll of a completion).
    pub(super) posted: W32,
    pub(crate) done: W32,
    pub(crate) freed: W32,
    pub(super) size: W32,
    pub(super) stride: W32,
    pub(super) max_sge: W32,
    pub(crate) psn: W32,
    pub(super) requests: W64,
    pub(crate) wait: W32,
    pub(super) retries_left: W32,
    /// Time at which the oldest request is tried again.
    pub(crate) deadline: W64,
    /// Most bytes of inline data, and of any message.
    pub(super) max_inline: W32,
    pub(super) max_message: W32,
}

// SAFETY: words only, repr(C), zero is an empty queue.
unsafe impl Shared for SendQueue {}

const _: () = assert!(size_of::<SendQueue>() == 64);

/// A waiting request in the ring. Its pieces or its payload follow.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) wr_id: u64,
    pub(super) what: Operation,
    pub(super) len: u32,
    pub(super) pieces: u32,
    pub(super) carries: bool,
    pub(super) to: To,
}

const REQUEST_BYTES: u32 = size_of::<Request>() as u32;

impl SendQueue {
    pub(crate) fn begin(&self, fabric: &Fabric, cap: &QpCap, max_message: u32) -> Result<()> {
        let (size, max_sge) = (cap.max_send_wr, cap.max_send_sge);
        let tail = (max_sge * size_of::<Sge>() as u32).max(MAX_CARRIED).max(cap.max_inline_data);
        let stride = (REQUEST_BYTES + tail).next_multiple_of(64);
        self.requests.set(fabric.allocate(u64::from(size) * u64::from(stride))?);
        self.size.set(size);
        self.stride.set(stride);
        self.max_sge.set(max_sge);
        self.max_inline.set(cap.max_inline_data);
        self.max_message.set(max_message);
        self.clear();
        Ok(())
    }

    pub(crate) fn end(&self, fabric: &Fabric) {
        self.clear();
        fabric.release(self.requests.swap(0));
    }

    pub(crate) fn clear(&self) {
        for word in [&self.posted, &self.done, &self.freed, &self.wait, &self.psn] {
            word.set(0);
        }
        self.deadline.set(clock::NEVER);
    }

    /// Returns the place of the request of this number (rule M2: plain memory, guarded by `lock`).
    pub(super) fn request(&self, fabric: &Fabric, count: u32) -> *mut Request {
        let place = u64::from(count & (self.size.get() - 1));
        fabric.region().bytes(self.requests.get() + place * u64::from(self.stride.get())).cast()
    }
}

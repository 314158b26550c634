// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way in: receive slots, from the adapter to the plugin and back, and the batches in which they go back.
//!
//! A slot is with the adapter (posted), with the plugin (filled), or released and waiting for a batch to be full. Owned
//! by the port; used by `port/poll.rs`. Hot: a released slot is one push; every batch is one post. Sizes in bytes.
//! Tests: `port/tests/`.

use super::adapter::ReceiveQueue;
use super::watch;
use crate::counters::{Counters, add};
use std::io;

#[derive(Debug)]
pub(super) struct Rx<R> {
    queue: R,
    /// Slots of which the callbacks are done, not yet posted again.
    released: Vec<u32>,
    /// Receives the adapter has.
    posted: u32,
    batch: usize,
    /// Which of the process's ports it is of.
    port: u8,
}

impl<R: ReceiveQueue> Rx<R> {
    /// Posts all slots of `queue`, `batch` at a time.
    pub(super) fn new(queue: R, batch: usize, port: u8) -> io::Result<Self> {
        let released = (0..queue.slots()).rev().collect();
        let mut rx = Rx { queue, released, posted: 0, batch, port };
        while !rx.released.is_empty() {
            rx.post_batch()?;
        }
        Ok(rx)
    }

    /// Slots with the adapter, and those that wait to be posted again.
    #[cfg(test)]
    pub(super) fn slots(&self) -> (u32, usize) {
        (self.posted, self.released.len())
    }

    pub(super) fn queue(&self) -> &R {
        &self.queue
    }

    /// A message came into `slot`. Gives the address of its first byte.
    #[inline]
    pub(super) fn filled(&mut self, slot: u32, counters: &Counters) -> Option<u64> {
        self.posted = self.posted.wrapping_sub(1);
        if self.posted == 0 {
            add(&counters.receives_used_up, 1);
            watch::receives_used_up(self.port, self.queue.slots());
        }
        self.queue.address(slot)
    }

    /// Copies the bytes in `slot`, from its start on, into `into`. False where there is no such slot, or it is smaller.
    pub(super) fn copy(&self, slot: u32, into: &mut [u8]) -> bool {
        self.queue.copy(slot, into)
    }

    /// The bytes in `slot` are no longer needed. It goes back to the adapter with the next batch.
    #[inline]
    pub(super) fn release(&mut self, slot: u32) {
        self.released.push(slot);
    }

    /// Whether the adapter has less than a batch left.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        (self.posted as usize) < self.batch
    }

    /// Whether a batch is to be posted: there is a full one, or the adapter has no receive left.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.released.len() >= self.batch || self.posted == 0
    }

    /// Posts what is due.
    pub(super) fn post(&mut self) -> io::Result<()> {
        while self.is_due() && !self.released.is_empty() {
            self.post_batch()?;
        }
        Ok(())
    }

    #[inline(never)]
    fn post_batch(&mut self) -> io::Result<()> {
        let from = self.released.len().saturating_sub(self.batch);
        let posted = self.queue.post(&self.released[from..])?;
        // The provider takes them from the front of the chain.
        self.released.drain(from..from + posted);
        self.posted += posted as u32;
        Ok(())
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receive side of a port: receive slots, their way from the adapter to the plugin and back. A slot is posted to
//! the adapter, or filled and with the plugin, or released and waiting until a batch is full. Owned by the port; used
//! by `port/poll.rs`. Grade: hot: releasing a slot is one push; each batch is one post. Tests: `port/tests/`.

use super::adapter::ReceiveQueue;
use super::watch::{self, Numbers};
use crate::counters::{Counters, add};
use std::io;

#[derive(Debug)]
pub(super) struct Rx<R> {
    queue: R,
    released: Vec<u32>,
    posted: u32,
    batch: usize,
    port: Numbers,
}

impl<R: ReceiveQueue> Rx<R> {
    pub(super) fn new(queue: R, batch: usize, index: u8) -> io::Result<Self> {
        let released = (0..queue.slots()).rev().collect();
        let port = Numbers { index, place: index };
        let mut rx = Rx { queue, released, posted: 0, batch, port };
        while !rx.released.is_empty() {
            rx.post_batch()?;
        }
        Ok(rx)
    }

    pub(super) fn set_place(&mut self, place: u8) {
        self.port.place = place;
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> (u32, usize) {
        (self.posted, self.released.len())
    }

    pub(super) fn queue(&self) -> &R {
        &self.queue
    }

    /// Notes that a message filled `slot`. Returns the address of its first byte.
    #[inline]
    pub(super) fn filled(&mut self, slot: u32, counters: &Counters) -> Option<u64> {
        self.posted = self.posted.wrapping_sub(1);
        if self.posted == 0 {
            add(&counters.receives_used_up, 1);
            watch::receives_used_up(self.port, self.queue.slots());
        }
        self.queue.address(slot)
    }

    /// Copies the first bytes of `slot` into `into`. False if there is no such slot, or it is smaller.
    pub(super) fn copy(&self, slot: u32, into: &mut [u8]) -> bool {
        self.queue.copy(slot, into)
    }

    /// Releases `slot`. The next batch posts it again.
    #[inline]
    pub(super) fn release(&mut self, slot: u32) {
        self.released.push(slot);
    }

    /// Whether the adapter has less than a batch of receives left.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        (self.posted as usize) < self.batch
    }

    /// Whether to post a batch: a full one is released, or the adapter has no receive left.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.released.len() >= self.batch || self.posted == 0
    }

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
        self.released.drain(from..from + posted);
        self.posted += posted as u32;
        Ok(())
    }
}

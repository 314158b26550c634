// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receive side of a port: one arena of slots, one shared receive queue, and the batches in which slots go back to it.
//!
//! Used by `poll.rs`: a slot was filled, the plugin is through with it. Hot: a released slot is one push; every
//! batch is one post. Sizes in bytes. Device-free parts are tested through the device tests in `hw-tests`.

use crate::counters::{Counters, add};
use crate::event::WrId;
use crate::{events, watch};
use ibex_ffi::verbs::{Arena, ProtectionDomain, SharedReceiveQueue};
use std::io;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Receives {
    // The queue goes before the memory it receives into.
    srq: SharedReceiveQueue,
    arena: Arena,
    /// Slots of which the callbacks are done, not yet posted again.
    released: Vec<u32>,
    /// Receives the adapter has.
    level: u32,
    batch: usize,
    /// Which of the process's ports it is of.
    port: u8,
}

impl Receives {
    /// Registers `depth` slots of `size` bytes and posts them all.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        size: u32,
        depth: u32,
        batch: usize,
        port: u8,
    ) -> io::Result<Self> {
        let arena = Arena::new(domain, size as usize, depth as usize)?;
        let srq = SharedReceiveQueue::new(domain, depth, batch)?;
        let released = (0..depth).rev().collect();
        let mut receives = Receives { srq, arena, released, level: 0, batch, port };
        while !receives.released.is_empty() {
            receives.post_batch()?;
        }
        Ok(receives)
    }

    pub(crate) fn srq(&self) -> &SharedReceiveQueue {
        &self.srq
    }

    /// A message came into `slot`. Gives the address of its first byte.
    #[inline]
    pub(crate) fn filled(&mut self, slot: u32, counters: &Counters) -> Option<u64> {
        self.level = self.level.wrapping_sub(1);
        if self.level == 0 {
            add(&counters.receives_used_up, 1);
            if events::has_interest() {
                watch::receives_used_up(self.port, self.arena.count() as u32);
            }
        }
        self.arena.address(slot as usize)
    }

    /// Copies the bytes in `slot`, from its start on, into `into`. False where there is no such slot, or it is smaller.
    pub(crate) fn copy(&self, slot: u32, into: &mut [u8]) -> bool {
        self.arena.read(slot as usize, 0, into)
    }

    /// The bytes in `slot` are no longer needed. It goes back to the adapter with the next batch.
    #[inline]
    pub(crate) fn release(&mut self, slot: u32) {
        self.released.push(slot);
    }

    /// Whether the adapter has less than a batch left.
    #[inline]
    pub(crate) fn are_short(&self) -> bool {
        (self.level as usize) < self.batch
    }

    /// Whether a batch is to be posted: there is a full one, or the adapter has no receive left.
    #[inline]
    pub(crate) fn are_due(&self) -> bool {
        self.released.len() >= self.batch || self.level == 0
    }

    /// Posts what is due.
    pub(crate) fn post(&mut self) -> io::Result<()> {
        while self.are_due() && !self.released.is_empty() {
            self.post_batch()?;
        }
        Ok(())
    }

    #[inline(never)]
    fn post_batch(&mut self) -> io::Result<()> {
        let Receives { srq, arena, released, level, batch, .. } = self;
        let from = released.len().saturating_sub(*batch);
        let posted = srq.post(arena, &released[from..], |slot| WrId::receive(slot).0)?;
        // The provider takes them from the front of the chain.
        released.drain(from..from + posted);
        *level += posted as u32;
        Ok(())
    }
}

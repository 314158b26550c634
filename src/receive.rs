// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receive side of a port: one arena of slots, one shared receive queue, and the batches in which slots go back to it.
//!
//! Used by `poll.rs` (a slot was filled) and `port.rs` (the plugin releases it). Hot: a released slot is one push; every
//! batch is one post. Sizes in bytes. Device-free parts are tested through the device tests in `hw-tests`.

use crate::counters::{Counters, add};
use crate::event::WrId;
use ibex_ffi::verbs::{Arena, LocalSpan, ProtectionDomain, SharedReceiveQueue};
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
}

impl Receives {
    /// Registers `depth` slots of `size` bytes and posts them all.
    pub(crate) fn new(domain: &Arc<ProtectionDomain>, size: u32, depth: u32, batch: usize) -> io::Result<Self> {
        let arena = Arena::new(domain, size as usize, depth as usize)?;
        let srq = SharedReceiveQueue::new(domain, depth, batch)?;
        let released = (0..depth).rev().collect();
        let mut receives = Receives { srq, arena, released, level: 0, batch };
        while !receives.released.is_empty() {
            receives.post()?;
        }
        Ok(receives)
    }

    pub(crate) fn srq(&self) -> &SharedReceiveQueue {
        &self.srq
    }

    /// A message came into `slot`. Gives its memory.
    #[inline]
    pub(crate) fn filled(&mut self, slot: u32, counters: &Counters) -> Option<LocalSpan> {
        self.level = self.level.saturating_sub(1);
        if self.level == 0 {
            add(&counters.receives_used_up, 1);
        }
        self.arena.span(slot as usize)
    }

    /// Copies the bytes in `slot`, from its start on, into `into`. False where there is no such slot, or it is smaller.
    pub(crate) fn copy(&self, slot: u32, into: &mut [u8]) -> bool {
        self.arena.read(slot as usize, 0, into)
    }

    /// The bytes in `slot` are no longer needed. Goes back to the adapter with the next full batch.
    #[inline]
    pub(crate) fn release(&mut self, slot: u32) -> io::Result<()> {
        self.released.push(slot);
        if self.released.len() >= self.batch || self.level == 0 { self.post() } else { Ok(()) }
    }

    /// Posts one batch of released slots.
    fn post(&mut self) -> io::Result<()> {
        let Receives { srq, arena, released, level, batch } = self;
        let from = released.len().saturating_sub(*batch);
        let receives =
            released[from..].iter().filter_map(|&slot| Some((WrId::receive(slot).0, arena.span(slot as usize)?)));
        let posted = srq.post(receives)?;
        // The provider takes them from the front of the chain.
        released.drain(from..from + posted);
        *level += posted as u32;
        Ok(())
    }
}

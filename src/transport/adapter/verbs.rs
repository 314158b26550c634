// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapter over libibverbs: maps the transport's interface to the safe verbs of `ibex-ffi`. Grade: hot where
//! [`super`] says so: every function is inlined and costs nothing. Threads: the port's.

use super::{Adapter, ReceiveQueue, SendSlots};
use crate::connect::carriers::NetworkCarriers;
use crate::select::PortChoice;
use crate::transport::work_request::WrId;
use crate::tunables::Tunables;
use ibex_ffi::verbs::{
    self, Access, Arena, AsyncEvent, HugePages, LocalSpan, ProtectionDomain, QueuePairLimits, SharedReceiveQueue,
};
use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Access rights and pages of the memory of receive slots and send slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlotMemory {
    access: Access,
    pages: HugePages,
}

impl SlotMemory {
    /// Returns the memory that the parameters ask for, in one of `processes` processes of the job on this host. ibex
    /// reads a slot only after its completion, so relaxed ordering is allowed.
    pub(crate) fn of(tunables: &Tunables, processes: u32) -> Self {
        let ordering = if tunables.relaxed_ordering { Access::RELAXED_ORDERING } else { Access::empty() };
        SlotMemory { access: Access::LOCAL_WRITE | ordering, pages: tunables.pages(processes) }
    }

    fn arena(self, domain: &Arc<ProtectionDomain>, size: u32, count: u32) -> io::Result<Arena> {
        Arena::with(domain, size as usize, count as usize, self.access, self.pages)
    }
}

/// The asynchronous events of a device so far. The device reports each once, but it may concern each of the ports that
/// share the device.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<Vec<AsyncEvent>>);

/// A protection domain of a device, the limits of its queue pairs, and the memory of slots.
#[derive(Debug)]
pub struct Verbs {
    domain: Arc<ProtectionDomain>,
    events: Arc<Events>,
    /// Number of events that this port has seen.
    seen: Cell<usize>,
    limits: QueuePairLimits,
    memory: SlotMemory,
    start: Instant,
}

impl Verbs {
    pub(crate) fn new(
        domain: Arc<ProtectionDomain>,
        events: Arc<Events>,
        limits: QueuePairLimits,
        memory: SlotMemory,
    ) -> Self {
        let seen = Cell::new(events.0.lock().unwrap_or_else(PoisonError::into_inner).len());
        Verbs { domain, events, seen, limits, memory, start: Instant::now() }
    }

    pub(crate) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl Adapter for Verbs {
    type QueuePair = verbs::QueuePair;
    type CompletionQueue = verbs::CompletionQueue;
    type ReceiveQueue = SharedReceives;
    type SendSlots = Arena;
    type Carriers = NetworkCarriers;

    fn queue_pair(&self, cq: &verbs::CompletionQueue, receives: &SharedReceives) -> io::Result<verbs::QueuePair> {
        verbs::QueuePair::new(&self.domain, cq, &receives.queue, self.limits)
    }

    fn send_slots(&self, size: u32, count: u32) -> io::Result<Arena> {
        self.memory.arena(&self.domain, size, count)
    }

    fn refresh(&self, choice: &PortChoice) -> Option<PortChoice> {
        let context = self.domain.context();
        let port = context.port(choice.port).ok()?;
        Some(choice.refreshed(port.lid, &context.gids(choice.port, port.gids)))
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        let mut events = self.events.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.extend(self.domain.context().async_event());
        let event = *events.get(self.seen.get())?;
        self.seen.set(self.seen.get() + 1);
        Some(event)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A shared receive queue and the memory it receives into.
#[derive(Debug)]
pub struct SharedReceives {
    // Dropped before the memory.
    queue: SharedReceiveQueue,
    arena: Arena,
}

impl SharedReceives {
    /// Registers `depth` slots of `size` bytes, to be posted at most `batch` at a time.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        memory: SlotMemory,
        size: u32,
        depth: u32,
        batch: usize,
    ) -> io::Result<Self> {
        let arena = memory.arena(domain, size, depth)?;
        Ok(SharedReceives { queue: SharedReceiveQueue::new(domain, depth, batch)?, arena })
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }
}

impl ReceiveQueue for SharedReceives {
    #[inline]
    fn slots(&self) -> u32 {
        self.arena.count() as u32
    }

    #[inline(always)]
    fn post(&mut self, slots: &[u32]) -> io::Result<usize> {
        self.queue.post(&self.arena, slots, |slot| WrId::receive(slot).0)
    }

    #[inline(always)]
    fn address(&self, slot: u32) -> Option<u64> {
        self.arena.address(slot as usize)
    }

    fn copy(&self, slot: u32, into: &mut [u8]) -> bool {
        self.arena.read(slot as usize, 0, into)
    }
}

impl SendSlots for Arena {
    fn count(&self) -> u32 {
        Arena::count(self) as u32
    }

    fn bytes(&self) -> u64 {
        Arena::bytes(self) as u64
    }

    fn explicit_bytes(&self) -> u64 {
        Arena::explicit_bytes(self) as u64
    }

    fn span(&self, slot: u32) -> Option<LocalSpan> {
        Arena::span(self, slot as usize)
    }

    fn write(&mut self, slot: u32, bytes: &[u8]) -> Option<LocalSpan> {
        Arena::write(self, slot as usize, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_have_relaxed_ordering_unless_the_user_excludes_it() {
        let slots = |relaxed_ordering| SlotMemory::of(&Tunables { relaxed_ordering, ..Tunables::default() }, 1).access;
        assert_eq!(slots(true), Access::LOCAL_WRITE | Access::RELAXED_ORDERING);
        assert_eq!(slots(false), Access::LOCAL_WRITE);
    }
}

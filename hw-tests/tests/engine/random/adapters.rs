// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports that run a program: of the engine's simulated adapter, and of a device. Called by `lockstep.rs` and
//! `side.rs`. Grade: test.

use super::program::{PORTS, QUEUE_PAIRS, RECEIVE};
use ibex::transport::WrId;
use ibex::transport::adapter::simulated::{self, Fabric, Span};
use ibex::transport::adapter::{Adapter, ReceiveQueue as _};
use ibex_ffi::verbs::{
    Access, Arena, CompletesWork, CompletionQueue, Context, DeviceAttributes, HugePages, InlineSpan, LocalSpan,
    ProtectionDomain, QueuePair, QueuePairLimits, SharedReceiveQueue, TakesWork, WorkCompletion, atomic_cap,
};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Number of receive slots of a port.
pub(super) const SLOTS: u32 = 128;
/// Number of requests that a queue pair takes at least.
pub(super) const DEPTH: usize = 16;
/// Bytes of an area for each queue pair, more than the longest message.
pub(super) const AREA: usize = 1024;

/// Areas of registered memory of a port, by their rights: to send from, to read to, for writes, reads and atomics.
pub(super) const AREAS: [Access; 5] = [
    Access::empty(),
    Access::LOCAL_WRITE,
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE),
    Access::REMOTE_READ,
    Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC),
];
pub(super) const SOURCE: usize = 0;
pub(super) const SINK: usize = 1;
pub(super) const TARGET: usize = 2;
pub(super) const SHOWN: usize = 3;
pub(super) const COUNTERS: usize = 4;

/// A port. Each queue pair has its own part of each area.
pub(super) trait Port {
    type QueuePair: TakesWork;

    fn queue_pair(&self) -> Self::QueuePair;
    fn receive(&mut self, slots: &[u32]);
    /// Takes a batch of completions. Before that, the network moves.
    fn poll(&mut self) -> &[WorkCompletion];
    /// Copies from a receive slot. False if it has fewer bytes.
    fn received(&self, slot: u32, into: &mut [u8]) -> bool;
    fn span(&self, area: usize, part: usize) -> LocalSpan;
    fn rkey(&self, area: usize) -> u32;
    /// Returns the first address beyond an area.
    fn end(&self, area: usize) -> u64;
    fn write(&mut self, area: usize, part: usize, bytes: &[u8]);
    fn read(&self, area: usize, part: usize) -> Vec<u8>;
}

struct Region {
    port: usize,
    access: Access,
    bytes: Vec<u8>,
}

/// Memory of the simulated adapters. The key of a region is its number from 1, and half of its address.
#[derive(Clone, Default)]
struct Regions(Arc<Mutex<Vec<Region>>>);

impl Regions {
    fn all(&self) -> MutexGuard<'_, Vec<Region>> {
        self.0.lock().expect("no panic was caught")
    }

    fn add(&self, port: usize, length: usize, access: Access) -> (u64, u32) {
        let mut all = self.all();
        all.push(Region { port, access, bytes: vec![0; length] });
        (1 << 63 | (all.len() as u64) << 32, all.len() as u32)
    }

    fn with<R>(&self, (start, length, key): Span, look: impl FnOnce(&mut Region, usize) -> R) -> Option<R> {
        let mut all = self.all();
        let region = all.get_mut((key as usize).checked_sub(1)?)?;
        let offset = start.checked_sub(1 << 63 | u64::from(key) << 32)? as usize;
        (offset + length as usize <= region.bytes.len()).then(|| look(region, offset))
    }
}

impl simulated::Memory for Regions {
    fn allocate(&mut self, port: usize, size: usize) -> (u64, u32) {
        self.add(port, size, Access::LOCAL_WRITE)
    }

    fn free(&mut self, key: u32) {
        self.all()[key as usize - 1].bytes.clear();
    }

    fn span(&self, (start, length, key): Span) -> LocalSpan {
        LocalSpan::simulated(start, length, key)
    }

    fn inline(&self, span: InlineSpan<'_>) -> Vec<u8> {
        span.initialised().expect("programs send initialised bytes").into()
    }

    fn read(&self, port: usize, at: Span, right: Access) -> Option<Vec<u8>> {
        self.with(at, |region, offset| {
            let is_allowed = region.port == port && region.access.contains(right);
            is_allowed.then(|| region.bytes[offset..offset + at.1 as usize].to_vec())
        })?
    }

    fn write(&mut self, port: usize, at: Span, right: Access, bytes: &[u8]) -> Option<()> {
        self.with(at, |region, offset| {
            let is_allowed = region.port == port && region.access.contains(right);
            is_allowed.then(|| region.bytes[offset..offset + bytes.len()].copy_from_slice(bytes))
        })?
    }
}

type Simulated = simulated::Adapter;

pub(super) struct Model {
    fabric: Fabric,
    regions: Regions,
    port: (Simulated, <Simulated as Adapter>::CompletionQueue, <Simulated as Adapter>::ReceiveQueue),
    /// Addresses and keys of the areas.
    areas: [(u64, u32); AREAS.len()],
}

impl Model {
    pub(super) fn all() -> Vec<Self> {
        let regions = Regions::default();
        let fabric = Fabric::new(Box::new(regions.clone()), Duration::ZERO);
        let port = |port| Model {
            areas: AREAS.map(|access| regions.add(port, QUEUE_PAIRS * AREA, access)),
            port: fabric.add((RECEIVE, SLOTS)),
            fabric: fabric.clone(),
            regions: regions.clone(),
        };
        (0..PORTS).map(port).collect()
    }

    /// Number of requests of a queue pair that wait.
    pub(super) fn waiting(&self, qp: usize) -> usize {
        self.fabric.posted(qp)
    }

    fn at(&self, area: usize, part: usize, length: usize) -> Span {
        let (start, key) = self.areas[area];
        (start + (part * AREA) as u64, length as u32, key)
    }
}

impl Port for Model {
    type QueuePair = <Simulated as Adapter>::QueuePair;

    fn queue_pair(&self) -> Self::QueuePair {
        self.port.0.queue_pair(&self.port.1, &self.port.2).expect("a queue pair")
    }

    fn receive(&mut self, slots: &[u32]) {
        assert_eq!(self.port.2.post(slots).expect("a receive"), slots.len());
    }

    fn poll(&mut self) -> &[WorkCompletion] {
        for qp in 0..self.fabric.queue_pairs() {
            while self.fabric.carry(qp) {}
            while self.fabric.acknowledge(qp) {}
        }
        self.port.1.poll().expect("a queue")
    }

    fn received(&self, slot: u32, into: &mut [u8]) -> bool {
        self.port.2.copy(slot, into)
    }

    fn span(&self, area: usize, part: usize) -> LocalSpan {
        simulated::Memory::span(&self.regions, self.at(area, part, AREA))
    }

    fn rkey(&self, area: usize) -> u32 {
        self.areas[area].1
    }

    fn end(&self, area: usize) -> u64 {
        self.span(area, QUEUE_PAIRS).addr()
    }

    fn write(&mut self, area: usize, part: usize, bytes: &[u8]) {
        let copy = |region: &mut Region, offset| region.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.regions.with(self.at(area, part, bytes.len()), copy).expect("an area");
    }

    fn read(&self, area: usize, part: usize) -> Vec<u8> {
        let copy = |region: &mut Region, offset| region.bytes[offset..offset + AREA].to_vec();
        self.regions.with(self.at(area, part, AREA), copy).expect("an area")
    }
}

/// A port of a device, opened for a port of the program.
pub(super) struct Device {
    completions: CompletionQueue,
    receives: SharedReceiveQueue,
    slots: Arena,
    areas: [Arena; AREAS.len()],
    domain: Arc<ProtectionDomain>,
    limits: QueuePairLimits,
}

impl Device {
    pub(super) fn all(context: &Arc<Context>) -> Vec<Self> {
        (0..PORTS).map(|_| Self::open(context, &context.attributes().expect("attributes"))).collect()
    }

    fn open(context: &Arc<Context>, attributes: &DeviceAttributes) -> Self {
        let domain = ProtectionDomain::new(context).expect("a protection domain");
        let arena = |size, count, access| Arena::with(&domain, size, count, access, HugePages::No).expect("memory");
        let lacks = if attributes.atomic_cap == atomic_cap::NONE { Access::REMOTE_ATOMIC } else { Access::empty() };
        Device {
            // Few at a time, so that some stay for the next poll.
            completions: CompletionQueue::new(context, attributes.max_cqe.min(1024), 3, None)
                .expect("a completion queue"),
            receives: SharedReceiveQueue::new(&domain, SLOTS, SLOTS as usize).expect("a shared receive queue"),
            slots: arena(RECEIVE as usize, SLOTS as usize, Access::LOCAL_WRITE),
            areas: AREAS.map(|access| arena(AREA, QUEUE_PAIRS, access.difference(lacks))),
            limits: QueuePairLimits { sends: DEPTH as u32, spans: attributes.max_sge.min(2), inline: 64 },
            domain,
        }
    }
}

impl Port for Device {
    type QueuePair = QueuePair;

    fn queue_pair(&self) -> QueuePair {
        QueuePair::new(&self.domain, &self.completions, &self.receives, self.limits).expect("a queue pair")
    }

    fn receive(&mut self, slots: &[u32]) {
        let posted = self.receives.post(&self.slots, slots, |slot| WrId::receive(slot).0);
        assert_eq!(posted.expect("a receive"), slots.len());
    }

    fn poll(&mut self) -> &[WorkCompletion] {
        // Some adapters flush a queue pair only once its event is read.
        while self.domain.context().async_event().is_some() {}
        self.completions.poll().expect("a queue")
    }

    fn received(&self, slot: u32, into: &mut [u8]) -> bool {
        self.slots.read(slot as usize, 0, into)
    }

    fn span(&self, area: usize, part: usize) -> LocalSpan {
        self.areas[area].span(part).expect("an area")
    }

    fn rkey(&self, area: usize) -> u32 {
        self.areas[area].rkey()
    }

    fn end(&self, area: usize) -> u64 {
        self.span(area, 0).addr() + self.areas[area].bytes() as u64
    }

    fn write(&mut self, area: usize, part: usize, bytes: &[u8]) {
        self.areas[area].write(part, bytes).expect("an area");
    }

    fn read(&self, area: usize, part: usize) -> Vec<u8> {
        let mut bytes = vec![0; AREA];
        assert!(self.areas[area].read(part, 0, &mut bytes));
        bytes
    }
}

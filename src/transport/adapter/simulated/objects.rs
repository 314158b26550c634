// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects of a simulated port, except for its queue pairs: its queues, slots and carriers of hellos. Called by the
//! transport. Grade: test. Threads: the test's.

use super::queue_pair::QueuePair;
use super::{Fabric, PortState, Span};
use crate::connect::carriers::{Arrivals, Carriers, Look};
use crate::connect::hello::Hello;
use crate::connect::{Carrier, Via};
use crate::counters::Counters;
use crate::select::PortChoice;
use crate::select::address::PortAddress;
use crate::transport::adapter::{self, CompletionQueue, ReceiveQueue, SendSlots};
use ibex_ffi::verbs::{Access, AsyncEvent, LocalSpan, Path, WorkCompletion};
use std::io;
use std::time::Duration;

impl Fabric {
    pub(super) fn adapter(&self, port: usize) -> Adapter {
        Adapter { fabric: self.clone(), port }
    }

    pub(super) fn completion_queue(&self, port: usize, capacity: u32) -> Completions {
        Completions { fabric: self.clone(), port, capacity, taken: Vec::new() }
    }

    pub(super) fn receive_queue(&self, port: usize, size: u32, count: u32) -> Receives {
        let slots = Slots::new(self, port, (size, count));
        self.state().ports[port].slots = slots.layout;
        Receives(slots)
    }

    pub(super) fn carriers(&self, port: usize) -> Datagrams {
        Datagrams { fabric: self.clone(), port }
    }
}

/// A port of a simulated adapter.
pub struct Adapter {
    fabric: Fabric,
    port: usize,
}

impl adapter::Adapter for Adapter {
    type QueuePair = QueuePair;
    type CompletionQueue = Completions;
    type ReceiveQueue = Receives;
    type SendSlots = Slots;
    type Carriers = Datagrams;

    fn queue_pair(&self, _completions: &Completions, _receives: &Receives) -> io::Result<QueuePair> {
        QueuePair::new(&self.fabric, self.port)
    }

    fn send_slots(&self, size: u32, count: u32) -> io::Result<Slots> {
        if let Some(errno) = self.fabric.state().ports[self.port].refused_slots {
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(Slots::new(&self.fabric, self.port, (size, count)))
    }

    fn refresh(&self, _choice: &PortChoice) -> Option<PortChoice> {
        self.fabric.state().ports[self.port].readdressed.clone()
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.fabric.state().ports[self.port].async_events.pop_front()
    }

    /// Time passes with each call.
    fn now(&self) -> Duration {
        let mut state = self.fabric.state();
        let tick = state.tick;
        state.now += tick;
        state.now
    }
}

pub struct Completions {
    fabric: Fabric,
    port: usize,
    capacity: u32,
    taken: Vec<WorkCompletion>,
}

/// Maximum number of completions per poll.
const BATCH: usize = 16;

impl CompletionQueue for Completions {
    fn poll(&mut self) -> io::Result<&[WorkCompletion]> {
        let PortState { broken_poll, completions, .. } = &mut self.fabric.state().ports[self.port];
        if let Some(errno) = broken_poll.take() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        assert!(completions.len() <= self.capacity as usize, "a completion queue overflows");
        let count = completions.len().min(BATCH);
        self.taken.clear();
        self.taken.extend(completions.drain(..count));
        Ok(&self.taken)
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }
}

/// Slots of one size, one after the other, in memory with one key.
#[derive(Clone, Copy, Default)]
pub(super) struct Layout {
    start: u64,
    size: u32,
    count: u32,
    key: u32,
}

impl Layout {
    pub(super) fn at(&self, slot: u32) -> Option<Span> {
        let Layout { start, size, count, key } = *self;
        (slot < count).then(|| (start + u64::from(slot) * u64::from(size), size, key))
    }
}

pub struct Slots {
    fabric: Fabric,
    port: usize,
    layout: Layout,
}

impl Slots {
    fn new(fabric: &Fabric, port: usize, (size, count): (u32, u32)) -> Self {
        let (start, key) = fabric.state().memory.allocate(port, size as usize * count as usize);
        Slots { fabric: fabric.clone(), port, layout: Layout { start, size, count, key } }
    }

    fn put(&self, at: Span, bytes: &[u8]) {
        let written = self.fabric.state().memory.write(self.port, at, Access::LOCAL_WRITE, bytes);
        written.expect("a slot is registered");
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.fabric.state().memory.free(self.layout.key);
    }
}

impl SendSlots for Slots {
    fn count(&self) -> u32 {
        self.layout.count
    }

    fn bytes(&self) -> u64 {
        u64::from(self.layout.size) * u64::from(self.layout.count)
    }

    fn span(&self, slot: u32) -> Option<LocalSpan> {
        self.layout.at(slot).map(|at| self.fabric.state().memory.span(at))
    }

    fn write(&mut self, slot: u32, bytes: &[u8]) -> Option<LocalSpan> {
        let (start, size, key) = self.layout.at(slot)?;
        let at = (bytes.len() <= size as usize).then_some((start, bytes.len() as u32, key))?;
        self.put(at, bytes);
        Some(self.fabric.state().memory.span(at))
    }
}

pub struct Receives(Slots);

impl ReceiveQueue for Receives {
    fn slots(&self) -> u32 {
        self.0.layout.count
    }

    fn post(&mut self, slots: &[u32]) -> io::Result<usize> {
        let Slots { fabric, port, layout } = &self.0;
        let most = fabric.state().ports[*port].takes_receives.unwrap_or(usize::MAX);
        let taken = &slots[..slots.len().min(most)];
        if taken.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        // The adapter may write a posted slot from now on. Fill it, so that a late reader gets wrong bytes.
        let nothing = vec![0xdd; layout.size as usize];
        taken.iter().filter_map(|slot| layout.at(*slot)).for_each(|at| self.0.put(at, &nothing));
        fabric.state().ports[*port].receives.extend(taken);
        Ok(taken.len())
    }

    fn address(&self, slot: u32) -> Option<u64> {
        self.0.layout.at(slot).map(|(start, ..)| start)
    }

    fn copy(&self, slot: u32, into: &mut [u8]) -> bool {
        let Some((start, size, key)) = self.0.layout.at(slot) else { return false };
        let fits = into.len() <= size as usize;
        if fits {
            let (at, state) = ((start, into.len() as u32, key), self.0.fabric.state());
            let bytes = state.memory.read(self.0.port, at, Access::empty());
            into.copy_from_slice(&bytes.expect("a slot is registered"));
        }
        fits
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.0.fabric.state().ports[self.0.port].receives.clear();
    }
}

pub struct Datagrams {
    fabric: Fabric,
    port: usize,
}

impl Carriers for Datagrams {
    fn send(&mut self, peer: &PortAddress, _path: &Path, via: Via, frame: &[u8; Hello::SIZE]) {
        let mut state = self.fabric.state();
        state.moved += 1;
        if let Some(PortState { identity: Some((_, key)), incoming, .. }) = state.port_of(peer.instance) {
            return incoming.push_back(Hello::decode(frame, key).expect("sealed for the other side"));
        }
        state.ports[self.port].sent.push((*peer, *frame));
        state.ports[self.port].sent_via.push(via);
    }

    fn receive(&mut self, _look: Look<'_>, _counters: &Counters) -> Arrivals {
        let PortState { incoming, incoming_tcp, .. } = &mut self.fabric.state().ports[self.port];
        let mut hellos: Vec<_> = incoming.drain(..).map(|hello| (hello, Carrier::Ud)).collect();
        hellos.extend(incoming_tcp.drain(..).map(|hello| (hello, Carrier::Tcp)));
        Arrivals { hellos, refusals: Vec::new() }
    }

    fn ud_qpn(&self) -> u32 {
        self.fabric.state().ports[self.port].ud_qpn
    }

    fn has_tcp(&self) -> bool {
        self.fabric.state().ports[self.port].has_tcp
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated adapter of one port whose events the test dictates: refusals, completions, messages that arrive. It has
//! no memory: each byte of a slot is the slot's number. Hellos leave the fabric, and the test carries them. Grade:
//! test. Threads: the test's.

use super::objects::{Completions, Receives};
use super::queue_pair::QpState;
use super::{
    Access, Adapter, Atomics, Attributes, Duration, Fabric, InlineSpan, LocalSpan, Memory, PortEntry, PortState, Sizes,
    Span, StandIn, State, Status, attributes,
};
use crate::transport::work_request::{EndpointId, WrId};
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

/// Size of a slot, bytes.
const SIZE: u32 = 4096;

pub(super) struct NoMemory;

impl Memory for NoMemory {
    fn allocate(&mut self, _port: usize, _size: usize) -> (u64, u32) {
        (0, 0)
    }

    fn free(&mut self, _key: u32) {}

    fn span(&self, _at: Span) -> LocalSpan {
        LocalSpan::EMPTY
    }

    fn inline(&self, span: InlineSpan<'_>) -> Vec<u8> {
        vec![0; span.len()]
    }

    fn read(&self, _port: usize, (start, length, _): Span, _right: Access) -> Option<Vec<u8>> {
        Some(vec![(start / u64::from(SIZE)) as u8; length as usize])
    }

    fn write(&mut self, _port: usize, _at: Span, _right: Access, _bytes: &[u8]) -> Option<()> {
        Some(())
    }
}

/// The only port.
impl Deref for State {
    type Target = PortState;

    fn deref(&self) -> &PortState {
        &self.ports[0]
    }
}

impl DerefMut for State {
    fn deref_mut(&mut self) -> &mut PortState {
        &mut self.ports[0]
    }
}

#[derive(Clone)]
pub(crate) struct Script(Fabric);

impl Default for Script {
    fn default() -> Self {
        let fabric = Fabric::new(Box::new(NoMemory), Duration::from_millis(1));
        fabric.state().ports.push(PortState::default());
        Script(fabric)
    }
}

impl Script {
    pub(crate) fn adapter(&self) -> Adapter {
        self.0.adapter(0)
    }

    pub(crate) fn device(&self, sizes: Sizes, atomics: Atomics, entry: PortEntry) -> StandIn<Adapter> {
        self.0.device(0, sizes, Attributes { atomics, ..attributes(0, 100_000, sizes.inline) }, entry)
    }

    pub(crate) fn completion_queue(&self, capacity: u32) -> Completions {
        self.0.completion_queue(0, capacity)
    }

    pub(crate) fn receive_queue(&self, slots: u32) -> Receives {
        self.0.receive_queue(0, SIZE, slots)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }

    /// Completes the oldest request of the `index`th queue pair with this status. False if it has none.
    pub(crate) fn complete(&self, index: usize, status: Status) -> bool {
        self.state().complete(index, status)
    }

    pub(crate) fn complete_all(&self, index: usize, status: Status) {
        while self.complete(index, status) {}
    }

    /// Flushes the requests of queue pairs in error.
    pub(crate) fn flush(&self) {
        for index in 0..self.0.queue_pairs() {
            let is_failed = self.state().qps[index].state == QpState::Error;
            while is_failed && self.0.acknowledge(index) {}
        }
    }

    /// Returns the youngest queue pair that can send.
    pub(crate) fn connected(&self) -> Option<usize> {
        self.state().qps.iter().rposition(|qp| qp.state == QpState::ReadyToSend)
    }

    /// Number of queue pairs that are not destroyed.
    pub(crate) fn living(&self) -> usize {
        self.state().qps.iter().filter(|qp| qp.state != QpState::Destroyed).count()
    }

    /// Delivers a message of `len` bytes to the `index`th queue pair. Returns the slot that it fills, if there is one.
    pub(crate) fn deliver(&self, index: usize, len: u32, immediate: Option<u32>) -> Option<u32> {
        self.state().deliver(index, &vec![0; len as usize], immediate).ok()
    }

    /// Returns the numbers of the requests that the `index`th queue pair still has.
    pub(crate) fn posted(&self, index: usize) -> Vec<u32> {
        self.state().qps[index].posted.iter().map(|request| WrId(request.id).low()).collect()
    }
}

pub(crate) fn send_id(endpoint: u32, sequence: u32) -> WrId {
    WrId::send(EndpointId::from_index(endpoint), sequence)
}

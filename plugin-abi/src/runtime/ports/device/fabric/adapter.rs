// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric as the transport's adapter: queue pairs, queues, slots and carriers of hellos. Destroying a queue pair
//! discards its completions that were not polled, receives included, as mlx5 and `bnxt_re` do. Called by the transport
//! (`engine::transport`). Threads: the test's.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use engine::connect::carriers::{Arrivals, Carriers, Look};
use engine::connect::hello::Hello;
use engine::connect::{Carrier, Via};
use engine::counters::Counters;
use engine::select::PortChoice;
use engine::select::address::PortAddress;
use engine::transport::adapter::{self, CompletionQueue, QueuePair, ReceiveQueue, SendSlots};
use ibex_ffi::verbs::{
    self, Access, AsyncEvent, InlineSpan, LocalSpan, Path, PostError, Reception, Transition, WorkCompletion, Wr,
};

use super::memory::{Slots, read, write};
use super::{FIRST, Fabric, Posted, QpState, Work};

impl Fabric {
    pub(super) fn adapter(&self, port: usize) -> Adapter {
        Adapter { fabric: self.clone(), port }
    }

    pub(super) fn completion_queue(&self, port: usize, capacity: u32) -> Completions {
        Completions { fabric: self.clone(), port, capacity, taken: Vec::new() }
    }

    pub(super) fn receive_queue(&self, port: usize, size: u32, count: u32) -> Receives {
        let slots = Slots::new(size, count);
        self.state().ports[port].slots = (0..count).filter_map(|slot| slots.address(slot)).collect();
        Receives { fabric: self.clone(), port, slots }
    }

    pub(super) fn carriers(&self, port: usize) -> Datagrams {
        Datagrams { fabric: self.clone(), port }
    }
}

pub(crate) struct Adapter {
    fabric: Fabric,
    port: usize,
}

impl adapter::Adapter for Adapter {
    type QueuePair = Qp;
    type CompletionQueue = Completions;
    type ReceiveQueue = Receives;
    type SendSlots = Sends;
    type Carriers = Datagrams;

    fn queue_pair(&self, _completions: &Completions, _receives: &Receives) -> io::Result<Qp> {
        let mut state = self.fabric.state();
        let number = state.queue_pairs.len();
        let (port, posted) = (self.port, VecDeque::new());
        state.queue_pairs.push(super::QueuePair { port, state: QpState::Reset, peer: FIRST, posted, carried: 0 });
        Ok(Qp { fabric: self.fabric.clone(), number })
    }

    fn send_slots(&self, size: u32, count: u32) -> io::Result<Sends> {
        Ok(Sends::new(self.fabric.clone(), self.port, Slots::new(size, count)))
    }

    fn refresh(&self, _choice: &PortChoice) -> Option<PortChoice> {
        None
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.fabric.state().ports[self.port].events.pop_front()
    }

    /// Advances the time by 5 ms, so that a port asks for asynchronous events each time it reads the clock.
    fn now(&self) -> Duration {
        let mut state = self.fabric.state();
        state.now += Duration::from_millis(5);
        state.now
    }
}

pub(crate) struct Qp {
    fabric: Fabric,
    number: usize,
}

impl Qp {
    fn enter(&self, to: QpState, from: &[QpState]) -> io::Result<()> {
        let queue_pair = &mut self.fabric.state().queue_pairs[self.number];
        if !from.is_empty() && !from.contains(&queue_pair.state) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        queue_pair.state = to;
        if to == QpState::Reset {
            queue_pair.posted.clear();
            queue_pair.carried = 0;
        }
        Ok(())
    }
}

fn copied(span: InlineSpan<'_>) -> Vec<u8> {
    read(span.as_ptr().expose_provenance() as u64, span.len())
}

impl QueuePair for Qp {
    fn number(&self) -> u32 {
        FIRST + self.number as u32
    }

    fn max_inline(&self) -> u32 {
        u32::MAX
    }

    fn post(&mut self, wr: Wr, work: verbs::Work<'_>) -> Result<(), PostError> {
        let work = match work {
            verbs::Work::Send { spans, immediate } => {
                let spans = spans.iter().map(|span| (span.addr(), span.len(), span.lkey())).collect();
                Work::Send { inline: Vec::new(), spans, immediate }
            }
            verbs::Work::SendInline { header, payload, immediate } => {
                let inline = [copied(header), copied(payload)].concat();
                Work::Send { inline, spans: Vec::new(), immediate }
            }
            verbs::Work::Read { local, remote } => {
                Work::Read { local: (local.addr(), local.len(), local.lkey()), remote: (remote.addr, remote.rkey) }
            }
            verbs::Work::WriteInline { bytes, .. } if bytes.is_empty() => Work::Nothing,
            verbs::Work::Write { local, .. } if local.len() == 0 => Work::Nothing,
            other => panic!("no message needs {other:?}"),
        };
        let mut state = self.fabric.state();
        let super::State { queue_pairs, has_lost_message, .. } = &mut *state;
        let queue_pair = &mut queue_pairs[self.number];
        *has_lost_message |= queue_pair.state == QpState::Error && matches!(work, Work::Send { .. });
        queue_pair.posted.push_back(Posted { id: wr.id, signalled: wr.signalled, work });
        Ok(())
    }

    fn initialise(&mut self, _port: u8, _pkey_index: u16, _access: Access) -> io::Result<()> {
        self.enter(QpState::Init, &[QpState::Reset])
    }

    fn ready_to_receive(&mut self, path: &Path, _to: &Reception) -> io::Result<()> {
        self.enter(QpState::ReadyToReceive, &[QpState::Init])?;
        self.fabric.state().queue_pairs[self.number].peer = path.qp_num;
        Ok(())
    }

    fn ready_to_send(&mut self, _to: &Transition) -> io::Result<()> {
        self.enter(QpState::ReadyToSend, &[QpState::ReadyToReceive])
    }

    fn reset(&mut self) -> io::Result<()> {
        self.enter(QpState::Reset, &[])
    }

    fn fail(&mut self) -> io::Result<()> {
        self.enter(QpState::Error, &[])
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let mut state = self.fabric.state();
        let queue_pair = &mut state.queue_pairs[self.number];
        queue_pair.state = QpState::Destroyed;
        queue_pair.posted.clear();
        let port = queue_pair.port;
        state.ports[port].completions.retain(|completion| completion.qp_num() != FIRST + self.number as u32);
    }
}

pub(crate) struct Completions {
    fabric: Fabric,
    port: usize,
    capacity: u32,
    taken: Vec<WorkCompletion>,
}

/// Maximum number of completions per poll.
const BATCH: usize = 16;

impl CompletionQueue for Completions {
    fn poll(&mut self) -> io::Result<&[WorkCompletion]> {
        let completions = &mut self.fabric.state().ports[self.port].completions;
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

pub(crate) struct Receives {
    fabric: Fabric,
    port: usize,
    slots: Slots,
}

impl ReceiveQueue for Receives {
    fn slots(&self) -> u32 {
        self.slots.count()
    }

    fn post(&mut self, slots: &[u32]) -> io::Result<usize> {
        // The adapter may write a posted slot from now on. Fill it, so that a late reader gets wrong bytes.
        let nothing = vec![0xdd; self.slots.size()];
        slots.iter().filter_map(|slot| self.slots.address(*slot)).for_each(|start| write(start, &nothing));
        self.fabric.state().ports[self.port].receives.extend(slots);
        Ok(slots.len())
    }

    fn address(&self, slot: u32) -> Option<u64> {
        self.slots.address(slot)
    }

    fn copy(&self, slot: u32, into: &mut [u8]) -> bool {
        let Some(start) = self.slots.address(slot).filter(|_| into.len() <= self.slots.size()) else { return false };
        into.copy_from_slice(&read(start, into.len()));
        true
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.fabric.state().ports[self.port].receives.clear();
    }
}

pub(crate) struct Sends {
    slots: Slots,
    fabric: Fabric,
    lkey: u32,
}

impl Sends {
    fn new(fabric: Fabric, port: usize, slots: Slots) -> Self {
        let lkey = fabric.state().registrations.add_slots(port, &slots);
        Sends { slots, fabric, lkey }
    }
}

impl Drop for Sends {
    fn drop(&mut self) {
        self.fabric.state().registrations.remove(self.lkey);
    }
}

impl SendSlots for Sends {
    fn count(&self) -> u32 {
        self.slots.count()
    }

    fn bytes(&self) -> u64 {
        self.slots.size() as u64 * u64::from(self.slots.count())
    }

    fn span(&self, slot: u32) -> Option<LocalSpan> {
        self.slots.span(slot, self.lkey)
    }

    fn write(&mut self, slot: u32, bytes: &[u8]) -> Option<LocalSpan> {
        let span = self.span(slot).filter(|span| bytes.len() <= span.len() as usize)?;
        write(span.addr(), bytes);
        Some(span.first(bytes.len() as u32))
    }
}

pub(crate) struct Datagrams {
    fabric: Fabric,
    port: usize,
}

impl Carriers for Datagrams {
    fn send(&mut self, peer: &PortAddress, _path: &Path, _via: Via, frame: &[u8; Hello::SIZE]) {
        let mut state = self.fabric.state();
        if let Some(to) = state.ports.iter_mut().find(|port| port.instance == peer.instance) {
            let hello = Hello::decode(frame, &to.key).expect("sealed for the other side");
            to.hellos.push_back(hello);
            state.moved += 1;
        }
    }

    fn receive(&mut self, _look: Look<'_>, _counters: &Counters) -> Arrivals {
        let mut state = self.fabric.state();
        let hellos = state.ports[self.port].hellos.drain(..).map(|hello| (hello, Carrier::Ud)).collect();
        Arrivals { hellos, refusals: Vec::new() }
    }

    fn ud_qpn(&self) -> u32 {
        self.fabric.state().ports[self.port].instance as u32
    }
}

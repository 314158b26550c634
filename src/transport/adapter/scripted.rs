// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport's side of the scripted adapter of the unit tests, without memory and network; `scripted/script.rs` has
//! the test's side. Destroying a queue pair discards its unpolled completions, as with mlx5 and `bnxt_re`.

mod script;

use super::{Adapter, CompletionQueue, QueuePair, ReceiveQueue, SendSlots, Work};
use crate::connect::carriers::{Arrivals, Carriers, Look};
use crate::connect::hello::Hello;
use crate::connect::{Carrier, Via};
use crate::counters::Counters;
use crate::select::PortChoice;
use crate::select::address::PortAddress;
use ibex_ffi::verbs::{Access, AsyncEvent, LocalSpan, Path, PostError, Reception, Transition, WorkCompletion, Wr};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use script::{Qp, Request};
pub(crate) use script::{QpState, Script, send_id};

impl Script {
    pub(crate) fn adapter(&self) -> Scripted {
        Scripted(self.clone())
    }

    pub(crate) fn carriers(&self) -> ScriptedCarriers {
        ScriptedCarriers(self.clone())
    }

    pub(crate) fn completion_queue(&self, capacity: u32, batch: usize) -> ScriptedCq {
        ScriptedCq { script: self.clone(), capacity, batch, taken: Vec::new() }
    }

    pub(crate) fn receive_queue(&self, slots: u32) -> ScriptedReceives {
        ScriptedReceives { script: self.clone(), slots }
    }
}

#[derive(Debug)]
pub(crate) struct Scripted(Script);

impl Adapter for Scripted {
    type QueuePair = ScriptedQp;
    type CompletionQueue = ScriptedCq;
    type ReceiveQueue = ScriptedReceives;
    type SendSlots = ScriptedSlots;
    type Carriers = ScriptedCarriers;

    fn queue_pair(&self, _cq: &ScriptedCq, _receives: &ScriptedReceives) -> io::Result<ScriptedQp> {
        let mut state = self.0.state();
        if let Some(errno) = state.refused_qp.take() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let index = state.qps.len();
        let number = 0x100 + index as u32;
        state.qps.push(Qp {
            number,
            state: QpState::Reset,
            access: Access::empty(),
            rnr_timer: 0,
            posted: VecDeque::new(),
        });
        Ok(ScriptedQp { script: self.0.clone(), index, number })
    }

    fn send_slots(&self, size: u32, count: u32) -> io::Result<ScriptedSlots> {
        Ok(ScriptedSlots { size, count })
    }

    fn refresh(&self, _choice: &PortChoice) -> Option<PortChoice> {
        self.0.state().readdressed.clone()
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.0.state().async_events.pop_front()
    }

    /// Time passes with each call.
    fn now(&self) -> Duration {
        let mut state = self.0.state();
        state.now += Duration::from_millis(1);
        state.now
    }
}

#[derive(Debug)]
pub(crate) struct ScriptedQp {
    script: Script,
    index: usize,
    number: u32,
}

impl ScriptedQp {
    fn enter(&self, to: QpState, from: &[QpState]) -> io::Result<()> {
        let mut state = self.script.state();
        if let Some((refused, errno)) = state.refused_transition
            && refused == to
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let qp = &mut state.qps[self.index];
        if !from.is_empty() && !from.contains(&qp.state) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        qp.state = to;
        if to == QpState::Reset {
            qp.posted.clear();
        }
        Ok(())
    }
}

impl QueuePair for ScriptedQp {
    fn number(&self) -> u32 {
        self.number
    }

    fn max_inline(&self) -> u32 {
        64
    }

    fn post(&mut self, wr: Wr, work: Work<'_>) -> Result<(), PostError> {
        let mut state = self.script.state();
        if let Some(Some(errno)) = state.answers.pop_front() {
            return Err(PostError(errno));
        }
        let immediate = match work {
            Work::Send { immediate, .. } | Work::SendInline { immediate, .. } => Some(immediate),
            _ => None,
        };
        let work = match work {
            Work::Send { .. } => ("send", 0),
            Work::SendInline { header, payload, .. } => ("send inline", header.len() + payload.len()),
            Work::Write { .. } => ("write", 0),
            Work::WriteInline { bytes, .. } => ("write inline", bytes.len()),
            Work::Read { .. } => ("read", 0),
            Work::FetchAdd { .. } => ("fetch and add", 0),
            Work::CompareSwap { .. } => ("compare and swap", 0),
        };
        let qp = &mut state.qps[self.index];
        qp.posted.push_back(Request { id: wr.id, signalled: wr.signalled, work, immediate });
        Ok(())
    }

    fn initialise(&mut self, _port: u8, _pkey_index: u16, access: Access) -> io::Result<()> {
        self.enter(QpState::Init, &[QpState::Reset])?;
        self.script.state().qps[self.index].access = access;
        Ok(())
    }

    fn ready_to_receive(&mut self, _path: &Path, to: &Reception) -> io::Result<()> {
        let mut state = self.script.state();
        if state.is_without_atomics && state.qps[self.index].access.contains(Access::REMOTE_ATOMIC) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        state.qps[self.index].rnr_timer = to.rnr_timer;
        drop(state);
        self.enter(QpState::ReadyToReceive, &[QpState::Init])
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

impl Drop for ScriptedQp {
    fn drop(&mut self) {
        let mut state = self.script.state();
        state.qps[self.index].state = QpState::Destroyed;
        state.qps[self.index].posted.clear();
        // The receives of the dropped completions are lost.
        state.completions.retain(|completion| completion.qp_num() != self.number);
    }
}

#[derive(Debug)]
pub(crate) struct ScriptedCq {
    script: Script,
    capacity: u32,
    batch: usize,
    taken: Vec<WorkCompletion>,
}

impl CompletionQueue for ScriptedCq {
    fn poll(&mut self) -> io::Result<&[WorkCompletion]> {
        let mut state = self.script.state();
        if let Some(errno) = state.broken_poll.take() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let count = state.completions.len().min(self.batch);
        self.taken = state.completions.drain(..count).collect();
        drop(state);
        Ok(&self.taken)
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }
}

#[derive(Debug)]
pub(crate) struct ScriptedReceives {
    script: Script,
    slots: u32,
}

impl ReceiveQueue for ScriptedReceives {
    fn slots(&self) -> u32 {
        self.slots
    }

    fn post(&mut self, slots: &[u32]) -> io::Result<usize> {
        let mut state = self.script.state();
        let count = slots.len().min(state.takes_receives.unwrap_or(usize::MAX));
        if count == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        state.receives.extend(&slots[..count]);
        Ok(count)
    }

    fn address(&self, slot: u32) -> Option<u64> {
        (slot < self.slots).then(|| u64::from(slot) * 4096)
    }

    fn copy(&self, slot: u32, into: &mut [u8]) -> bool {
        into.fill(slot as u8);
        slot < self.slots
    }
}

/// Slots without memory.
#[derive(Debug)]
pub(crate) struct ScriptedSlots {
    size: u32,
    count: u32,
}

impl SendSlots for ScriptedSlots {
    fn count(&self) -> u32 {
        self.count
    }

    fn bytes(&self) -> u64 {
        u64::from(self.size) * u64::from(self.count)
    }

    fn span(&self, slot: u32) -> Option<LocalSpan> {
        (slot < self.count).then_some(LocalSpan::EMPTY)
    }

    fn write(&mut self, slot: u32, bytes: &[u8]) -> Option<LocalSpan> {
        (slot < self.count && bytes.len() <= self.size as usize).then_some(LocalSpan::EMPTY)
    }
}

#[derive(Debug)]
pub(crate) struct ScriptedCarriers(Script);

impl Carriers for ScriptedCarriers {
    fn send(&mut self, peer: &PortAddress, _path: &Path, via: Via, frame: &[u8; Hello::SIZE]) {
        let mut state = self.0.state();
        state.sent.push((*peer, *frame));
        state.sent_via.push(via);
    }

    fn receive(&mut self, _look: Look<'_>, _counters: &Counters) -> Arrivals {
        let mut state = self.0.state();
        let mut hellos: Vec<_> = state.incoming.drain(..).map(|hello| (hello, Carrier::Ud)).collect();
        hellos.extend(state.incoming_tcp.drain(..).map(|hello| (hello, Carrier::Tcp)));
        Arrivals { hellos, refusals: Vec::new() }
    }

    fn ud_qpn(&self) -> u32 {
        self.0.state().ud_qpn
    }

    fn has_tcp(&self) -> bool {
        self.0.state().has_tcp
    }
}

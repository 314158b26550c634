// SPDX-License-Identifier: MIT OR Apache-2.0
//! An adapter of the unit tests, which does what its script says: it has no memory and no wire.
//!
//! [`Script`] is the test's end of it: what to refuse, when; what was posted; and the completions to come. Everything that the
//! transport made of it can be looked at after it was destroyed. Requests stay on the send queue until the test completes them.
//! A queue pair that is destroyed takes with it the completions of it that were not polled, and the receives among them, as
//! mlx5 and `bnxt_re` do.

use super::{Adapter, CompletionQueue, QueuePair, ReceiveQueue, SendSlots, Work};
use crate::connect::carriers::{Arrivals, Carriers, Look};
use crate::connect::hello::Hello;
use crate::connect::{Carrier, Reach, Via};
use crate::counters::Counters;
use crate::select::PortChoice;
use crate::select::address::PortAddress;
use crate::transport::work_request::{EndpointId, WrId};
use ibex_ffi::verbs::{
    Access, AsyncEvent, LocalSpan, Path, PostError, Reception, Status, Transition, WorkCompletion, Wr,
};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The states of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpState {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    Error,
    Destroyed,
}

/// A work request as it was posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) signalled: bool,
    /// What it does: the name of its [`Work`], and how many bytes it carries inline.
    pub(crate) work: (&'static str, usize),
    /// The immediate data of a message.
    pub(crate) immediate: Option<u32>,
}

/// A queue pair, living or not.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) state: QpState,
    /// What it was asked to allow.
    pub(crate) access: Access,
    /// What was posted and not completed.
    pub(crate) posted: VecDeque<Request>,
}

/// What the adapter does and has.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) now: Duration,
    pub(crate) qps: Vec<Qp>,
    /// What the adapter answers to the next posts, one after the other; `None` takes the request.
    pub(crate) answers: VecDeque<Option<i32>>,
    /// The errno of every transition to a state.
    pub(crate) refused_transition: Option<(QpState, i32)>,
    /// The adapter has no atomics, and says so when a queue pair that allows them is to receive.
    pub(crate) is_without_atomics: bool,
    /// The errno of the next request for a queue pair.
    pub(crate) refused_qp: Option<i32>,
    /// Slots that the adapter has, in the order in which they will be filled.
    pub(crate) receives: VecDeque<u32>,
    /// How many receives a post takes at most.
    pub(crate) takes_receives: Option<usize>,
    pub(crate) completions: VecDeque<WorkCompletion>,
    /// The errno of the next poll.
    pub(crate) broken_poll: Option<i32>,
    pub(crate) async_events: VecDeque<AsyncEvent>,
    /// The port, where it has got another address.
    pub(crate) readdressed: Option<PortChoice>,
    /// The number of the datagram queue pair.
    pub(crate) ud_qpn: u32,
    /// Hellos on their way to this port, by datagrams and by TCP, and those that it has sent, and by what.
    pub(crate) incoming: VecDeque<Hello>,
    pub(crate) incoming_tcp: VecDeque<Hello>,
    pub(crate) sent: Vec<(PortAddress, [u8; Hello::SIZE])>,
    pub(crate) sent_via: Vec<Via>,
    /// Whether there is TCP.
    pub(crate) has_tcp: bool,
}

/// The test's end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script(Arc<Mutex<State>>);

impl Script {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test failed while it looked")
    }

    /// A port's adapter that follows this script.
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

    /// The adapter completes the oldest request of the `index`th queue pair with this status. False where there is none.
    pub(crate) fn complete(&self, index: usize, status: Status) -> bool {
        let mut state = self.state();
        let Qp { number, posted, .. } = &mut state.qps[index];
        let number = *number;
        let Some(request) = posted.pop_front() else { return false };
        if request.signalled || status != Status::SUCCESS {
            state.completions.push_back(WorkCompletion::scripted(request.id, status, 0, None, number));
        }
        true
    }

    /// The adapter completes all requests of the `index`th queue pair with this status.
    pub(crate) fn complete_all(&self, index: usize, status: Status) {
        while self.complete(index, status) {}
    }

    /// The adapter flushes what is posted to queue pairs in error.
    pub(crate) fn flush(&self) {
        let is_failed = |qp: &Qp| qp.state == QpState::Error;
        let failed: Vec<usize> =
            self.state().qps.iter().enumerate().filter(|(_, qp)| is_failed(qp)).map(|(i, _)| i).collect();
        for index in failed {
            self.complete_all(index, Status::FLUSHED);
        }
    }

    /// The youngest queue pair that can send; `None` where there is none.
    pub(crate) fn connected(&self) -> Option<usize> {
        self.state().qps.iter().rposition(|qp| qp.state == QpState::ReadyToSend)
    }

    /// How many queue pairs are not destroyed.
    pub(crate) fn living(&self) -> usize {
        self.state().qps.iter().filter(|qp| qp.state != QpState::Destroyed).count()
    }

    /// A message of `len` bytes comes by the `index`th queue pair. Returns the slot that it fills; `None` where there is none.
    pub(crate) fn deliver(&self, index: usize, len: u32, immediate: Option<u32>) -> Option<u32> {
        let mut state = self.state();
        assert!(
            matches!(state.qps[index].state, QpState::ReadyToReceive | QpState::ReadyToSend),
            "queue pair {index} cannot receive: {:?}",
            state.qps[index].state
        );
        let slot = state.receives.pop_front()?;
        let number = state.qps[index].number;
        let id = WrId::receive(slot).0;
        state.completions.push_back(WorkCompletion::scripted(id, Status::SUCCESS, len, immediate, number));
        Some(slot)
    }

    /// What the `index`th queue pair still has, by the numbers of the requests.
    pub(crate) fn posted(&self, index: usize) -> Vec<u32> {
        self.state().qps[index].posted.iter().map(|request| WrId(request.id).low()).collect()
    }
}

/// The port's end.
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
        state.qps.push(Qp { number, state: QpState::Reset, access: Access::empty(), posted: VecDeque::new() });
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

    /// Time passes as it is looked at.
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

    fn ready_to_receive(&mut self, _path: &Path, _to: &Reception) -> io::Result<()> {
        let state = self.script.state();
        if state.is_without_atomics && state.qps[self.index].access.contains(Access::REMOTE_ATOMIC) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
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
        // Receives whose completions go are lost.
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

    fn poll_stamped(&mut self) -> io::Result<(&[WorkCompletion], &[u64])> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
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

/// Slots without memory: what is written to them is lost.
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
    fn expect(&mut self, _peer: &PortAddress) {}

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

    fn reach(&self, _peer: &PortAddress) -> Reach {
        Reach::Unused
    }

    fn forget(&mut self, _instance: u64) {}

    fn settle(&mut self, _peer: &PortAddress) {}

    fn ud_qpn(&self) -> u32 {
        self.0.state().ud_qpn
    }

    fn has_tcp(&self) -> bool {
        self.0.state().has_tcp
    }

    fn error(&self) -> Option<&io::Error> {
        None
    }
}

/// The identifier of the `sequence`th request to the `endpoint`th peer.
pub(crate) fn send_id(endpoint: u32, sequence: u32) -> WrId {
    WrId::send(EndpointId::from_index(endpoint), sequence)
}

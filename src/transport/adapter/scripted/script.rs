// SPDX-License-Identifier: MIT OR Apache-2.0
//! The test's side of the scripted adapter: the adapter's refusals, the posted requests, and the completions to come. A
//! test can inspect all objects after their destruction. Requests stay in the send queue until the test completes them.

use crate::connect::Via;
use crate::connect::hello::Hello;
use crate::select::PortChoice;
use crate::select::address::PortAddress;
use crate::transport::work_request::{EndpointId, WrId};
use ibex_ffi::verbs::{Access, AsyncEvent, Status, WorkCompletion};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpState {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    Error,
    Destroyed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) signalled: bool,
    /// Name of its [`Work`], and number of inline bytes.
    pub(crate) work: (&'static str, usize),
    pub(crate) immediate: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) state: QpState,
    pub(crate) access: Access,
    /// Code of the "receiver not ready" timer that its peer gets.
    pub(crate) rnr_timer: u8,
    pub(crate) posted: VecDeque<Request>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) now: Duration,
    pub(crate) qps: Vec<Qp>,
    /// Answers to the next posts, in order; `None` accepts the request.
    pub(crate) answers: VecDeque<Option<i32>>,
    /// State that no queue pair can enter, and the errno.
    pub(crate) refused_transition: Option<(QpState, i32)>,
    /// Refuses a queue pair that allows atomics when it is to receive.
    pub(crate) is_without_atomics: bool,
    /// Errno of the next creation of a queue pair.
    pub(crate) refused_qp: Option<i32>,
    /// Slots that the adapter has, in the order in which it fills them.
    pub(crate) receives: VecDeque<u32>,
    /// Most receives that a post accepts.
    pub(crate) takes_receives: Option<usize>,
    pub(crate) completions: VecDeque<WorkCompletion>,
    /// Errno of the next poll.
    pub(crate) broken_poll: Option<i32>,
    pub(crate) async_events: VecDeque<AsyncEvent>,
    /// The port with its new address, if it has changed.
    pub(crate) readdressed: Option<PortChoice>,
    pub(crate) ud_qpn: u32,
    /// Hellos in flight to this port, by datagram and by TCP; hellos that it has sent, and their carriers.
    pub(crate) incoming: VecDeque<Hello>,
    pub(crate) incoming_tcp: VecDeque<Hello>,
    pub(crate) sent: Vec<(PortAddress, [u8; Hello::SIZE])>,
    pub(crate) sent_via: Vec<Via>,
    pub(crate) has_tcp: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Script(Arc<Mutex<State>>);

impl Script {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test failed while it looked")
    }

    /// The adapter completes the oldest request of the `index`th queue pair with this status. False if it has none.
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

    pub(crate) fn complete_all(&self, index: usize, status: Status) {
        while self.complete(index, status) {}
    }

    /// The adapter flushes the requests of queue pairs in error.
    pub(crate) fn flush(&self) {
        let is_failed = |qp: &Qp| qp.state == QpState::Error;
        let failed: Vec<usize> =
            self.state().qps.iter().enumerate().filter(|(_, qp)| is_failed(qp)).map(|(i, _)| i).collect();
        for index in failed {
            self.complete_all(index, Status::FLUSHED);
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

    /// A message of `len` bytes comes by the `index`th queue pair. Returns the slot that it fills, if there is one.
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

    /// Returns the numbers of the requests that the `index`th queue pair still has.
    pub(crate) fn posted(&self, index: usize) -> Vec<u32> {
        self.state().qps[index].posted.iter().map(|request| WrId(request.id).low()).collect()
    }
}

pub(crate) fn send_id(endpoint: u32, sequence: u32) -> WrId {
    WrId::send(EndpointId::from_index(endpoint), sequence)
}

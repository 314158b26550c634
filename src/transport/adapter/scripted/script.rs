// SPDX-License-Identifier: MIT OR Apache-2.0
//! The test's side of the scripted adapter.
//!
//! [`Script`] has the adapter's refusals, the posted requests, and the completions to come. All objects of the
//! transport can be inspected after their destruction. Requests stay in the send queue until the test completes them.

use crate::connect::Via;
use crate::connect::hello::Hello;
use crate::select::PortChoice;
use crate::select::address::PortAddress;
use crate::transport::work_request::{EndpointId, WrId};
use ibex_ffi::verbs::{Access, AsyncEvent, Status, WorkCompletion};
use std::collections::VecDeque;
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
    /// How long its peer is told to wait when there is no slot, as a code.
    pub(crate) rnr_timer: u8,
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

    /// The adapter completes the oldest request of the `index`th queue pair with this status. False where there is
    /// none.
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

    /// A message of `len` bytes comes by the `index`th queue pair. Returns the slot that it fills; `None` where there
    /// is none.
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

/// The identifier of the `sequence`th request to the `endpoint`th peer.
pub(crate) fn send_id(endpoint: u32, sequence: u32) -> WrId {
    WrId::send(EndpointId::from_index(endpoint), sequence)
}

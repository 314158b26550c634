// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an endpoint of a C program stands on: its memory (`data`, `memory`), the objects that it has bound, the trace
//! of the process, and the one-sided operations of the same port. The engine has the rules of its messages
//! (`src/libfabric`).
//!
//! Called by `endpoint/` for setup, and by the engine. Grade: hot. Threads: the one that has entered the endpoint.
//! Tests: in each file, and `hw-tests`.

use std::sync::Arc;

use ibex::libfabric::{self, ELEMENTS, Environment, Others, Queue, Recorder, Setup, Vector};
use ibex::messenger::events::Event;
use ibex::messenger::flow_control::state::WINDOW;
use ibex::messenger::host::Rail;
use ibex::messenger::rails::send_buffers;
use ibex::peer::PeerName;
use ibex::transport::adapter::verbs::Verbs;
use ibex::transport::{Completion as PortEvent, EndpointId, Port, Token};
use ibex::tunables::Tunables;

pub(crate) mod data;
mod memory;

use crate::adapter::{self, RECEIVE_SIZE};
use crate::atomic::adapter::take_steps;
use crate::av::AddressVector;
use crate::cntr::Counter;
use crate::cq::{Completion, CompletionQueue, Failure};
use crate::domain::Domain;
use crate::recording::{self, CONTEXT, MATCHING, Recording};
use crate::registration::Registrations;
use crate::rma::{Rma, notice};
use crate::{flight, log, sys};
use data::Data;

/// The types of C's endpoints.
pub(crate) enum OfC {}

/// What an endpoint has beside its state, because both are used at once.
pub(crate) type Shared = libfabric::Shared<Verbs>;

/// An endpoint, for the thread that has entered it.
pub(crate) type State = libfabric::State<OfC>;

/// The queues and counters of an endpoint.
pub(crate) type Reports = libfabric::Reports<CompletionQueue, Counter>;

impl Environment for OfC {
    type Adapter = Verbs;
    type Data = Data;
    type Memory = Registrations;
    type Vector = AddressVector;
    type Queue = CompletionQueue;
    type Counter = Counter;
    type Recorder = &'static Recording;
    type Others = Rma;

    fn tell_lost(reason: &str) {
        log::line(sys::FI_LOG_WARN, sys::FI_LOG_EP_DATA, &flight::kept(reason));
    }

    fn arm(port: &mut Port<Verbs>) {
        if let Err(error) = port.arm() {
            // A thread that sleeps progresses at each tick.
            log::line(sys::FI_LOG_WARN, sys::FI_LOG_CQ, &format!("arming a completion queue: {error}"));
        }
    }
}

/// Makes an endpoint without operations of an open port. It is named `me`, and speaks to the peers in `vector`.
pub(crate) fn new(
    port: Port<Verbs>,
    (domain, vector): (Arc<Domain>, Arc<AddressVector>),
    me: PeerName,
    (reports, flags): (Reports, [u64; 2]),
) -> (Shared, State) {
    let tunables = Tunables::default();
    let sizes = ((tunables.eager_limit as usize).min(RECEIVE_SIZE as usize), RECEIVE_SIZE as usize);
    let rail = Rail::new(0, port.attributes(), sizes, tunables.read_size as u32);
    let registrations = Registrations::new(port.domain(), adapter::processes() as usize);
    let setup = Setup {
        vector,
        me,
        reports,
        flags,
        others: Rma::new(domain, registrations),
        recording: recording::recording(),
        unexpected_memory: tunables.unexpected_memory,
        window: WINDOW,
        buffers: send_buffers::MOST,
    };
    let shared = Shared::new(port, rail);
    let state = State::new(&shared, setup);
    (shared, state)
}

impl Vector for AddressVector {
    fn name(&self, address: sys::fi_addr_t) -> Option<PeerName> {
        AddressVector::name(self, address)
    }

    fn address(&self, name: PeerName) -> Option<sys::fi_addr_t> {
        AddressVector::address(self, name)
    }
}

impl Queue for CompletionQueue {
    #[inline(always)]
    fn push(&self, completion: Completion) {
        // SAFETY: D1: only a `State` reports, and a thread that uses one is inside the domain, which is that of the
        // queue (`fi_ep_bind`).
        unsafe { CompletionQueue::push(self, completion) };
    }

    #[cold]
    fn push_failure(&self, completion: Completion, failure: Failure<'_>) {
        // SAFETY: D1: as in `push`.
        unsafe { CompletionQueue::push_failure(self, completion, failure) };
    }
}

impl libfabric::Counter for Counter {
    #[inline]
    fn count(&self, has_failed: bool) {
        Counter::count(self, has_failed);
    }
}

impl Recorder for &'static Recording {
    const CONTEXT: u32 = CONTEXT;

    #[inline]
    fn wants(self, event: Event) -> bool {
        Recording::wants(self, event)
    }

    #[inline]
    fn numbers(self, count: u64) -> u64 {
        Recording::numbers(self, count)
    }

    fn put<const N: usize>(self, event: Event, elements: &[u64; N]) {
        Recording::put(self, event, elements);
    }
}

const _: () = assert!(ELEMENTS == MATCHING, "the trace describes the elements of these events");

impl Others<OfC> for Rma {
    #[inline(always)]
    fn memory(&mut self) -> &mut Registrations {
        &mut self.registrations
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        Rma::is_due(self)
    }

    fn take_due(state: &mut State, shared: &Shared) {
        notice::send(state, shared);
        take_steps(state, shared);
    }

    #[inline(always)]
    fn ended(&mut self, token: Token, reports: &Reports) -> bool {
        Rma::ended(self, token, None, reports)
    }

    fn end_unanswered(&mut self, is_lost: impl Fn(EndpointId) -> bool, reports: &Reports) {
        Rma::end_unanswered(self, is_lost, reports);
    }

    fn handle(state: &mut State, shared: &Shared, event: &PortEvent) {
        notice::handle(state, shared, event);
    }
}

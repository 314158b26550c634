// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic operations of an endpoint (`fi_atomic(3)`), by the target's processor or, if the user wants that (`by`), by the
//! adapter (`adapter`).
//!
//! One by the processor is a message of the port, or several if it is long: each has whole elements of one range of the target.
//! The target does it when it progresses, and answers (`message`, `target`). So the operation has ended when all
//! answers are there. It is one of `rma`'s operations, and its messages keep their order among the requests to the
//! peer. `calls` has what C calls, `valid` which operations there are, `arithmetic` (with `long_double`) what they
//! compute, and `memory` changes elements.
//!
//! Grade: pending. Threads: the one that has entered the endpoint. Tests: in each file, and `hw-tests/libfabric`.

pub(crate) mod adapter;
mod arithmetic;
pub(crate) mod by;
pub(crate) mod calls;
#[cfg(target_arch = "x86_64")]
mod long_double;
mod memory;
mod message;
mod target;
#[cfg(test)]
mod tests;
pub(crate) mod valid;

use std::sync::Arc;

use ibex::messenger::host::{Data as _, Process as _};
use ibex::messenger::route::Route;
use ibex::transport::adapter::verbs::Verbs;
use ibex::transport::{EndpointId, Port, Refused, Token, WhenDiverted};

use crate::adapter::RECEIVE_SIZE;
use crate::cq::Failure;
use crate::entry::Result;
use crate::host::data::{Data, Piece};
use crate::host::{Reports, Shared, State};
use crate::info::LONGEST_INJECTED;
use crate::rma::local::{Local, Results};
use crate::rma::operations::Operation;
use crate::rma::{self, ATOMIC, End, LOST, REFUSED, Rma, TOKEN, watch};
use crate::{mr, sys};
use by::By;
use message::{Message, Outcome, Request};
use valid::Calls;

/// Most messages of operations that have not ended.
const MOST: u32 = 256;

/// Number of no operation, for answers.
const NONE: u32 = u32::MAX;

/// Memory of the target: what a `fi_rma_ioc` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    address: u64,
    elements: usize,
    key: u64,
}

impl Range {
    /// Whether its region, and whether the endpoint, counts an operation with these `later` ranges at the end of this
    /// one.
    fn counts(&self, later: &[Range]) -> [bool; 2] {
        let is_last = |of: &dyn Fn(u64) -> bool| !later.iter().any(|later| later.elements > 0 && of(later.key));
        if mr::is_counted(self.key) { [is_last(&|key| key == self.key), is_last(&mr::is_counted)] } else { [false; 2] }
    }
}

/// What a program asks for. Each list of memory has a size of its own, and the same number of elements.
struct Atomic<'a> {
    calls: Calls,
    datatype: sys::fi_datatype,
    operation: sys::fi_op,
    /// The peer, in the address vector.
    peer: sys::fi_addr_t,
    operands: &'a [Piece],
    compared: &'a [Piece],
    results: &'a [Piece],
    targets: &'a [Range],
    end: End,
    /// Whether the program reuses the operands at once; they are copied anyway.
    is_injected: bool,
    /// Whether all earlier operations with the peer must have ended (`FI_FENCE`).
    is_fenced: bool,
}

impl Atomic<'_> {
    /// Checks the arguments. Returns the size of an element.
    fn check(&self, by: By) -> Result<usize> {
        let datatype = valid::known(self.calls, self.datatype, self.operation)?;
        let (size, most) = (datatype.size, valid::most(by, datatype)?);
        let elements = self.targets.iter().try_fold(0, |sum: usize, of| sum.checked_add(of.elements));
        let length = elements.and_then(|elements| elements.checked_mul(size)).ok_or(sys::FI_EINVAL)?;
        let is = |pieces: &[Piece], is_there: bool| {
            !is_there || pieces.iter().map(|piece| piece.length()).sum::<usize>() == length
        };
        let operands = self.calls.operands(self.operation);
        let agree = is(self.operands, operands > 0)
            && is(self.compared, operands > 1)
            && is(self.results, self.calls.returns_values());
        match length {
            _ if !agree => Err(sys::FI_EINVAL),
            _ if length > most * size || (self.is_injected && length * operands > LONGEST_INJECTED) => {
                Err(sys::FI_EMSGSIZE)
            }
            _ => Ok(size),
        }
    }

    /// Returns the requests of the operation, each with its operands.
    fn requests(&self, number: u32, size: usize) -> Vec<Vec<u8>> {
        let most = (RECEIVE_SIZE as usize - message::REQUEST) / (size * self.calls.operands(self.operation).max(1));
        let lists = [self.operands, self.compared].map(Data::of);
        let mut lists = lists.into_iter().take(self.calls.operands(self.operation)).collect::<Vec<_>>();
        let mut requests = Vec::new();
        let mut offset = 0;
        for (index, target) in self.targets.iter().enumerate() {
            let later = &self.targets[index + 1..];
            for first in (0..target.elements).step_by(most) {
                let count = most.min(target.elements - first);
                let mut bytes = message::request(&Request {
                    calls: self.calls,
                    datatype: self.datatype,
                    operation: self.operation,
                    number,
                    address: target.address,
                    key: target.key,
                    elements: target.elements as u64,
                    first: first as u32,
                    count: count as u32,
                    counts: if first + count == target.elements { target.counts(later) } else { [false; 2] },
                });
                for list in &mut lists {
                    let start = bytes.len();
                    bytes.resize(start + count * size, 0);
                    list.take_at(offset, &mut bytes[start..]);
                }
                offset += (count * size) as u64;
                requests.push(bytes);
            }
        }
        requests
    }
}

/// Queues a message of atomic operations. `number`: of the operation that awaits its end.
fn post(port: &mut Port<Verbs>, to: EndpointId, number: u32, bytes: Vec<u8>) -> std::result::Result<(), Refused> {
    let (length, token) = (bytes.len() as u32, Token(TOKEN << 32 | u64::from(number)));
    port.queue_bytes(to, ATOMIC, (Arc::from(bytes), length), token, WhenDiverted::Wait)
}

/// Why an operation failed that the target has answered.
fn failure(outcome: Outcome) -> Option<Failure<'static>> {
    const UNKNOWN: Failure<'_> = Failure {
        error: sys::FI_EOPNOTSUPP,
        excess: 0,
        text: "the target does not have this operation for this type of elements",
    };
    match outcome {
        Outcome::Done => None,
        Outcome::Refused => Some(REFUSED),
        Outcome::Unknown => Some(UNKNOWN),
    }
}

impl Rma {
    /// Starts an operation with a peer.
    fn begin_atomic(&mut self, port: &mut Port<Verbs>, to: EndpointId, of: &Atomic<'_>, size: usize) -> Result<()> {
        let number = self.operations.next();
        let requests = of.requests(number, size);
        let messages = requests.len() as u32;
        if self.atomics > 0 && self.atomics + messages > MOST {
            return Err(sys::FI_EAGAIN);
        }
        // Each message ends, and has an answer.
        let posted = 2 * requests.into_iter().map_while(|bytes| post(port, to, number, bytes).ok()).count() as u32;
        if posted == 0 {
            return Err(sys::FI_ENOTCONN);
        }
        let failure = (posted < 2 * messages).then_some(LOST);
        let results = Results { data: Data::of(of.results), taken: 0, messages, unanswered: posted / 2 };
        let (flags, end, local) = (of.calls.flags(), of.end, Local::Results(results));
        let (remote, elements) = of.targets.first().map_or((0, 0), |of| (of.address, of.elements));
        let place = (of.results.first().map_or(0, |piece| piece.address()), remote, elements * size);
        let watched = watch::started(port, to, flags, place);
        self.operations.put(number, Operation { flags, end, to, posted, failure, local, notice: None, watched });
        self.atomics += messages;
        Ok(())
    }

    /// Handles a peer's answer: stores the old values.
    fn answered(&mut self, number: u32, from: EndpointId, outcome: Outcome, old: &[u8], reports: &Reports) {
        let Some(Operation { to, local: Local::Results(results), .. }) = self.operations.get(number) else { return };
        if *to != from || results.unanswered == 0 {
            return;
        }
        results.unanswered -= 1;
        results.data.put_at(results.taken as u64, old);
        results.taken += old.len();
        if let Some(ended) = self.operations.ended(number, failure(outcome)) {
            self.end(ended, reports);
        }
    }

    /// Ends the operations of lost peers, which do not answer any more.
    pub(crate) fn end_unanswered(&mut self, is_lost: impl Fn(EndpointId) -> bool, reports: &Reports) {
        for number in 0..self.operations.next_new() {
            let Some(Operation { to, local: Local::Results(results), .. }) = self.operations.get(number) else {
                continue;
            };
            let unanswered = if is_lost(*to) { std::mem::take(&mut results.unanswered) } else { 0 };
            for _ in 0..unanswered {
                if let Some(ended) = self.operations.ended(number, Some(LOST)) {
                    self.end(ended, reports);
                }
            }
        }
    }
}

/// Starts an atomic operation.
fn start(state: &mut State, shared: &Shared, of: &Atomic<'_>) -> Result<()> {
    let by = state.others.domain.atomics()?;
    let size = of.check(by)?;
    if of.is_fenced {
        rma::fence(state, shared, of.peer)?;
    }
    let route = state.route(shared, of.peer).ok_or(sys::FI_EINVAL)?;
    if by == By::Adapter {
        return adapter::start(state, shared, of, route);
    }
    if route == Route::LOOPBACK || of.targets.iter().all(|target| target.elements == 0) {
        let failure = change_ourselves(state, of, size);
        rma::report(&state.reports, of.calls.flags(), of.end, failure);
        return Ok(());
    }
    rma::begin(state, shared, |others, port, _| others.begin_atomic(port, route.to(), of, size))
}

/// Does an operation of this endpoint with itself. Returns why it failed.
fn change_ourselves(state: &State, of: &Atomic<'_>, size: usize) -> Option<Failure<'static>> {
    let (mut results, mut offset) = (Data::of(of.results), 0);
    for bytes in of.requests(NONE, size) {
        let Some(Message::Request(request, values)) = message::decode(&bytes) else { continue };
        let answer = serve(state, &request, values);
        let Some(Message::Answer { outcome, old, .. }) = message::decode(&answer) else { continue };
        if let Some(failure) = failure(outcome) {
            return Some(failure);
        }
        results.put_at(offset, old);
        offset += old.len() as u64;
    }
    None
}

/// Does what a request asks for, and counts it. Returns the answer.
fn serve(state: &State, request: &Request, values: &[u8]) -> Vec<u8> {
    let domain = &state.others.domain;
    if domain.atomics() != Ok(By::Processor) {
        return message::answer(request.number, Outcome::Unknown, &[]);
    }
    let (outcome, answer) = target::serve(&domain.regions, request, values);
    if outcome == Outcome::Done && request.counts[1] {
        state.reports.accessed(request.calls.access(request.operation));
    }
    answer
}

/// Handles a message of atomic operations: a request, which is answered, or the answer to one.
pub(crate) fn handle(state: &mut State, shared: &Shared, from: EndpointId, bytes: &[u8]) {
    match message::decode(bytes) {
        Some(Message::Request(request, values)) => {
            let answer = serve(state, &request, values);
            if let Some(mut port) = shared.enter_port(0) {
                // If the connection has failed, nobody waits for the answer.
                let _ = post(&mut port, from, NONE, answer);
            }
        }
        Some(Message::Answer { number, outcome, old }) => {
            state.others.answered(number, from, outcome, old, &state.reports);
        }
        None => {}
    }
}

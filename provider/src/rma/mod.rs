// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-sided operations of an endpoint (`fi_rma(3)`): reads and writes of peers' memory regions by the adapter.
//!
//! An [`Operation`] is one request of the port, or several: `segments` cuts it at the bounds of its pieces of memory
//! and at the adapter's limit. Its own memory travels inside the request, by a slot, or is registered
//! (`local`). Requests of one peer are posted, or wait, in the order of the calls, so writes arrive, and reads see
//! them, in this order. A message of the port tells the target what its adapter does not (`notice`). `ourselves` has
//! operations of the endpoint with itself, `watch` the events for tools, `calls` what C calls. The operations of
//! `atomic` are among these; reads and writes behind one wait until it has ended.
//!
//! Grade: pending. Threads: the one that has entered the endpoint. Tests: in each file, and `hw-tests/libfabric`.

pub(crate) mod calls;
pub(crate) mod local;
pub(crate) mod notice;
pub(crate) mod operations;
mod ourselves;
mod segments;
pub(crate) mod watch;

use std::sync::Arc;

use ibex::messenger::host::Process as _;
use ibex::messenger::request::Role;
use ibex::messenger::route::Route;
use ibex::transport::adapter::verbs::Verbs;
use ibex::transport::{EndpointId, Failed, Port, Refused, Token};
use ibex_ffi::verbs::{InlineSpan, RemoteSpan, Status};

use crate::atomic::adapter::Step;
use crate::cq::{Completion, Failure};
use crate::domain::Domain;
use crate::entry::Result;
use crate::host::data::Piece;
use crate::host::{Reports, Shared, State};
use crate::info::LONGEST_INJECTED;
use crate::registration::Registrations;
use crate::{mr, sys};
use local::{Local, Slots};
use notice::Notice;
use operations::{Operation, Operations};
use segments::{Remote, Span, segments};

/// Whether the peer's memory is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// Flags of its completion.
    const fn flags(self) -> u64 {
        match self {
            Direction::Read => sys::FI_RMA | sys::FI_READ,
            Direction::Write => sys::FI_RMA | sys::FI_WRITE,
        }
    }

    /// The access that the region of the peer must permit.
    const fn access(self) -> u64 {
        match self {
            Direction::Read => sys::FI_REMOTE_READ,
            Direction::Write => sys::FI_REMOTE_WRITE,
        }
    }
}

/// How the end of an operation is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// The program's context, an address.
    pub(crate) context: usize,
    /// Whether a successful completion is written.
    pub(crate) is_reported: bool,
}

/// What a program asks for.
pub(crate) struct Transfer<'a> {
    pub(crate) direction: Direction,
    /// The peer, in the address vector.
    pub(crate) peer: sys::fi_addr_t,
    pub(crate) local: &'a [Piece],
    pub(crate) remote: &'a [Remote],
    /// Remote CQ data.
    pub(crate) data: Option<u64>,
    pub(crate) end: End,
    /// Whether the program reuses the memory at once.
    pub(crate) is_injected: bool,
    /// Whether all earlier operations with the peer must have ended (`FI_FENCE`).
    pub(crate) is_fenced: bool,
}

impl Transfer<'_> {
    fn length(&self) -> usize {
        self.local.iter().map(|piece| piece.length()).sum()
    }

    /// Returns where its memory begins here and there, and its length.
    fn place(&self) -> (usize, u64, usize) {
        let local = self.local.first().map_or(0, |piece| piece.address());
        (local, self.remote.first().map_or(0, |remote| remote.address), self.length())
    }

    /// Returns what the target is told about it.
    fn notice(&self) -> Option<Notice> {
        let data = self.data.map(|data| (data, self.length()));
        Notice::of(self.direction.access(), data, self.remote.iter().map(|remote| remote.key))
    }

    fn check(&self) -> Result<()> {
        let length = self.length();
        let remote = self.remote.iter().try_fold(0, |sum: usize, remote| sum.checked_add(remote.length));
        match length {
            _ if remote != Some(length) => Err(sys::FI_EINVAL),
            _ if self.is_injected && length > LONGEST_INJECTED => Err(sys::FI_EMSGSIZE),
            _ => Ok(()),
        }
    }
}

/// The one-sided operations of an endpoint.
pub(crate) struct Rma {
    pub(crate) domain: Arc<Domain>,
    /// Atomic ones as well.
    pub(crate) operations: Operations,
    /// Messages of atomic operations that have not ended, and operations by the adapter.
    pub(crate) atomics: u32,
    /// Number of operations that have not ended and need several requests of the adapter.
    pub(crate) exchanges: u32,
    /// The next requests of these operations, each with the number of its operation.
    pub(crate) steps: Vec<(u32, Step)>,
    /// This endpoint as a peer of its port, once the adapter has done an atomic operation on its own memory.
    pub(crate) ourselves: Option<EndpointId>,
    /// Messages that are to tell peers about operations that have ended.
    notices: Vec<(EndpointId, Box<Notice>)>,
    pub(crate) slots: Slots,
    /// Registrations of their data, and of that of messages.
    pub(crate) registrations: Registrations,
}

/// Tags of its messages at the port; that of the messenger's differs.
const NOTICE: u8 = 2;
pub(crate) const ATOMIC: u8 = 3;

/// Kind of its tokens, in the upper half; those of the messenger's records differ (`src/libfabric/memory.rs`).
pub(crate) const TOKEN: u64 = 8;

impl Rma {
    pub(crate) fn new(domain: Arc<Domain>, registrations: Registrations) -> Self {
        Rma {
            domain,
            operations: Operations::default(),
            atomics: 0,
            exchanges: 0,
            steps: Vec::new(),
            ourselves: None,
            notices: Vec::new(),
            slots: Slots::default(),
            registrations,
        }
    }

    /// Starts an operation with a peer. If the port cannot take a request any more, those that it has taken end first.
    fn begin(&mut self, port: &mut Port<Verbs>, to: EndpointId, of: &Transfer<'_>, reports: &Reports) -> Result<()> {
        if !of.remote.iter().all(|remote| mr::adapter_key(remote.key).is_some()) {
            report(reports, of.direction.flags(), of.end, Some(REFUSED));
            return Ok(());
        }
        let number = self.operations.next();
        let token = Token(TOKEN << 32 | u64::from(number));
        let length = of.length();
        let (local, mut posted) = match (of.local, of.remote) {
            // Nothing to move, but it ends after all earlier ones.
            _ if length == 0 => {
                let nowhere = RemoteSpan { addr: 0, rkey: 0 };
                (Local::None, Posted::of(port.put_inline(to, InlineSpan::EMPTY, nowhere, token)))
            }
            ([piece], [remote]) if of.direction == Direction::Write && length <= longest_inline(port) => {
                (Local::None, Posted::of(port.put_inline(to, piece.span(), remote.span(), token)))
            }
            _ => {
                let (local, spans) = self.slots.prepare(port, &mut self.registrations, of)?;
                (local, post(port, (to, token), of, &spans))
            }
        };
        let mut notice = of.notice().map(Box::new);
        if of.direction == Direction::Write
            && !posted.is_refused
            && let Some(notice) = notice.take()
        {
            posted.add(notice.post(port, to, number));
        }
        if posted.count == 0 {
            self.slots.end(&mut self.registrations, local, false);
            return Err(sys::FI_ENOTCONN);
        }
        let (flags, end, failure) = (of.direction.flags(), of.end, posted.is_refused.then_some(LOST));
        let watched = watch::started(port, to, flags, of.place());
        let posted = posted.count;
        self.operations.put(number, Operation { flags, end, to, posted, failure, local, notice, watched });
        Ok(())
    }

    /// Whether something waits until no port is entered.
    pub(crate) fn is_due(&self) -> bool {
        !self.notices.is_empty() || !self.steps.is_empty()
    }

    /// Handles the end of a request, which may have failed. Returns whether it is one of an operation.
    #[inline]
    pub(crate) fn ended(&mut self, token: Token, failed: Option<Failed>, reports: &Reports) -> bool {
        let (is_own, number) = (token.0 >> 32 == TOKEN, token.0 as u32);
        if is_own && self.exchanges > 0 && failed.is_none() && self.goes_on(number) {
            return true;
        }
        if is_own && let Some(ended) = self.operations.ended(number, failed.map(failure)) {
            self.end(ended, reports);
        }
        is_own
    }

    pub(crate) fn end(&mut self, ended: Operation, reports: &Reports) {
        if ended.flags & sys::FI_ATOMIC != 0 {
            self.atomics -= if let Local::Results(results) = &ended.local { results.messages } else { 1 };
            self.exchanges -= u32::from(matches!(ended.local, Local::Exchange(..)));
        }
        self.slots.end(&mut self.registrations, ended.local, ended.failure.is_none());
        if let Some(watched) = &ended.watched {
            watch::ended(watched, ended.failure);
        }
        if let (Some(notice), None) = (ended.notice, ended.failure) {
            self.notices.push((ended.to, notice));
        }
        report(reports, ended.flags, ended.end, ended.failure);
    }

    /// Returns the endpoint of a route.
    fn endpoint(&self, route: Route) -> Option<EndpointId> {
        if route == Route::LOOPBACK { self.ourselves } else { Some(route.to()) }
    }

    /// Whether the peer may not have done an atomic operation yet, which reads and writes behind it must follow.
    fn is_changing(&self, to: Option<EndpointId>) -> bool {
        let is_atomic = |of: &Operation| of.flags & sys::FI_ATOMIC != 0 && Some(of.to) == to;
        self.atomics > 0 && self.operations.all().any(is_atomic)
    }
}

fn longest_inline(port: &Port<Verbs>) -> usize {
    port.attributes().max_inline as usize
}

/// Posts the requests of an operation, until the port refuses one.
fn post(port: &mut Port<Verbs>, (to, token): (EndpointId, Token), of: &Transfer<'_>, spans: &[Span]) -> Posted {
    let longest = port.attributes().max_message.min(1 << 30) as usize;
    let mut posted = Posted { count: 0, is_refused: false };
    for segment in segments(spans, of.remote, longest) {
        let (local, remote) = (segment.local(), segment.remote());
        posted.add(match of.direction {
            Direction::Read => port.get(to, local, remote, token),
            Direction::Write => port.put(to, local, remote, token),
        });
        if posted.is_refused {
            break;
        }
    }
    posted
}

/// The requests of an operation that the port has taken.
struct Posted {
    count: u32,
    is_refused: bool,
}

impl Posted {
    fn of(outcome: std::result::Result<(), Refused>) -> Self {
        Posted { count: u32::from(outcome.is_ok()), is_refused: outcome.is_err() }
    }

    fn add(&mut self, outcome: std::result::Result<(), Refused>) {
        self.count += u32::from(outcome.is_ok());
        self.is_refused = outcome.is_err();
    }
}

pub(crate) const REFUSED: Failure<'_> = Failure {
    error: sys::FI_EACCES,
    excess: 0,
    text: "the target refuses the access: no region has this key, the range is not inside it, or it does not permit this",
};

pub(crate) const LOST: Failure<'_> = Failure {
    error: sys::FI_EIO,
    excess: 0,
    text: "the connection to the peer failed before the operation was done; FI_LOG_LEVEL=warn has the reason",
};

const UNANSWERED: Failure<'_> =
    Failure { error: sys::FI_ETIMEDOUT, excess: 0, text: "the peer did not acknowledge the operation" };

fn failure(of: Failed) -> Failure<'static> {
    match of.status {
        Status::REMOTE_ACCESS | Status::REMOTE_INVALID_REQUEST => REFUSED,
        Status::RETRY_EXCEEDED | Status::RNR_RETRY_EXCEEDED => UNANSWERED,
        _ => LOST,
    }
}

/// Reports the end of a one-sided operation. `flags`: those of its completion.
pub(crate) fn report(to: &Reports, flags: u64, End { context, is_reported }: End, failure: Option<Failure<'_>>) {
    let completion = Completion { context, flags, ..Completion::default() };
    match failure {
        None => to.succeeded(is_reported, completion),
        Some(failure) => to.refused(completion, failure),
    }
}

/// Starts a one-sided operation.
pub(crate) fn transfer(state: &mut State, shared: &Shared, of: &Transfer<'_>) -> Result<()> {
    of.check()?;
    if of.is_fenced {
        fence(state, shared, of.peer)?;
    }
    let route = state.route(shared, of.peer).ok_or(sys::FI_EINVAL)?;
    ended(state, shared, |state| state.others.is_changing(state.others.endpoint(route)))?;
    if route == Route::LOOPBACK {
        ourselves::transfer(state, shared, of);
        return Ok(());
    }
    begin(state, shared, |others, port, reports| others.begin(port, route.to(), of, reports))
}

/// Begins an operation by `with`, which gets the port. Makes progress if it cannot begin now (`FI_EAGAIN`), because a
/// program may do nothing but call again.
pub(crate) fn begin(
    state: &mut State,
    shared: &Shared,
    with: impl FnOnce(&mut Rma, &mut Port<Verbs>, &Reports) -> Result<()>,
) -> Result<()> {
    let begun = {
        let mut port = shared.enter_port(0).ok_or(sys::FI_EAGAIN)?;
        with(&mut state.others, &mut port, &state.reports)
    };
    if begun == Err(sys::FI_EAGAIN) {
        state.progress(shared);
    }
    state.leave(shared);
    begun
}

/// Checks that something has ended, after progress if it has not. The program calls again (`FI_EAGAIN`).
pub(crate) fn ended(state: &mut State, shared: &Shared, goes_on: impl Fn(&State) -> bool) -> Result<()> {
    if goes_on(state) {
        state.progress(shared);
    }
    if goes_on(state) { Err(sys::FI_EAGAIN) } else { Ok(()) }
}

/// Checks that all operations with this peer have [`ended`].
pub(crate) fn fence(state: &mut State, shared: &Shared, peer: sys::fi_addr_t) -> Result<()> {
    let route = state.route(shared, peer).ok_or(sys::FI_EINVAL)?;
    ended(state, shared, |state| is_engaged(state, route))
}

/// Whether an operation with this peer, or a send to it, has not ended.
fn is_engaged(state: &State, route: Route) -> bool {
    let is_send = |role: Role| role != Role::Receive;
    state.others.operations.all().any(|operation| Some(operation.to) == state.others.endpoint(route))
        || state.requests.active().any(|(_, of)| is_send(of.core.role) && of.core.peer == route.bits())
}

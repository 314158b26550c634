// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles what the ports report: whole messages with a posted receive within the poll ([`Receiver`]); then other
//! messages, requests that have ended, and peers and links that have failed ([`handle`]).
//!
//! Called by the host for each poll, and for each completion of a batch, in order. Grade: hot for [`Receiver`], else
//! pending. Threads: the one that has entered the messenger; with a port only in [`Receiver`]. Tests: those of the
//! hosts.

use super::failover;
use super::lost;
use super::multi_rail::Turn;
use super::routes;
use super::send_buffers::{BufferId, Content};
use crate::messenger::events::transfers::Bytes;
use crate::messenger::events::{self, Completed};
use crate::messenger::header::Header;
use crate::messenger::host::{PortHost, Process, Record};
use crate::messenger::receive::search::{self, Deferred};
use crate::messenger::rendezvous::{fragments, read};
use crate::messenger::request::Transfer;
use crate::messenger::route::Route;
use crate::transport::{Completion, EndpointId, Failed, Immediate, ReceivedMessage, TakesMessages, TakesRequests};

/// How a message arrived by a rail.
#[derive(Clone, Copy, Debug)]
pub struct ByRail {
    /// Index of the rail.
    pub rail: usize,
    /// Names the sender; not verified.
    pub immediate: Immediate,
    /// Number of the queue pair that received it.
    pub qp_num: u32,
}

impl ByRail {
    /// Looks up the sender; `None` if the message came by another queue pair than that of the sender it names.
    pub fn route<P: Process>(self, process: &P) -> Option<Route> {
        let port = process.enter_port(self.rail)?;
        Some(Route::new(self.rail, port.sender(self.immediate, self.qp_num)?))
    }
}

/// Delivers whole messages that have a posted receive while the port of a rail polls. `MULTI_RAIL`: the process has
/// several rails.
pub struct Receiver<'a, H: PortHost, const MULTI_RAIL: bool> {
    host: &'a mut H,
    rail: usize,
    deferred: Option<&'a mut Option<Deferred<H>>>,
}

impl<'a, H: PortHost, const MULTI_RAIL: bool> Receiver<'a, H, MULTI_RAIL> {
    /// Makes the receiver of a rail. It puts a short message that raises events in `deferred`, if there is a
    /// place: the host [delivers](search::deliver) it once it has left the port.
    #[inline(always)]
    pub fn new(host: &'a mut H, rail: usize, deferred: Option<&'a mut Option<Deferred<H>>>) -> Self {
        Receiver { host, rail, deferred }
    }
}

impl<H: PortHost + TakesRequests, const MULTI_RAIL: bool> TakesMessages for Receiver<'_, H, MULTI_RAIL> {
    type Requests = H;

    #[inline(always)]
    fn requests(&mut self) -> &mut H {
        self.host
    }

    #[inline(always)]
    fn takes(&mut self, message: &ReceivedMessage, immediate: Immediate) -> bool {
        let from = immediate.endpoint();
        if MULTI_RAIL && !self.host.messenger().rails.multi_rail.may_be_taken(self.rail, from) {
            return false;
        }
        if immediate.tag() != H::Process::TAG {
            return false;
        }
        let bytes = self.host.received(message);
        let rail = self.rail;
        let sender = |host: &mut H| {
            let route = Route::new(rail, from);
            if MULTI_RAIL { host.messenger().rails.multi_rail.account_of(route) } else { Some(route) }
        };
        let is_taken = search::is_taken(self.host, &bytes, sender, self.deferred.as_deref_mut());
        if MULTI_RAIL && is_taken {
            self.host.messenger().rails.multi_rail.count(self.rail, from);
        }
        is_taken
    }

    #[cold]
    fn is_busy(&mut self) {
        self.host.is_busy();
    }
}

/// Handles a completion. Returns whether it is the messenger's alone; any other user of the port handles it as well, or
/// instead.
#[inline(always)]
pub fn handle<H: PortHost>(process: &H::Process, host: &mut H, rail: usize, completion: &Completion) -> bool {
    match *completion {
        Completion::Message { message: ref received, immediate, qp_num, .. } => {
            let is_own = immediate.tag() == H::Process::TAG;
            if is_own {
                let bytes = host.received(received);
                message(process, host, &bytes, ByRail { rail, immediate, qp_num });
            }
            is_own
        }
        Completion::Request { token, to, outcome } => {
            let record = H::record_of(token);
            if let Some(record) = record {
                request(process, host, (rail, to), record, outcome);
            }
            record.is_some()
        }
        Completion::PeerFailed { peer } => {
            peer_failed(process, host, Route::new(rail, peer));
            false
        }
        Completion::LinkChanged { is_up } => {
            link_changed(process, host, rail, is_up);
            false
        }
    }
}

/// Copy of a message that arrived too early, in the reorder buffer.
#[derive(Debug)]
pub struct Held {
    bytes: Box<[u8]>,
    from: Option<Route>,
    completed: Option<Completed>,
}

/// Handles a message that was not taken in place, header included; with several rails, when its turn comes.
fn message<H: PortHost>(process: &H::Process, host: &mut H, bytes: &[u8], by: ByRail) {
    if process.is_multi_rail() {
        message_in_turn(process, host, bytes, by);
    } else {
        host.handle(process, bytes, || by.route(process));
    }
}

/// Handles a message, and those in the reorder buffer that waited for it.
#[inline(never)]
fn message_in_turn<H: PortHost>(process: &H::Process, host: &mut H, bytes: &[u8], by: ByRail) {
    let ByRail { rail, immediate, .. } = by;
    if let Some((Header::Moved { segment, count }, _)) = Header::<H::Envelope>::decode(bytes) {
        return moved(process, host, by, (segment, count));
    }
    let completed = host.messenger().completed;
    // The connection may be gone when its turn comes.
    let copied = || Held { bytes: bytes.into(), from: by.route(process), completed };
    let is_there = || is_there(process, rail, immediate);
    match host.messenger().rails.multi_rail.arrives(rail, immediate.endpoint(), is_there, copied) {
        Turn::Later => {}
        Turn::Now => host.handle(process, bytes, || by.route(process)),
        Turn::NowAndHeld(peer) => {
            host.handle(process, bytes, || by.route(process));
            release(process, host, peer);
        }
    }
}

/// Whether the port has the endpoint that a message names.
#[cold]
fn is_there<P: Process>(process: &P, rail: usize, from: Immediate) -> bool {
    process.enter_port(rail).is_some_and(|port| port.peer_name(from.endpoint()).is_some())
}

/// Notes that the sender has moved to this port.
#[cold]
fn moved<H: PortHost>(process: &H::Process, host: &mut H, by: ByRail, segment: (u32, u32)) {
    let Some(peer) = by.route(process).and_then(|from| routes::peer_of(process, host, from)) else { return };
    host.messenger().rails.multi_rail.moved(peer, by.rail, segment);
    release(process, host, peer);
}

/// Handles messages in the reorder buffer whose turn has come.
fn release<H: PortHost>(process: &H::Process, host: &mut H, peer: usize) {
    while let Some(Held { bytes, from, completed }) = host.messenger().rails.multi_rail.release(peer) {
        host.messenger().completed = completed;
        host.handle(process, &bytes, || from);
    }
}

/// Handles the end of a request of the port of a rail.
#[inline(never)]
fn request<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    (rail, to): (usize, EndpointId),
    record: Record<H::Handle>,
    outcome: Result<(), Failed>,
) {
    match record {
        Record::Buffer(buffer) => sent(process, host, (rail, to), buffer, outcome),
        Record::Read(receive) => read::done(process, host, receive, rail, outcome),
        Record::Sent(send) if outcome.is_ok() => sent_without_buffer(process, host, send),
        Record::Sent(send) => failed_without_buffer(process, host, send, Route::new(rail, to)),
        Record::Turn if outcome.is_ok() => {
            host.messenger().flow.turns.push(Route::new(rail, to));
            host.has_turn();
        }
        // The port has reported the failure of the peer before.
        Record::Turn => {}
    }
}

/// Handles the end of a message, or of a fragment, that was sent without a send buffer.
fn sent_without_buffer<H: PortHost>(process: &H::Process, host: &mut H, send: H::Handle) {
    // `Sending`: this was a fragment, else the whole message.
    if matches!(host.core(send).transfer, Transfer::Sending(_)) {
        return fragments::done(process, host, send);
    }
    events::ends_whole(process, host, send, Bytes::None.completed());
    host.finish(send);
}

/// Handles the failure of such a message or fragment: its peer is lost.
#[cold]
fn failed_without_buffer<H: PortHost>(process: &H::Process, host: &mut H, send: H::Handle, to: Route) {
    lost::note(process, host, to);
    // A send in fragments ends with the peer.
    if !matches!(host.core(send).transfer, Transfer::Sending(_)) {
        host.fail(process, send, to);
    }
}

/// Handles the completion of a send buffer.
fn sent<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    (rail, to): (usize, EndpointId),
    buffer: BufferId,
    outcome: Result<(), Failed>,
) {
    match host.messenger().rails.buffers[rail].give_back(buffer) {
        _ if outcome.is_err() => {
            lost::note(process, host, Route::new(rail, to));
            // A send to another peer may wait for this buffer.
            fragments::feed_starved(process, host);
        }
        Content::Silent => {}
        Content::Fragment(send) => fragments::done(process, host, send),
    }
}

/// Handles the failure of the connection of a route.
pub fn peer_failed<H: PortHost>(process: &H::Process, host: &mut H, route: Route) {
    if !failover::fails_over(process, host, route) {
        lost::note(process, host, route);
    }
    fragments::feed_starved(process, host);
}

/// Handles the loss or the return of a rail's link.
fn link_changed<H: PortHost>(process: &H::Process, host: &mut H, rail: usize, is_up: bool) {
    failover::link_changed(process, host, rail, is_up);
    // Fragments that wait for a buffer of a port that is down can go by another port.
    fragments::feed_starved(process, host);
}

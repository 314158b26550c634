// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives messages to the port of a route: inside the work request, from a send buffer, or as a copy in the port's
//! queue. If the port has failed, control messages and turns go by another one.
//!
//! The port queues answers to a peer, fragments, and messages for which there is no send buffer. The request of such a
//! message is finished only when the adapter has the message, because the caller of a send may stay away from MPI for
//! long. Called by `rails`, `fragment` and `failover`. Grade: hot for [`message`], else pending. Threads: the one that
//! has entered the messenger, and no port. Tests: those of the hosts.

use std::sync::Arc;

use ibex_ffi::verbs::{InlineSpan, LocalSpan};

use super::send_buffers::{BufferId, SendBuffers};
use super::{failover, lost, routes};
use crate::messenger::host::{Data, PortHost, Process, Record, Transmitted, Types};
use crate::messenger::route::Route;
use crate::transport::{Port, Sent, Token, WhenDiverted};

/// The port of a host.
pub(super) type PortOf<H> = Port<<<H as Types>::Process as Process>::Adapter>;

const fn tag<H: Types>() -> u8 {
    <H::Process as Process>::TAG
}

/// Sends header and data inside the work request. Returns false if that cannot be done now.
#[inline(never)]
fn inline<H: Types>(port: &mut PortOf<H>, route: Route, header: &[u8], data: InlineSpan<'_>) -> bool {
    port.send_inline(route.to(), tag::<H>(), header.into(), data) == Ok(Sent::Posted)
}

/// Sends a message without data by the peer's home. Its completion is not reported.
pub(super) fn control<H: PortHost>(process: &H::Process, host: &mut H, route: Route, message: &[u8]) {
    let home = routes::home(process, host, route);
    let is_posted = process.enter_port(home.rail()).is_some_and(|mut port| {
        let is_posted = inline::<H>(&mut port, home, message, InlineSpan::EMPTY);
        if is_posted {
            note(process, &mut port, home, Transmitted::Posted);
        }
        is_posted
    });
    if !is_posted {
        let message = (Arc::from(message), message.len() as u32, Token(0));
        if !failover::send_by_home(process, host, home, vec![message]) {
            lost::note(process, host, home);
        }
    }
}

/// Queues the turn of pending messages at their peer's home. If that has failed, their turn moves with the peer.
pub(super) fn queue_turn<H: PortHost>(process: &H::Process, host: &mut H, route: Route) {
    let home = routes::home(process, host, route);
    let port = process.enter_port(home.rail());
    let is_queued = port.is_some_and(|mut port| port.queue_turn(home.to(), tag::<H>(), H::token(Record::Turn)).is_ok());
    if !is_queued && !failover::fails_over(process, host, home) {
        lost::note(process, host, home);
    }
}

/// Queues a message at a port. `bytes`: an array that begins with the message, and the message's length.
pub(super) fn queue<H: Types>(
    port: &mut PortOf<H>,
    route: Route,
    bytes: (Arc<[u8]>, u32),
    token: Token,
) -> Transmitted {
    match port.queue_bytes(route.to(), tag::<H>(), bytes, token, WhenDiverted::Wait) {
        Ok(()) => Transmitted::Waits,
        Err(_) => Transmitted::Failed,
    }
}

/// [`queue`] at the port of a route. Returns false if the port refuses the message.
pub(super) fn queue_by<H: PortHost>(process: &H::Process, route: Route, bytes: (Arc<[u8]>, u32), token: Token) -> bool {
    let Some(mut port) = process.enter_port(route.rail()) else { return false };
    let transmitted = queue::<H>(&mut port, route, bytes, token);
    note(process, &mut port, route, transmitted);
    transmitted != Transmitted::Failed
}

/// Counts a message that was given to a port, with several rails.
pub(super) fn note<P: Process>(process: &P, port: &mut Port<P::Adapter>, route: Route, transmitted: Transmitted) {
    if process.is_multi_rail() && matches!(transmitted, Transmitted::Posted | Transmitted::Waits) {
        routes::note(port, route, transmitted == Transmitted::Posted);
    }
}

/// Sends header and data of a send by this route; together they are no longer than the eager limit. If the message has
/// to wait, the port takes a copy, and once that is sent, the send is finished if `finishes`.
pub(super) fn message<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    route: Route,
    header: &[u8],
    send: H::Handle,
    finishes: bool,
) -> Transmitted {
    let Some(mut port) = process.enter_port(route.rail()) else { return Transmitted::Failed };
    let transmitted = give(host, &mut port, route, header, send, finishes);
    note(process, &mut port, route, transmitted);
    transmitted
}

#[inline(always)]
fn give<H: PortHost>(
    host: &mut H,
    port: &mut PortOf<H>,
    route: Route,
    header: &[u8],
    send: H::Handle,
    finishes: bool,
) -> Transmitted {
    if host.inline(send, |data| inline::<H>(port, route, header, data)) == Some(true) {
        return Transmitted::Posted;
    }
    if !port.has_room(route.to()) {
        return Transmitted::NoRoom;
    }
    let length = host.core(send).data.length();
    let buffers = &mut host.messenger().rails.buffers[route.rail()];
    let Some((buffer, span)) = buffers.take(port, header.len() + length) else {
        let mut bytes = vec![0; header.len() + length];
        if !fill(&mut host.core(send).data, &mut bytes, header) {
            host.cannot_pack(length);
            return Transmitted::Failed;
        }
        let token = if finishes { H::token(Record::Sent(send)) } else { Token(0) };
        let length = bytes.len() as u32;
        return queue::<H>(port, route, (Arc::from(bytes), length), token);
    };
    let is_filled = host.fill(send, span, |data, bytes| fill(data, bytes, header));
    let buffers = &mut host.messenger().rails.buffers[route.rail()];
    if !is_filled {
        buffers.give_back(buffer);
        host.cannot_pack(length);
        return Transmitted::Failed;
    }
    if post::<H>(buffers, port, route, (buffer, span)) { Transmitted::Posted } else { Transmitted::NoRoom }
}

/// Copies a header and the data of a send to `to`, which is as long as both. Returns false if it cannot pack the data.
fn fill(send: &mut impl Data, to: &mut [u8], header: &[u8]) -> bool {
    let (before, data) = to.split_at_mut(header.len());
    before.copy_from_slice(header);
    send.take_all(data)
}

/// Sends these bytes of a buffer as a message that no request waits for. If the port cannot send now, gives the buffer
/// back to `buffers` and returns false.
#[inline(always)]
pub fn post<H: PortHost>(
    buffers: &mut SendBuffers<H::Handle>,
    port: &mut PortOf<H>,
    route: Route,
    (buffer, bytes): (BufferId, LocalSpan),
) -> bool {
    let is_posted =
        port.send(route.to(), tag::<H>(), &[bytes], H::token(Record::Buffer(buffer)), false) == Ok(Sent::Posted);
    if !is_posted {
        buffers.give_back(buffer);
    }
    is_posted
}

/// Sends a fragment from a buffer; if it has to wait, it does so in the buffer.
pub(super) fn fragment<H: PortHost>(
    port: &mut PortOf<H>,
    route: Route,
    (buffer, bytes): (BufferId, LocalSpan),
) -> Transmitted {
    let (spans, token) = ([bytes], H::token(Record::Buffer(buffer)));
    match port.send(route.to(), tag::<H>(), &spans, token, true) {
        Ok(Sent::Posted) => return Transmitted::Posted,
        Ok(Sent::Busy) => {}
        Err(_) => return Transmitted::Failed,
    }
    match port.queue_send(route.to(), tag::<H>(), &spans, token, WhenDiverted::Wait) {
        Ok(()) => Transmitted::Waits,
        Err(_) => Transmitted::Failed,
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the protocol of a send that has a request, and begins it: eager, synchronous, announced or pending.
//!
//! Called by the host, and by `flow_control` for sends that pended. Grade: hot for a copied message, else pending.
//! Threads: the one that has entered the messenger, and no port. Tests: `messenger/tests/histories.rs`, and
//! `pt2pt_modes.c` and others in `hw-tests/mpi`.

use std::sync::atomic::Ordering;

use super::events::transfers::Bytes;
use super::flow_control::{self, SendPath};
use super::header::{Header, Match, Memory, WireEnvelope};
use super::host::{Data, Exposed, Host, Process as _, Transmitted};
use super::path_taken::{Protocol, Reason, unreadable};
use super::rails::lost;
use super::rendezvous::{self, Step};
use super::request::{Mode, Role, Transfer};
use super::route::Route;
use super::{events, loopback};
use crate::counters::add_shared;

/// Begins a send, whose record is complete, by `route`. It may be finished when this returns.
pub fn begin<H: Host>(process: &H::Process, host: &mut H, request: H::Handle, route: Route) {
    if route == Route::LOOPBACK {
        return loopback::send(process, host, request);
    }
    host.core(request).route = host.home(process, route);
    let is_free = host.messenger().flow.outgoing.is_free() && host.skips_flow_control(process, request);
    let path = if is_free { SendPath::Free } else { send_path(process, host, request) };
    if path == SendPath::Pending {
        let context = host.context(request);
        return flow_control::pend(process, host, context, request);
    }
    go(process, host, request, path);
}

/// Decides how to send a message while flow control limits a peer, or the host's record of its route is old.
#[cold]
#[inline(never)]
fn send_path<H: Host>(process: &H::Process, host: &mut H, request: H::Handle) -> SendPath {
    let (context, core) = (host.context(request), host.core(request));
    let (route, tag) = (core.route, core.tag);
    let account = host.account(process, route);
    let outgoing = &mut host.messenger().flow.outgoing;
    let path = outgoing.send_path(account, (context, H::Envelope::is_of_library(tag)));
    let passes = path != SendPath::Pending && outgoing.may_pass(account, context);
    host.set_skips_flow_control(process, request, passes);
    if let SendPath::Rendezvous { .. } = path {
        add_shared(&host.messenger().flow.shown.announced_held_back, 1);
    }
    path
}

/// Sends a message by the path that flow control has chosen. Returns false if it finds no room: then it pends.
fn go<H: Host>(process: &H::Process, host: &mut H, request: H::Handle, path: SendPath) -> bool {
    let communicator = host.communicator(request);
    let (context, rank, core) = (host.number(communicator), host.rank(communicator), host.core(request));
    let of = Match { context, envelope: H::Envelope::new(rank, core.tag) };
    let (route, length) = (core.route, core.data.length());
    let role = core.role;
    let is_long = length > process.eager_limit(route);
    if is_long || path != SendPath::Free {
        // A window bounds the announcements to a peer that holds this process back, so they may wait at the port.
        if path == SendPath::Free && !host.has_room(process, route) {
            found_no_room(process, host, request);
            return false;
        }
        announce(process, host, request, (of, is_long, path == SendPath::Rendezvous { counted: true }));
        return true;
    }
    host.sends_whole(request);
    if !events::begins_whole(process, host, request, route) {
        found_no_room(process, host, request);
        return false;
    }
    // The receiver's answer finishes a synchronous send, and one that is to be delivered.
    let is_answered = !role.ends_when_sent();
    let sender = is_answered.then(|| host.messenger().transfers.begin(request));
    let header = match sender {
        None => Header::Eager(of),
        Some(sender) if role == Role::Send(Mode::Delivered) => Header::Delivered(of, sender.0),
        Some(sender) => Header::Synchronous(of, sender.0),
    };
    match (host.send_whole(process, request, &header, !is_answered), sender) {
        (Transmitted::NoRoom, sender) => {
            if let Some(sender) = sender {
                host.messenger().transfers.end(sender);
            }
            found_no_room(process, host, request);
            return false;
        }
        (Transmitted::Failed, sender) => {
            if let Some(sender) = sender {
                host.messenger().transfers.end(sender);
            }
            lost::note(process, host, route);
            host.fail(process, request, route);
        }
        (Transmitted::Waits, None) => {}
        (Transmitted::Posted | Transmitted::Waits, sender) => {
            events::ends_whole(process, host, request, Bytes::None.posted());
            if let Some(sender) = sender {
                rendezvous::enter(host, request, &Step::Offered(sender));
                host.core(request).transfer =
                    Transfer::Unanswered { sender, registered: None, others: Vec::new(), counted: false };
            } else {
                host.finish(request);
            }
        }
    }
    true
}

/// Queues a send that found no room in front of the pending ones, until it is their turn.
#[cold]
#[inline(never)]
fn found_no_room<H: Host>(process: &H::Process, host: &mut H, request: H::Handle) {
    host.set_skips_flow_control(process, request, false);
    let (context, core) = (host.context(request), host.core(request));
    let (route, tag) = (core.route, core.tag);
    let account = host.account(process, route);
    let stream = (context, H::Envelope::is_of_library(tag));
    host.messenger().flow.outgoing.found_no_room(account, stream, request);
    host.queue_turn(process, route);
}

/// Announces a message. If it is long, the receiver may read its memory.
#[inline(never)]
fn announce<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    (of, is_long, counted): (Match<H::Envelope>, bool, bool),
) {
    let sender = host.messenger().transfers.begin(request);
    rendezvous::enter(host, request, &Step::Offered(sender));
    let core = host.core(request);
    let (route, length) = (core.route, core.data.length() as u64);
    let exposed = if is_long { host.expose(process, request) } else { Err(Reason::HeldBack) };
    let (how, memory) = match exposed {
        Ok(Exposed { key, address, .. }) => ((Protocol::Read, Reason::Size), Memory::Readable { key, address, length }),
        Err(why) => (unreadable(length, why), Memory::Unreadable { why, length }),
    };
    let Exposed { registered, others, keys, .. } = exposed.unwrap_or_default();
    // Raises no begin event: it comes with the first copy or, if the receiver reads, with the receiver's answer.
    events::raise_path_by(process, host, request, route, how, 1 + others.len());
    if keys.is_empty() {
        host.control(process, route, &Header::ReadyToSend(of, sender.0, memory));
    } else {
        host.control_with_keys(process, route, &Header::ReadyToSendKeyed(of, sender.0, memory), &keys);
    }
    host.core(request).transfer = Transfer::Unanswered { sender, registered, others, counted };
}

/// Sends a message that pended. Returns false if it finds no room.
pub(super) fn go_on<H: Host>(process: &H::Process, host: &mut H, request: H::Handle, path: SendPath) -> bool {
    if host.is_abandoned(request) {
        if path == (SendPath::Rendezvous { counted: true }) {
            // Flow control has counted it, and no answer will come.
            let (context, route) = (host.context(request), host.core(request).route);
            let account = host.account(process, route);
            host.messenger().flow.outgoing.answered(account, context);
        }
        host.finish(request);
        return true;
    }
    // The peer may have another home now.
    let route = host.core(request).route;
    host.core(request).route = host.home(process, route);
    go(process, host, request, path)
}

/// Most polls before pending messages have their turn: more than a receive queue holds batches.
const POLLS: usize = 256;

/// Sends the pending messages whose turn it is, once `poll`, which polls all rails, finds no more messages. A process
/// that sent before it has handled all arrived messages would flood its peer: the peer's message that holds it back may
/// be the last of them.
#[cold]
#[inline(never)]
pub fn in_turns<H: Host>(process: &H::Process, host: &mut H, mut poll: impl FnMut(&mut H)) {
    let count = |rail| Some(process.enter_port(rail)?.counters().empty_polls.load(Ordering::Relaxed));
    let empty = || -> u64 { (0..process.rail_count()).filter_map(count).sum() };
    for _ in 0..POLLS {
        let before = empty();
        poll(host);
        if empty() - before == process.rail_count() as u64 {
            break;
        }
    }
    for route in std::mem::take(&mut host.messenger().flow.turns) {
        in_turn(process, host, route);
    }
}

/// Sends pending messages by a route whose turn it is, while there is room.
pub(super) fn in_turn<H: Host>(process: &H::Process, host: &mut H, route: Route) {
    // If the peer has another home now, its messages have their turn there.
    if host.home(process, route) != route {
        return;
    }
    let account = host.account(process, route);
    host.begin_turn(process, route);
    while let Some((request, path)) = host.messenger().flow.outgoing.next_in_turn(account) {
        // If this has moved the peer to another home, the turn has moved as well.
        if !go_on(process, host, request, path) || host.home(process, route) != route {
            return;
        }
    }
    host.messenger().flow.outgoing.has_room(account);
    host.end_turn(process, route);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends and handles the messages of flow control: `HoldBack` and `GoOn` ([`Header::Flow`]), `Pending` and `More`.
//!
//! Called by `send` (sends that must pend), `receive` (these messages), `search`, `probe`, `delivery` and `rendezvous`;
//! by the host when it drops a message. Grade: pending. Threads: the one that has entered the messenger. Tests:
//! `messenger/tests`, `pml/tests`, and `unexpected_memory.c` in `hw-tests/mpi`.

use super::Word;
use crate::counters::add_shared;
use crate::messenger::header::{Header, WireEnvelope};
use crate::messenger::host::Host;
use crate::messenger::receive::arrived::Arrived;
use crate::messenger::route::{Account, Route};
use crate::messenger::send;

// ---- the receiver's side --------------------------------------------------------------------------------------------

/// Accounts for an unexpected message to be stored. Beyond the bound, holds its `sender` back.
pub fn keep<H: Host>(
    process: &H::Process,
    host: &mut H,
    message: &Arrived,
    sender: impl FnOnce(&mut H) -> Option<Route>,
) {
    let flow = &mut host.messenger().flow;
    let is_beyond = flow.kept.keep(message.cost());
    flow.show();
    if is_beyond {
        let sender = sender(host);
        hold_back(process, host, sender);
    }
}

#[cold]
#[inline(never)]
fn hold_back<H: Host>(process: &H::Process, host: &mut H, sender: Option<Route>) {
    // This process must not hold itself back: its blocking send would wait for its own receive.
    let Some(sender) = sender.filter(|sender| *sender != Route::LOOPBACK) else { return };
    let account = host.account(process, sender);
    let flow = &mut host.messenger().flow;
    if let Some(word) = flow.kept.hold_back(account) {
        add_shared(&flow.shown.senders_held_back, 1);
        host.record_flow(process, Some(account));
        host.control(process, account.0, &Header::Flow(word));
    }
}

/// Accounts for an unexpected message that is stored no longer: it has found its receive, or is dropped.
pub fn give_up<H: Host>(process: &H::Process, host: &mut H, message: &Arrived) {
    host.messenger().flow.kept.give_up(message.cost());
    let_go_if_room(process, host);
}

/// Lets senders go on if enough unexpected messages were given up.
pub fn let_go_if_room<H: Host>(process: &H::Process, host: &mut H) {
    let flow = &host.messenger().flow;
    flow.show();
    if flow.kept.has_room() {
        let_go(process, host);
    }
}

#[cold]
#[inline(never)]
fn let_go<H: Host>(process: &H::Process, host: &mut H) {
    let (peers, word) = host.messenger().flow.kept.let_go();
    host.record_flow(process, None);
    for peer in peers {
        host.control(process, peer.0, &Header::Flow(word));
    }
}

/// Notes that sends of a peer pend in a communicator. Asks for more at once if a receive may wait for one of them.
pub fn pending<H: Host>(process: &H::Process, host: &mut H, sender: Route, context: u32) {
    let account = host.account(process, sender);
    host.messenger().flow.kept.pends(account, context);
    let of = host.messenger().contexts.get(context).copied();
    if of.is_some_and(|of| host.queues(of).0.posted() > 0) {
        ask_for_more(process, host, context);
    }
}

/// Asks for more messages of a communicator: a receive or probe found no message, or a message found no receive.
#[inline]
pub fn found_nothing<H: Host>(process: &H::Process, host: &mut H, context: u32) {
    if host.messenger().flow.kept.has_pending() {
        ask_for_more(process, host, context);
    }
}

#[cold]
#[inline(never)]
fn ask_for_more<H: Host>(process: &H::Process, host: &mut H, context: u32) {
    for peer in host.messenger().flow.kept.ask_for_more(context) {
        host.control(process, peer.0, &Header::More(context));
    }
}

// ---- the sender's side ----------------------------------------------------------------------------------------------

/// Queues a send behind those that pend; its data stays in the user's buffer.
#[cold]
#[inline(never)]
pub fn pend<H: Host>(process: &H::Process, host: &mut H, context: u32, send: H::Handle) {
    let core = host.core(send);
    let (route, tag) = (core.route, core.tag);
    let account = host.account(process, route);
    let must_send = host.messenger().flow.outgoing.pend(account, (context, H::Envelope::is_of_library(tag)), send);
    send_pending(process, host, (account, context), must_send);
}

/// Sends `Pending` for a communicator to a peer, if `must_send`.
fn send_pending<H: Host>(process: &H::Process, host: &mut H, (account, context): (Account, u32), must_send: bool) {
    if must_send {
        host.control(process, account.0, &Header::Pending(context));
    }
}

/// Sends as many pending messages of a communicator as flow control permits. If some are left, sends `Pending`, once
/// for each time that the peer has asked for more.
fn resume<H: Host>(process: &H::Process, host: &mut H, account: Account, context: u32) {
    while let Some((request, path)) = host.messenger().flow.outgoing.next(account, context) {
        send::go_on(process, host, request, path);
    }
    let must_send = host.messenger().flow.outgoing.must_send_pending(account, context);
    send_pending(process, host, (account, context), must_send);
}

/// Continues pending sends after the answer to an announced message that was counted.
pub fn answered<H: Host>(process: &H::Process, host: &mut H, route: Route, context: u32) {
    let account = host.account(process, route);
    host.messenger().flow.outgoing.answered(account, context);
    resume(process, host, account, context);
}

/// Continues pending sends because the peer asks for more messages of a communicator.
pub fn more<H: Host>(process: &H::Process, host: &mut H, route: Route, context: u32) {
    let account = host.account(process, route);
    host.messenger().flow.outgoing.more(account, context);
    resume(process, host, account, context);
}

/// Notes that the peer starts or stops holding this process back.
pub fn heard<H: Host>(process: &H::Process, host: &mut H, route: Route, word: Word) {
    let account = host.account(process, route);
    let Some(pending) = host.messenger().flow.outgoing.heard(account, word) else { return };
    if word.holds_back {
        let routes = host.routes_of(process, account);
        host.mark(&routes);
    }
    for context in pending {
        resume(process, host, account, context);
    }
}

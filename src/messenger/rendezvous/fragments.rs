// SPDX-License-Identifier: MIT OR Apache-2.0
//! An announced message as copied fragments: a short one of a sender that is held back, or a long one that its receiver
//! cannot read. The receiver asks for them, the sender sends a few at a time, and the receiver unpacks them in order.
//!
//! A send whose next fragment finds no send buffer waits for one, behind those that wait already ([`State::starved`]).
//! `copies.rs` has the counts of both sides. Called by `receive`, `delivery`, `read` and `single_copy`, and by the host
//! for completions. Grade: pending. Threads: the one that has entered the messenger. Tests: `messenger/tests`,
//! `pml/tests`, and `pt2pt_datatypes.c` in `hw-tests/mpi`.
//!
//! [`State::starved`]: crate::messenger::State::starved

use super::copies::{Reassembly, Sending};
use super::{Step, close};
use crate::messenger::events;
use crate::messenger::events::transfers::Bytes;
use crate::messenger::header::Header;
use crate::messenger::host::{Data, Host, NotPacked, Posted};
use crate::messenger::path_taken::{Protocol, Reason};
use crate::messenger::rails::lost;
use crate::messenger::request::Transfer;
use crate::messenger::request::transfer_id::TransferId;
use crate::messenger::route::Route;

/// Maximum number of fragments of a message in flight.
const MOST: u32 = 4;

/// Asks the sender of an announced message for copies of its first `wanted` bytes (at least 1). `why`: why the receiver
/// does not read the message, if it could.
pub(crate) fn ask<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    (from, sender): (Route, TransferId),
    (wanted, why): (u64, Reason),
) {
    let receiver = host.messenger().transfers.begin(request);
    let core = host.core(request);
    (core.route, core.transfer) = (from, Transfer::Reassembly(Reassembly::new(receiver, wanted)));
    let header = Header::ClearToSend { request: sender.0, receive: receiver.0, why, length: wanted };
    host.control(process, from, &header);
}

/// Unpacks a fragment that has arrived; ignores one that is not the next. `receiver` may be any number.
pub(crate) fn received<H: Host>(host: &mut H, receiver: TransferId, offset: u64, bytes: &[u8]) {
    let Some(request) = host.messenger().transfers.get(receiver) else { return };
    let Transfer::Reassembly(reassembly) = &mut host.core(request).transfer else { return };
    let Some(length) = reassembly.take(offset, bytes.len() as u64) else { return };
    let (id, is_complete) = (reassembly.id, reassembly.is_complete());
    let moved = Bytes::Of { offset, length }.completed();
    // The event was raised before, without bytes, if the receive has tried to read its message.
    let begins = offset == 0 && !events::has_begun(host, request);
    if begins {
        events::begins(host, request, moved);
    }
    if !host.core(request).data.put_at(offset, &bytes[..length as usize]) {
        host.cannot_unpack(request);
    }
    if is_complete {
        host.messenger().transfers.end(id);
        events::ends(host, request, if begins { Bytes::None.completed() } else { moved });
        super::enter(host, request, &Step::Copied);
        end(host, request);
    } else if !begins {
        events::continues(host, request, moved);
    }
}

/// Finishes a request whose copies have all been sent or received.
fn end<H: Host>(host: &mut H, request: H::Handle) {
    let core = host.core(request);
    core.transfer = Transfer::None;
    core.data.end();
    host.finish(request);
}

/// Begins to send the copies for which a receiver has called [`ask`].
pub(crate) fn wanted<H: Host>(
    process: &H::Process,
    host: &mut H,
    (sender, receiver): (TransferId, TransferId),
    (asked, why): (u64, Reason),
) {
    let Some(request) = host.messenger().transfers.get(sender) else { return };
    let core = host.core(request);
    let (route, length) = (core.route, core.data.length() as u64);
    let Transfer::Unanswered { registered, .. } = core.transfer else {
        return host.cannot_send(process, request, asked);
    };
    if !(1..=length).contains(&asked) {
        return host.cannot_send(process, request, asked);
    }
    host.messenger().transfers.end(sender);
    super::enter(host, request, &Step::Answered { number: sender, wants_copies: true });
    if registered.is_some() {
        events::raise_path_by(process, host, request, route, (Protocol::Fragments, why), 1);
    }
    let sending = Transfer::Sending(Sending::new(receiver, asked, MOST));
    close(process, host, request, sending, |host| send(process, host, request));
}

fn sending<H: Host>(host: &mut H, request: H::Handle) -> Option<&mut Sending> {
    if let Transfer::Sending(sending) = &mut host.core(request).transfer { Some(sending) } else { None }
}

/// Sends fragments of a send that waits for no buffer, until the maximum is in flight.
fn send<H: Host>(process: &H::Process, host: &mut H, request: H::Handle) {
    let next = |sending: &mut Sending| Some((sending.next_offset()?, sending.receiver));
    while let Some((offset, receiver)) = sending(host, request).and_then(next) {
        let (fragment, length) = match host.pack_fragment(process, request, receiver, offset) {
            Ok(packed) => packed,
            Err(NotPacked::NoBuffer) => return starve(host, request),
            Err(NotPacked::OneInFlight) => return,
            Err(NotPacked::Failed) => return is_lost(process, host, request),
        };
        let moved = Bytes::Of { offset, length }.posted();
        let begins = offset == 0 && !events::has_begun(host, request);
        if begins {
            events::begins(host, request, moved);
        }
        let posted = host.post_fragment(process, request, fragment);
        if posted == Posted::Failed {
            return is_lost(process, host, request);
        }
        let is_last = sending(host, request).is_some_and(|sending| sending.sent(length));
        if is_last {
            let nothing_more = Bytes::Of { offset: offset + length, length: 0 }.posted();
            events::ends(host, request, if begins { nothing_more } else { moved });
        } else if !begins {
            events::continues(host, request, moved);
        }
        if posted == Posted::Sent && sending(host, request).is_some_and(Sending::done) {
            // All data is sent, and no fragment is in flight.
            return end(host, request);
        }
    }
}

/// Notes that no port takes a fragment of a send, so that its receiver is lost.
#[cold]
fn is_lost<H: Host>(process: &H::Process, host: &mut H, request: H::Handle) {
    let route = host.core(request).route;
    lost::note(process, host, route);
}

/// Queues a send for a free buffer.
fn starve<H: Host>(host: &mut H, request: H::Handle) {
    if let Some(sending) = sending(host, request) {
        sending.is_starved = true;
        host.messenger().starved.push_back(request);
    }
}

/// Sends more fragments after one has been sent; first those of the sends that wait for a buffer.
#[inline(never)]
pub(crate) fn done<H: Host>(process: &H::Process, host: &mut H, request: H::Handle) {
    let Some(sending) = sending(host, request) else { return };
    let (is_done, may_wait) = (sending.done(), !sending.is_starved && sending.next_offset().is_some());
    if is_done {
        end(host, request);
    } else if host.messenger().starved.is_empty() {
        send(process, host, request);
    } else if may_wait {
        starve(host, request);
    }
    feed_starved(process, host);
}

/// Continues the sends that wait for a buffer, each once, while any port has a free one.
#[inline(never)]
pub(crate) fn feed_starved<H: Host>(process: &H::Process, host: &mut H) {
    for _ in 0..host.messenger().starved.len() {
        if !host.has_free_buffer() {
            return;
        }
        let Some(request) = host.messenger().starved.pop_front() else { return };
        if let Some(sending) = sending(host, request) {
            sending.is_starved = false;
        }
        send(process, host, request);
    }
}

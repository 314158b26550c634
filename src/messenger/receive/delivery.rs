// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers a message to the receive that it matches: copies its data, or begins its transfer.
//!
//! Called by `search`, and by the host for messages that it delivers in place. Grade: hot for whole messages. Threads:
//! the one that has entered the messenger. Tests: `messenger/tests`, `pt2pt_truncation.c` and others in `hw-tests/mpi`,
//! `device/local.rs` in `hw-tests`.

use crate::messenger::events::transfers::Bytes;
use crate::messenger::events::{self, Event};
use crate::messenger::header::{Header, Memory, PortKey};
use crate::messenger::host::{Data, Host};
use crate::messenger::path_taken::{Protocol, Reason};
use crate::messenger::receive::arrived::{Arrived, Body};
use crate::messenger::rendezvous::{self, Step, fragments, read, single_copy};
use crate::messenger::request::Outcome;
use crate::messenger::request::transfer_id::TransferId;
use crate::messenger::route::Route;
use crate::messenger::{flow_control, loopback};

/// Copies a whole message to the data of its receive, as far as that has room, and finishes the receive. Raises the
/// events of its transfer for these `listeners` to its communicator.
#[inline(always)]
pub(crate) fn whole<H: Host>(
    host: &mut H,
    listeners: Option<H::Listeners>,
    request: H::Handle,
    envelope: H::Envelope,
    bytes: &[u8],
) {
    if bytes.len() > host.core(request).data.length() {
        return truncated(host, listeners, request, envelope, bytes);
    }
    put(host, listeners, request, envelope, bytes);
}

#[cold]
#[inline(never)]
fn truncated<H: Host>(
    host: &mut H,
    listeners: Option<H::Listeners>,
    request: H::Handle,
    envelope: H::Envelope,
    bytes: &[u8],
) {
    put(host, listeners, request, envelope, bytes);
}

#[inline(always)]
fn put<H: Host>(
    host: &mut H,
    listeners: Option<H::Listeners>,
    request: H::Handle,
    envelope: H::Envelope,
    bytes: &[u8],
) {
    let room = host.core(request).data.length();
    let outcome = Outcome::new(envelope, bytes.len(), room);
    let Some(listeners) = listeners else { return host.take_whole(request, &outcome, bytes) };
    host.note(request, &outcome);
    events::raise_whole(host, listeners, request, Event::XferBegin, Bytes::All);
    if !host.core(request).data.put(bytes) {
        host.cannot_unpack(request);
    }
    events::raise_whole(host, listeners, request, Event::XferEnd, Bytes::None);
    host.finish_with_events(listeners, request);
}

/// Begins the transfer of an announced message to its receive.
fn announced<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    envelope: H::Envelope,
    (from, sender): (Route, TransferId),
    (memory, keys): (Memory, &[PortKey]),
) {
    if from == Route::LOOPBACK {
        return loopback::receive(host, request, envelope, sender);
    }
    let data = &host.core(request).data;
    let (room, is_contiguous) = (data.length(), data.is_contiguous());
    host.note(request, &Outcome::new(envelope, memory.length() as usize, room));
    let wanted = memory.length().min(room as u64);
    if wanted == 0 {
        events::begins(host, request, Bytes::All.completed());
        events::ends(host, request, Bytes::None.completed());
        host.control(process, from, &Header::Finished { request: sender.0, length: 0 });
        return host.finish(request);
    }
    rendezvous::enter(host, request, &Step::Begins(sender, wanted));
    let (is_local, mut why) = (from.as_local().is_some(), Reason::Gaps);
    if let Memory::Readable { key, address, .. } = memory
        && is_contiguous
    {
        let message = (from, sender, address);
        let is_begun = if is_local {
            single_copy::begin(process, host, request, message, wanted)
        } else {
            read::begin(process, host, request, message, (key, keys, wanted))
        };
        if is_begun {
            return;
        }
        why = Reason::NotRegistered;
        // A message by shared memory has the same path with and without CMA, and the match has reported it.
        if !is_local {
            events::raise_path_by(process, host, request, from, (Protocol::Fragments, why), 1);
        }
    }
    fragments::ask(process, host, request, (from, sender), (wanted, why));
}

/// Delivers an unexpected message to its receive.
pub(crate) fn unexpected<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    envelope: H::Envelope,
    message: Arrived,
) {
    flow_control::give_up(process, host, &message);
    arrived(process, host, request, envelope, message);
}

/// Delivers a whole message to its receive.
fn all<H: Host>(host: &mut H, request: H::Handle, envelope: H::Envelope, bytes: &[u8]) {
    let listeners = host.listeners_of(request);
    whole(host, listeners, request, envelope, bytes);
}

/// Delivers a message to its receive.
pub(crate) fn arrived<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    envelope: H::Envelope,
    message: Arrived,
) {
    let Arrived { from, body, .. } = message;
    match body {
        Body::Short(length, bytes) => all(host, request, envelope, &bytes[..usize::from(length)]),
        Body::Whole(bytes) | Body::Delivered(bytes) => all(host, request, envelope, &bytes),
        Body::Synchronous(bytes, sender) => {
            host.control(process, from, &Header::Acknowledge { request: sender.0 });
            all(host, request, envelope, &bytes);
        }
        Body::ReadyToSend(sender, memory) => {
            announced(process, host, request, envelope, (from, sender), (memory, &[]));
        }
        Body::ReadyToSendKeyed(sender, memory, keys) => {
            announced(process, host, request, envelope, (from, sender), (memory, &keys));
        }
    }
}

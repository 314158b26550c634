// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a process to itself: the processor copies each once, from the send buffer to the receive buffer.
//!
//! If no receive is posted, the process stores the message as unexpected. For a short message in standard mode it
//! stores a copy, so that the sender continues, as programs expect; so it does for one that is to be delivered. For any
//! other it stores an announcement. Called by
//! `send` and `delivery`. Grade: pending. Threads: the one that has entered the messenger. Tests:
//! `messenger/tests`, and `self_messages.c` in `hw-tests/mpi`.

use super::events;
use super::events::transfers::Bytes;
use super::header::{Memory, WireEnvelope};
use super::host::{Data, Host, Process as _};
use super::path_taken::{PathTaken, Reason};
use super::receive::arrived::{Arrival, Arrived, Body, SHORT};
use super::receive::search;
use super::request::transfer_id::TransferId;
use super::request::{Mode, Outcome, Role, Transfer};
use super::route::Route;

/// Begins a send to this process. It may be finished when this returns.
pub(super) fn send<H: Host>(process: &H::Process, host: &mut H, request: H::Handle) {
    let of = host.communicator(request);
    let (rank, core) = (host.rank(of), host.core(request));
    core.route = Route::LOOPBACK;
    let (envelope, length) = (H::Envelope::new(rank, core.tag), core.data.length());
    events::raise_path(host, request, PathTaken::LOOPBACK);
    let listeners = host.listeners(of);
    let arrival = Arrival { from: Route::LOOPBACK, length, message: None };
    let id = match search::posted(process, host, listeners, (of, envelope), &arrival) {
        Ok(receive) => return meet(host, request, receive, envelope),
        Err(id) => id,
    };
    let (is_short, core) = (length <= process.eager_limit(Route::LOOPBACK), host.core(request));
    let is_copied = is_short && matches!(core.role, Role::Send(Mode::Standard | Mode::Delivered));
    let body = if is_copied {
        events::begins(host, request, Bytes::All.posted());
        let Some(body) = copied(&mut host.core(request).data) else { return host.cannot_pack(length) };
        body
    } else {
        let sender = host.messenger().transfers.begin(request);
        host.core(request).transfer =
            Transfer::Unanswered { sender, registered: None, others: Vec::new(), counted: false };
        Body::ReadyToSend(sender, Memory::Unreadable { why: Reason::Loopback, length: length as u64 })
    };
    let message = Arrived { from: Route::LOOPBACK, id, body };
    search::store(process, host, (of, envelope), message, || Some(Route::LOOPBACK));
    if is_copied {
        events::ends(host, request, Bytes::None.posted());
        host.finish(request);
    }
}

/// Delivers an announced message to its receive.
pub(super) fn receive<H: Host>(host: &mut H, receive: H::Handle, envelope: H::Envelope, sender: TransferId) {
    let Some(send) = host.messenger().transfers.end(sender) else { return };
    host.core(send).transfer = Transfer::None;
    meet(host, send, receive, envelope);
}

/// Copies a message to its receive, as far as that has room, and finishes both.
fn meet<H: Host>(host: &mut H, send: H::Handle, receive: H::Handle, envelope: H::Envelope) {
    let [length, room] = [send, receive].map(|request| host.core(request).data.length());
    host.note(receive, &Outcome::new(envelope, length, room));
    // Both sides report the same number of bytes to tools, also if the receive has too little room.
    let copied = length.min(room) as u64;
    events::begins(host, send, Bytes::Of { offset: 0, length: copied }.posted());
    events::begins(host, receive, Bytes::All.posted());
    host.copy(send, receive);
    events::ends(host, send, Bytes::Of { offset: copied, length: 0 }.posted());
    events::ends(host, receive, Bytes::None.posted());
    host.finish(send);
    host.finish(receive);
}

/// Copies the data of a send, to store it as unexpected. `None`: the data cannot be packed.
fn copied(data: &mut impl Data) -> Option<Body> {
    let (mut short, length) = ([0; SHORT], data.length());
    if length <= SHORT {
        return data.take_all(&mut short[..length]).then_some(Body::Short(length as u8, short));
    }
    let mut bytes = vec![0; length].into_boxed_slice();
    data.take_all(&mut bytes).then_some(Body::Whole(bytes))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches the queues of a communicator: for the posted receive of a message that arrives, and for the unexpected
//! message of a receive that is posted. Stores a message that finds no receive.
//!
//! A message whose communicator this process has not added yet waits for that ([`deliver_early`]). Called by
//! `receive`, by `loopback`, and by the host for receives, and for messages that it delivers in place ([`is_taken`]).
//! Grade: hot for [`is_taken`] and [`post`], else pending. Threads: the one that has entered the messenger; with a port
//! only in [`is_taken`]. Tests: `messenger/tests/searches.rs` and `messenger/tests/histories.rs`.

use arrayvec::ArrayVec;

use super::arrived::{Arrival, Arrived, Body};
use super::delivery;
use crate::messenger::events::{Event, messages};
use crate::messenger::flow_control;
use crate::messenger::header::{Match, WireEnvelope};
use crate::messenger::host::Host;
use crate::messenger::matching::Pattern;
use crate::messenger::request::Role;
use crate::messenger::route::Route;

/// A receive that the host wants to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posting {
    /// It is posted under this name, by which it can be cancelled.
    Waits(u64),
    /// It has matched a message, and may be finished or given back.
    Matched,
}

// ---- messages that arrive -------------------------------------------------------------------------------------------

/// Delivers an eager message, header included, to its posted receive. If that raises events, puts a short message in
/// `deferred` instead, if that is a free place. `sender` returns the route that names the sender in flow control, if it
/// is known. Returns whether it did either.
#[inline(always)]
pub fn is_taken<H: Host>(
    host: &mut H,
    message: &[u8],
    sender: impl FnOnce(&mut H) -> Option<Route>,
    deferred: Option<&mut Option<Deferred<H>>>,
) -> bool {
    let Some((of, bytes)) = H::Envelope::from_eager(message) else { return false };
    let Some(communicator) = host.messenger().contexts.get(of.context).copied() else { return false };
    let Some(envelope) = of.envelope.sent_by(|| sender(host)) else { return false };
    let (queues, lengths) = host.queues(communicator);
    if let Some(deferred) = deferred
        && queues.is_for_first(envelope)
        && bytes.len() <= MAX_DEFERRED
        && deferred.is_none()
    {
        let message = deferred.insert(Deferred { communicator, envelope, bytes: ArrayVec::new() });
        return message.bytes.try_extend_from_slice(bytes).is_ok();
    }
    let Some(request) = queues.take_posted::<false>(lengths, envelope) else { return false };
    delivery::whole(host, None, request, envelope, bytes);
    true
}

/// A short message to a communicator that tools listen to, in the poll of a blocking receive: copied out of its slot
/// while the port is entered, and delivered, with its events, once the port is left.
pub struct Deferred<H: Host> {
    communicator: H::Communicator,
    envelope: H::Envelope,
    bytes: ArrayVec<u8, MAX_DEFERRED>,
}

/// Longest data that is deferred, bytes.
const MAX_DEFERRED: usize = 64;

/// Delivers a message that was deferred. The host was not left since then.
#[inline(always)]
pub fn deliver<H: Host>(process: &H::Process, host: &mut H, deferred: &Deferred<H>) {
    let Deferred { communicator, envelope, ref bytes } = *deferred;
    let listeners = host.listeners(communicator);
    if listeners.is_none() {
        return deliver_without_events(process, host, communicator, envelope, bytes);
    }
    whole_to(process, host, listeners, (communicator, envelope), bytes, || Some(Route::UNKNOWN));
}

/// [`deliver`] after a callback has removed the last listener. Gets the fields one by one, so that no other call stores
/// them in memory.
#[cold]
#[inline(never)]
fn deliver_without_events<H: Host>(
    process: &H::Process,
    host: &mut H,
    communicator: H::Communicator,
    envelope: H::Envelope,
    bytes: &[u8],
) {
    whole_to(process, host, None, (communicator, envelope), bytes, || Some(Route::UNKNOWN));
}

/// Delivers a whole message to the receive that it matches, or stores a copy. `sender` looks up the route to its
/// sender.
pub(super) fn whole<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: Match<H::Envelope>,
    bytes: &[u8],
    sender: impl Fn() -> Option<Route>,
) {
    let Match { context, envelope } = of;
    let Some(communicator) = host.messenger().contexts.get(context).copied() else {
        let message = Arrived { from: sender().unwrap_or(Route::UNKNOWN), id: 0, body: Body::copy(bytes) };
        return keep_early(process, host, context, envelope, message);
    };
    let listeners = host.listeners(communicator);
    whole_to(process, host, listeners, (communicator, envelope), bytes, sender);
}

#[inline(always)]
fn whole_to<H: Host>(
    process: &H::Process,
    host: &mut H,
    listeners: Option<H::Listeners>,
    of: (H::Communicator, H::Envelope),
    bytes: &[u8],
    sender: impl Fn() -> Option<Route>,
) {
    // With several ports, the event of an unexpected message names the route by which it came.
    let is_to_name = listeners.is_some_and(|listeners| H::wants_paths(listeners, Role::Receive));
    let from = if is_to_name { sender() } else { None }.unwrap_or(Route::UNKNOWN);
    match posted(process, host, listeners, of, &Arrival { from, length: bytes.len(), message: None }) {
        Ok(request) => delivery::whole(host, listeners, request, of.1, bytes),
        Err(id) => store_copy(process, host, of, (from, id), bytes, sender),
    }
}

/// [`whole`] for a message of which its sender is told that it has arrived. One that is stored, or whose path a tool is
/// told, is copied first: its body says that it has another header than an eager message.
pub(super) fn delivered<H: Host>(
    process: &H::Process,
    host: &mut H,
    Match { context, envelope }: Match<H::Envelope>,
    bytes: &[u8],
    from: Route,
) {
    let copy = |id| Arrived { from, id, body: Body::Delivered(bytes.into()) };
    let communicator = host.messenger().contexts.get(context).copied();
    let listeners = communicator.and_then(|communicator| host.listeners(communicator));
    let is_told = listeners.is_some_and(|listeners| H::wants_paths(listeners, Role::Receive));
    let Some(communicator) = communicator.filter(|_| !is_told) else {
        return arrived(process, host, context, envelope, copy(0));
    };
    let (of, arrival) = ((communicator, envelope), Arrival { from, length: bytes.len(), message: None });
    match posted(process, host, listeners, of, &arrival) {
        Ok(request) => delivery::whole(host, listeners, request, envelope, bytes),
        Err(id) => store(process, host, of, copy(id), || Some(from)),
    }
}

/// [`store`] of a copy of a whole message, apart from the code of messages that match.
#[inline(never)]
fn store_copy<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: (H::Communicator, H::Envelope),
    (from, id): (Route, u64),
    bytes: &[u8],
    sender: impl Fn() -> Option<Route>,
) {
    store(process, host, of, Arrived { from, id, body: Body::copy(bytes) }, sender);
}

/// Delivers a message to the receive that it matches, or stores it.
pub fn arrived<H: Host>(process: &H::Process, host: &mut H, context: u32, envelope: H::Envelope, message: Arrived) {
    let Some(communicator) = host.messenger().contexts.get(context).copied() else {
        return keep_early(process, host, context, envelope, message);
    };
    let from = message.from;
    let (listeners, of) = (host.listeners(communicator), (communicator, envelope));
    match posted(process, host, listeners, of, &Arrival { from, length: message.length(), message: Some(&message) }) {
        Ok(request) => delivery::arrived(process, host, request, envelope, message),
        Err(id) => store(process, host, of, Arrived { id, ..message }, || Some(from)),
    }
}

/// Takes out the posted receive that a message matches, and raises the events of that.
///
/// # Errors
/// No receive matches; the number of the message, for tools.
#[inline(always)]
pub fn posted<H: Host>(
    process: &H::Process,
    host: &mut H,
    listeners: Option<H::Listeners>,
    of: (H::Communicator, H::Envelope),
    arrival: &Arrival<'_>,
) -> Result<H::Handle, u64> {
    let search = |host: &mut H| {
        let (queues, lengths) = host.queues(of.0);
        queues.take_posted::<true>(lengths, of.1)
    };
    match listeners {
        None => search(host).ok_or(0),
        Some(listeners) => messages::arrives(process, host, listeners, of, arrival, search),
    }
}

/// Stores a message that matches no posted receive. If `sender` returns [`Route::UNKNOWN`] (shared memory), the host
/// looks the rank up in the communicator.
pub fn store<H: Host>(
    process: &H::Process,
    host: &mut H,
    (communicator, envelope): (H::Communicator, H::Envelope),
    message: Arrived,
    sender: impl FnOnce() -> Option<Route>,
) {
    flow_control::keep(process, host, &message, |host| match sender()? {
        Route::UNKNOWN => host.known_route(communicator, envelope.source()),
        from => Some(from),
    });
    let number_and_length = (message.id, message.length());
    let (queues, lengths) = host.queues(communicator);
    queues.insert_unexpected(lengths, envelope, message);
    messages::raise_of_message(host, (communicator, envelope), Event::InsertUnexpected, number_and_length);
    if host.queues(communicator).0.posted() > 0 {
        let context = host.number(communicator);
        flow_control::found_nothing(process, host, context);
    }
}

/// Keeps a message whose communicator this process has not added yet. Without it the process cannot look up, and hold
/// back, an unknown sender.
#[cold]
fn keep_early<H: Host>(process: &H::Process, host: &mut H, context: u32, envelope: H::Envelope, message: Arrived) {
    let from = message.from;
    flow_control::keep(process, host, &message, |_| (from != Route::UNKNOWN).then_some(from));
    host.messenger().contexts.keep(context, (envelope, message));
}

/// Delivers the messages that arrived before their communicator was added, as `Contexts::add` has returned them.
pub fn deliver_early<H: Host>(process: &H::Process, host: &mut H, context: u32, kept: Vec<(H::Envelope, Arrived)>) {
    for (envelope, message) in kept {
        // Most are stored again, so no sender goes on before the last one.
        host.messenger().flow.kept.give_up(message.cost());
        arrived(process, host, context, envelope, message);
    }
    flow_control::let_go_if_room(process, host);
}

// ---- receives -------------------------------------------------------------------------------------------------------

/// Gives a receive the unexpected message that it matches, or posts it.
#[inline(always)]
pub fn post<H: Host>(process: &H::Process, host: &mut H, request: H::Handle, pattern: Pattern<H::Envelope>) -> Posting {
    let of = host.communicator(request);
    post_to(process, host, of, request, move || pattern)
}

/// [`post`] for a caller that has the communicator of the request at hand. It makes the pattern where it is needed, so
/// that a large one is written once.
#[inline(always)]
pub fn post_to<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: H::Communicator,
    request: H::Handle,
    pattern: impl Fn() -> Pattern<H::Envelope>,
) -> Posting {
    let (queues, lengths) = host.queues(of);
    if queues.has_messages() {
        return post_after_search(process, host, of, request, pattern());
    }
    Posting::Waits(queues.post(lengths, pattern, request))
}

#[inline(never)]
fn post_after_search<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: H::Communicator,
    request: H::Handle,
    pattern: Pattern<H::Envelope>,
) -> Posting {
    let (queues, lengths) = host.queues(of);
    let Some(found) = queues.take_unexpected(lengths, pattern) else {
        let context = host.number(of);
        flow_control::found_nothing(process, host, context);
        let (queues, lengths) = host.queues(of);
        return Posting::Waits(queues.post(lengths, || pattern, request));
    };
    delivery::unexpected(process, host, request, found.envelope, found.message);
    Posting::Matched
}

/// [`post`] while tools listen to the communicator of the receive.
#[inline(always)]
pub fn post_with_events<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    pattern: Pattern<H::Envelope>,
    listeners: H::Listeners,
) -> Posting {
    let of = host.communicator(request);
    let (id, number) = messages::seeks(host, listeners, request);
    if !host.queues(of).0.has_messages() {
        host.raise(listeners, Event::SearchUnexpectedEnd, number, request);
    } else if gets_found(process, host, listeners, (of, number), request, pattern) {
        return Posting::Matched;
    }
    let (queues, lengths) = host.queues(of);
    let name = queues.post_with_events(lengths, pattern, request);
    host.raise(listeners, Event::InsertPosted, id, request);
    Posting::Waits(name)
}

/// Gives a receive the unexpected message that it matches, and raises the events of that. `number`: that of the search.
/// Returns whether there is such a message.
#[inline(never)]
fn gets_found<H: Host>(
    process: &H::Process,
    host: &mut H,
    listeners: H::Listeners,
    (of, number): (H::Communicator, u64),
    request: H::Handle,
    pattern: Pattern<H::Envelope>,
) -> bool {
    let (queues, lengths) = host.queues(of);
    let found = queues.take_unexpected(lengths, pattern);
    host.raise(listeners, Event::SearchUnexpectedEnd, number, request);
    let Some(mut found) = found else {
        let context = host.number(of);
        flow_control::found_nothing(process, host, context);
        return false;
    };
    messages::finds(process, host, of, request, &mut found);
    delivery::unexpected(process, host, request, found.envelope, found.message);
    true
}

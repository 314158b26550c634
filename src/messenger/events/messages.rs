// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the events of messages that arrive, of receives that look for theirs, and of the searches of the queues.
//!
//! Called by `receive`. Grade: hot for [`arrives`] and [`seeks`] of a watched message, else pending. Threads: the one
//! that has entered the messenger. Tests: those of the hosts.

use super::{Event, number_of, raise, raise_to, raise_wanted_path, transfers};
use crate::messenger::header::WireEnvelope;
use crate::messenger::host::{Host, PeerOf, TagOf};
use crate::messenger::matching::Message;
use crate::messenger::path_taken::{PathTaken, lookup};
use crate::messenger::receive::arrived::{Arrival, Arrived};
use crate::messenger::receive::probe::Found;
use crate::messenger::request::Role;

/// Raises the events of a message that arrives, and of the `search` for its receive, which this runs; if the search
/// finds one, also the events of the match, and of the message's path.
///
/// # Errors
/// The search has found nothing; the number of the message.
#[inline(always)]
pub fn arrives<H: Host>(
    process: &H::Process,
    host: &mut H,
    listeners: H::Listeners,
    of: (H::Communicator, H::Envelope),
    arrival: &Arrival<'_>,
    search: impl FnOnce(&mut H) -> Option<H::Handle>,
) -> Result<H::Handle, u64> {
    let id = host.numbers(2);
    let number = id + 2;
    let mut spec = host.spec(of.0, (of.1.source(), of.1.tag()), arrival.length);
    host.raise_of_message(listeners, Event::Arrived, id, &mut spec);
    if H::wants(listeners, Event::Transfer) {
        let here = arrival.message.map_or(arrival.length, |message| message.lengths().1);
        transfers::arrived(host, of.0, of.1, id, (arrival.length, here));
    }
    host.raise_of_message(listeners, Event::SearchPostedBegin, number, &mut spec);
    let found = search(host);
    host.raise_of_message(listeners, Event::SearchPostedEnd, number, &mut spec);
    let found = found.ok_or(id)?;
    raise_to(host, listeners, found, Event::RemovePosted);
    host.raise_of_message(listeners, Event::MatchPosted, id, &mut spec);
    has_message(host, listeners, found, (id, arrival.length), |host| match arrival.message {
        None => Some(lookup::came_whole(process, host, of, arrival.from, (arrival.length, false))),
        Some(message) => lookup::came(process, host, of, message, found),
    });
    Ok(found)
}

/// Raises the events that a receive and the search for its unexpected message begin. Returns the numbers of both.
#[inline(always)]
pub(in crate::messenger) fn seeks<H: Host>(host: &mut H, listeners: H::Listeners, receive: H::Handle) -> (u64, u64) {
    let id = number_of(host, receive);
    host.raise(listeners, Event::Activate, id, receive);
    let number = host.numbers(1);
    host.raise(listeners, Event::SearchUnexpectedBegin, number, receive);
    (id, number)
}

/// Raises the events that the search of a receive has found a message, and that the receive gets it.
pub(in crate::messenger) fn finds<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: H::Communicator,
    receive: H::Handle,
    found: &mut Message<Arrived, H::Envelope>,
) {
    let message = (found.message.id, found.message.length());
    found.message.id = raise_of_message(host, (of, found.envelope), Event::RemoveUnexpected, message);
    gets(process, host, of, receive, found);
}

/// Raises the events that a receive begins, and gets the message of a matched probe.
pub(in crate::messenger) fn gets_aside<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: H::Communicator,
    receive: H::Handle,
    message: &Message<Arrived, H::Envelope>,
) {
    raise(host, receive, Event::Activate);
    gets(process, host, of, receive, message);
}

/// Raises the events that a receive gets an unexpected message.
fn gets<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: H::Communicator,
    receive: H::Handle,
    found: &Message<Arrived, H::Envelope>,
) {
    if let Some(listeners) = host.listeners_of(receive) {
        raise_to(host, listeners, receive, Event::MatchUnexpected);
        let message = (found.message.id, found.message.length());
        let of = (of, found.envelope);
        has_message(host, listeners, receive, message, |host| lookup::came(process, host, of, &found.message, receive));
    }
}

/// Runs the `search` of a probe for this source and tag, and raises the events of the search and of a message that it
/// takes out.
pub(in crate::messenger) fn probes<H: Host>(
    host: &mut H,
    of: H::Communicator,
    wanted: (PeerOf<H>, TagOf<H>),
    search: impl FnOnce(&mut H) -> Option<Found<H::Envelope>>,
) -> Option<Found<H::Envelope>> {
    let Some(listeners) = host.listeners(of) else { return search(host) };
    let (id, mut spec) = (host.numbers(1), host.spec(of, wanted, 0));
    host.raise_of_message(listeners, Event::SearchUnexpectedBegin, id, &mut spec);
    let found = search(host);
    host.raise_of_message(listeners, Event::SearchUnexpectedEnd, id, &mut spec);
    if let Some(Found { envelope, length, message: Some(handle) }) = found
        && let Some(known) = host.queues(of).0.aside(handle).map(|message| message.id)
    {
        let id = raise_of_message(host, (of, envelope), Event::RemoveUnexpected, (known, length));
        // The events of its receive name the same number.
        _ = host.queues(of).0.aside(handle).map(|message| message.id = id);
    }
    found
}

/// Raises an event of a message with this number and length. Returns its number.
#[inline]
pub(in crate::messenger) fn raise_of_message<H: Host>(
    host: &mut H,
    (of, envelope): (H::Communicator, H::Envelope),
    event: Event,
    (id, length): (u64, usize),
) -> u64 {
    let Some(listeners) = host.listeners(of) else { return id };
    // A message that arrived while nobody listened has no number yet.
    let id = if id == 0 { host.numbers(1) } else { id };
    let mut spec = host.spec(of, (envelope.source(), envelope.tag()), length);
    host.raise_of_message(listeners, event, id, &mut spec);
    id
}

/// Notes the number and the length of the message that a receive has matched, if a tool wants events that name it.
/// Raises the event of its path, if a tool wants it and `how` returns the path now.
#[inline(always)]
fn has_message<H: Host>(
    host: &mut H,
    listeners: H::Listeners,
    receive: H::Handle,
    message: (u64, usize),
    how: impl FnOnce(&mut H) -> Option<PathTaken>,
) {
    if H::wants(listeners, Event::Protocol) || H::wants(listeners, Event::Transfer) {
        note_message(host, listeners, receive, message, how);
    }
}

#[cold]
#[inline(never)]
fn note_message<H: Host>(
    host: &mut H,
    listeners: H::Listeners,
    receive: H::Handle,
    (id, length): (u64, usize),
    how: impl FnOnce(&mut H) -> Option<PathTaken>,
) {
    if host.is_silent(receive) {
        return;
    }
    let number = number_of(host, receive);
    host.core(receive).watched.message = (number, id);
    if H::wants_paths(listeners, Role::Receive)
        && let Some(path) = how(host)
    {
        raise_wanted_path(host, listeners, receive, length, path);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the events of a send that finishes without a request, while a tool listens.
//!
//! Called by the host, which posts the message. Grade: hot for a watched message. Threads: the one that has entered the
//! messenger, and no port. Tests: `messenger/tests`, and `hw-tests/tools/peruse_requests.c`.

use super::transfers::step;
use super::{Event, Raised};
use crate::events::{Payload, TypeId, XferBegin};
use crate::messenger::header::WireEnvelope;
use crate::messenger::host::Host;
use crate::messenger::path_taken::lookup;
use crate::messenger::route::Route;

/// Raises the events of a send by this route around `post`, which posts an eager message and returns whether it did.
/// `spec`: what the events say of the message. Without room for it, raises only the first: a message that pends does
/// not begin.
///
/// # Errors
/// The message was not posted, so the send needs a request. The error has the number of the send, and which events of
/// its transfer were raised.
#[inline(always)]
pub fn raise_at_once<H: Host>(
    process: &H::Process,
    host: &mut H,
    listeners: H::Listeners,
    (of, route): (H::Communicator, Route),
    mut spec: H::Spec,
    has_room: bool,
    post: impl FnOnce(&mut H) -> bool,
) -> Result<(), (u64, Raised)> {
    let id = host.numbers(1);
    host.raise_of_message(listeners, Event::Activate, id, &mut spec);
    if !has_room {
        return Err((id, Raised::Nothing));
    }
    raise_step(host, listeners, of, Event::XferBegin, id, &mut spec);
    if !post(host) {
        return Err((id, Raised::Begin));
    }
    if H::wants(listeners, Event::Protocol) {
        raise_path(process, host, listeners, (id, &spec), route);
    }
    raise_step(host, listeners, of, Event::XferEnd, id, &mut spec);
    host.raise_of_message(listeners, Event::Complete, id, &mut spec);
    host.raise_of_message(listeners, Event::Notify, id, &mut spec);
    Ok(())
}

#[cold]
#[inline(never)]
fn raise_path<H: Host>(
    process: &H::Process,
    host: &mut H,
    listeners: H::Listeners,
    (id, spec): (u64, &H::Spec),
    route: Route,
) {
    let path = lookup::eager(process, route, H::of_spec(spec).1);
    host.raise_path_of_message(listeners, id, spec, path);
}

/// Raises the begin or the end of the transfer, and its transfer event.
#[inline(always)]
fn raise_step<H: Host>(
    host: &mut H,
    listeners: H::Listeners,
    of: H::Communicator,
    event: Event,
    id: u64,
    spec: &mut H::Spec,
) {
    host.raise_of_message(listeners, event, id, spec);
    if let Some(step) = step(event)
        && H::wants(listeners, Event::Transfer)
        && host.wants_step(step)
    {
        raise_step_of(host, of, id, spec, step);
    }
}

#[cold]
#[inline(never)]
fn raise_step_of<H: Host>(host: &mut H, of: H::Communicator, id: u64, spec: &H::Spec, step: TypeId) {
    let ((peer, tag), length) = H::of_spec(spec);
    let (context, source, peer) = (host.number(of), host.rank(of), host.rank_in_job(of, peer));
    let (source, tag) = H::Envelope::shown(source, tag);
    let (total, request, message) = (length as u64, id, id);
    let (offset, bytes) = if step == XferBegin::TYPE { (0, total) } else { (total, 0) };
    let rest = XferBegin::default();
    host.step(step, XferBegin { request, message, offset, bytes, total, context, source, tag, peer, ..rest }, None);
}

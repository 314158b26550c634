// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the transfer events (`ibex_xfer_begin` and the like) together with those of the request, with the same
//! numbers of requests and messages.
//!
//! The source of an event is the port whose completion reported the step, with the completion's timestamp, else the
//! thread, with the host's time. Called by the other files here. Grade: pending, while a tool listens. Threads: the one
//! that has entered the messenger. Tests: `messenger/tests`, and `hw-tests/tools/mpi_t_transfers.c`.

use std::hint::cold_path;

use super::{Completed, Event, number_of, stage};
use crate::events::{self, EventGroup, MsgArrived, Payload, TypeId, XferBegin, XferContinue, XferEnd};
use crate::messenger::header::WireEnvelope;
use crate::messenger::host::{Data, Host};
use crate::messenger::request::Role;

/// Bytes of a message that a step of its transfer moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// First step of a message that is sent whole.
    All,
    /// Other steps report the bytes.
    None,
    /// Bytes of a fragment.
    Of {
        /// Offset of the fragment in the message.
        offset: u64,
        /// Length of the fragment.
        length: u64,
    },
}

/// Bytes of a step, for tools.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    bytes: Bytes,
    /// Whether a completion reported the step; otherwise it is a post.
    is_completed: bool,
}

impl Bytes {
    /// The adapter gets the bytes now, or the processor copies them.
    #[inline(always)]
    pub const fn posted(self) -> Moved {
        Moved { bytes: self, is_completed: false }
    }

    /// The bytes have arrived or were sent. The event has the host's time if their completion is not being handled.
    #[inline(always)]
    pub const fn completed(self) -> Moved {
        Moved { bytes: self, is_completed: true }
    }
}

/// Returns the type of the step of a transfer that an event of its request stands for, if any.
#[inline(always)]
pub(super) const fn step(event: Event) -> Option<TypeId> {
    match event {
        Event::XferBegin => Some(XferBegin::TYPE),
        Event::XferContinue => Some(XferContinue::TYPE),
        Event::XferEnd => Some(XferEnd::TYPE),
        _ => None,
    }
}

fn port(by: Option<Completed>) -> u32 {
    by.map_or(u32::MAX, |by| by.port.into())
}

/// Raises an event of type `step`, which has the elements of [`XferBegin`]. Adds port and thread.
pub(in crate::messenger) fn raise(step: TypeId, elements: XferBegin, by: Option<Completed>) {
    let mut group = EventGroup::new(events::interest());
    group.add_as(step, || XferBegin { port: port(by), thread: events::this_thread(), ..elements });
    stage(group, by);
}

/// Raises the transfer event of a step of a request, with its bytes, if a tool wants it.
#[inline(always)]
pub(super) fn raise_step<H: Host>(host: &mut H, listeners: H::Listeners, of: H::Handle, event: Event, moved: Moved) {
    if H::wants(listeners, Event::Transfer) && !host.is_silent(of) {
        cold_path();
        number_of(host, of);
        if let Some(step) = step(event)
            && host.wants_step(step)
        {
            raise_step_of(host, of, step, moved);
        }
    }
}

#[cold]
#[inline(never)]
fn raise_step_of<H: Host>(host: &mut H, of: H::Handle, step: TypeId, moved: Moved) {
    let communicator = host.communicator(of);
    let (context, rank, core) = (host.number(communicator), host.rank(communicator), host.core(of));
    let (request, length, is_receive) = (core.watched.id, core.data.length(), core.role == Role::Receive);
    let (source, tag, peer, total, goes, message) = if is_receive {
        let message = core.watched.message();
        let ((source, tag), total) = host.noted(of);
        (source, tag, source, total, total.min(length), message)
    } else {
        (rank, core.tag, core.peer, length, length, request)
    };
    let (offset, bytes) = match moved.bytes {
        Bytes::All => (0, goes as u64),
        Bytes::None => (if step == XferEnd::TYPE { goes as u64 } else { 0 }, 0),
        Bytes::Of { offset, length } => (offset, length),
    };
    let peer = host.rank_in_job(communicator, peer);
    let (source, tag) = H::Envelope::shown(source, tag);
    let (total, direction, rest) = (total as u64, is_receive.into(), XferBegin::default());
    let elements = XferBegin { request, message, offset, bytes, total, context, source, tag, direction, peer, ..rest };
    let by = host.messenger().completed.filter(|_| moved.is_completed);
    host.step(step, elements, by);
}

/// Raises the event of a message of so many bytes, of which some have arrived.
#[cold]
#[inline(never)]
pub(super) fn arrived<H: Host>(
    host: &mut H,
    of: H::Communicator,
    envelope: H::Envelope,
    message: u64,
    (total, here): (usize, usize),
) {
    if !events::interest().has(MsgArrived::TYPE) {
        return;
    }
    let (context, peer) = (host.number(of), host.rank_in_job(of, envelope.source()));
    let (source, tag) = H::Envelope::shown(envelope.source(), envelope.tag());
    let (by, thread) = (host.messenger().completed, events::this_thread());
    let (bytes, total, port) = (here as u64, total as u64, port(by));
    let mut group = EventGroup::new(events::interest());
    group.add(|| MsgArrived { message, bytes, total, context, source, tag, peer, port, thread });
    stage(group, by);
}

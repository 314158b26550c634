// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports the engine's own events: connections, waiting requests, used-up receives, reports of the adapter. Also opens
//! the port's event source with the adapter's clock. All events go to the flight recorder (of waiting requests only the
//! first and the last), and to tools that listen. The caller has the port, so this file stages events, and progress
//! delivers them after the port is released ([`crate::events::stage`]). Grade: pending. Threads: the port's. Tests:
//! `hw-tests/mpi/events.c`, `device/flight.rs`.

use super::completion::Token;
use super::connections::failure::{Cause, Failure};
use crate::events::{
    self, ConnectionBegin, ConnectionEstablished, ConnectionFailed, DeviceAsync, Payload, PortAsync, PortClock,
    QueuedBegin, QueuedEnd, ReceiverNotReady, Safety, SourceId, StampedBy, TABLE,
};
use crate::flight::{self, Entry, Kind, NOBODY};
use ibex_ffi::verbs::{AsyncEvent, CompletionQueue, Context};
use std::sync::Arc;

/// By what a port is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// To tools: its index in the process.
    pub(crate) index: u8,
    /// To the flight recorder: its place there.
    pub(crate) place: u8,
}

/// Level that callbacks must have: MPI is on the stack.
const SAFETY: Safety = Safety::MpiRestricted;

/// Most events of an adapter that the source holds until their order is certain.
const ROOM: usize = 4096;

/// Event types with the adapter's timestamp, one bit each.
const STAMPED: u64 = {
    let (mut word, mut index) = (0, 0);
    while index < TABLE.len() {
        if matches!(TABLE[index].stamp, StampedBy::Adapter) {
            word |= 1 << index;
        }
        index += 1;
    }
    word
};

/// Whether a tool wants events ordered by the adapter's stamp.
#[cold]
#[inline(never)]
pub(crate) fn wants_stamps() -> bool {
    events::ordered_interest().has_any(STAMPED)
}

/// Opens the source of a port. `None` if its completion queue gives no stamps; its source then has no events.
pub(crate) fn open_source(
    context: &Arc<Context>,
    cq: &CompletionQueue,
    (name, gid): (&str, [u8; 16]),
) -> Option<SourceId> {
    let Some(clock) = context.clock().filter(|_| cq.can_stamp()) else {
        events::open_unstamped_port(name, gid);
        return None;
    };
    // A weak reference: the source may outlive the port, and the device would stay open.
    let weak = Arc::downgrade(context);
    let read_clock =
        context.raw_clock().map(|_| -> events::ReadClock { Box::new(move || weak.upgrade()?.raw_clock()) });
    events::open_port(PortClock {
        name: name.to_owned(),
        gid,
        ticks_per_second: clock.ticks_per_second,
        bits: clock.bits,
        room: ROOM,
        read_clock,
    })
}

fn stage<P: Payload>(make: impl FnOnce() -> P) {
    // The unit tests of events run at the same time as those of ports, and count all events.
    if !cfg!(test) {
        events::stage(SAFETY, make);
    }
}

/// Reports a failed connection to this rank, on this port.
pub(crate) fn failed(peer: u32, port: Numbers, failure: &Failure) {
    let status = match failure.cause {
        Cause::Completion { status, .. } => status.0,
        _ => 0,
    };
    let (detail, number) = match failure.cause {
        Cause::Completion { .. } => (0, u64::from(status)),
        Cause::Post { errno } => (1, errno as u64),
        Cause::Connect { .. } => (2, 0),
        Cause::Port(_) => (3, 0),
        Cause::GivenUp => (4, 0),
        Cause::Protocol(_) => (5, 0),
    };
    flight::record((Kind::ConnectionFailed, detail), port.place, peer, [failure.qp_num.into(), number, 0, 0]);
    stage(|| ConnectionFailed { peer, port: u32::from(port.index), queue_pair: failure.qp_num, status });
}

#[cold]
#[inline(never)]
pub(crate) fn receives_used_up(port: Numbers, receives: u32) {
    flight::record((Kind::ReceiverNotReady, 0), port.place, NOBODY, [receives.into(), 0, 0, 0]);
    stage(|| ReceiverNotReady { port: u32::from(port.index), receives });
}

/// Reports that a request to this rank was queued; `waiting` requests wait now.
#[cold]
pub(crate) fn queued(peer: u32, port: Numbers, token: Token, waiting: usize) {
    if waiting == 1 {
        flight::record((Kind::StallBegun, 0), port.place, peer, [token.0, 1, 0, 0]);
    }
    stage(|| QueuedBegin { operation: token.0, peer, waiting: waiting as u32 });
}

/// Reports that a waiting request to this rank was posted or has failed; `waiting` requests still wait.
#[cold]
pub(crate) fn unqueued(peer: u32, port: Numbers, token: Token, waiting: usize) {
    if waiting == 0 {
        flight::record((Kind::StallEnded, 0), port.place, peer, [token.0, 0, 0, 0]);
    }
    stage(|| QueuedEnd { operation: token.0, peer, waiting: waiting as u32 });
}

/// Reports that a peer has acknowledged nothing for long and is held back, while `waiting` requests wait.
#[cold]
pub(crate) fn held_back(peer: u32, port: Numbers, waiting: usize) {
    flight::record((Kind::HeldBack, 0), port.place, peer, [waiting as u64, 0, 0, 0]);
}

pub(crate) fn asked_again(peer: u32, port: Numbers, times: u32) {
    flight::record((Kind::HelloAgain, 0), port.place, peer, [times.into(), 0, 0, 0]);
}

/// Reports that a connection to this rank begins, at the peer's request if `asked`.
pub(crate) fn connection_begun(peer: u32, host: &str, port: Numbers, asked: bool) {
    flight::record((Kind::ConnectionBegun, u8::from(asked)), port.place, peer, Entry::text(host));
    stage(|| ConnectionBegin { peer, port: u32::from(port.index), asked: u32::from(asked) });
}

pub(crate) fn connection_established(peer: u32, port: Numbers, (queue_pair, remote_queue_pair): (u32, u32)) {
    let numbers = [queue_pair.into(), remote_queue_pair.into(), 0, 0];
    flight::record((Kind::ConnectionEstablished, 0), port.place, peer, numbers);
    stage(|| ConnectionEstablished { peer, port: u32::from(port.index), queue_pair, remote_queue_pair });
}

/// Reports an event of the adapter. `number` is the port's number on its device.
pub(crate) fn asynchronous(event: AsyncEvent, number: u8, port: Numbers) {
    let record = |kind| flight::record((kind, 0), port.place, NOBODY, [event.kind.into(), 0, 0, 0]);
    let port = u32::from(port.index);
    if event.port == 0 {
        record(Kind::DeviceEvent);
        stage(|| DeviceAsync { event: event.kind, port });
    } else if event.port == number {
        record(Kind::PortEvent);
        stage(|| PortAsync { event: event.kind, port });
    }
}

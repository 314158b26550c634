// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine's own sites tell: connections, waiting, receives, what the adapter reports; and the port's source
//! with the adapter's clock.
//!
//! All of it goes to the flight recorder, but of what waits only the first and the last request; and to tools while any
//! listens. The caller has the port, so events are staged here and delivered by progress, outside
//! ([`crate::events::stage`]). Path: cold. Threads: the port's. Tests: `hw-tests/mpi/events.c`, `device/flight.rs`.

use super::completion::Token;
use super::connections::failure::{Cause, Failure};
use crate::events::{
    self, ConnectionBegin, ConnectionEstablished, ConnectionFailed, DeviceAsync, Payload, PortAsync, PortClock,
    QueuedBegin, QueuedEnd, ReceiverNotReady, Safety, SourceId, StampedBy, TABLE,
};
use crate::flight::{self, Entry, Kind, NOBODY};
use ibex_ffi::verbs::{AsyncEvent, CompletionQueue, Context};
use std::sync::Arc;

/// What callbacks must be fit for: MPI is on the stack.
const SAFETY: Safety = Safety::MpiRestricted;

/// For how long an adapter's event is held back for an earlier one where it is not known whether one is to come,
/// nanoseconds. Completions are polled from one queue in the order in which the adapter wrote them, and what is polled
/// is said to be ([`events::begin_batch`]); so this is for events that are raised without.
const WINDOW: u64 = 50_000;

/// How many of an adapter's events are held back at most.
const ROOM: usize = 4096;

/// The types that want the adapter's stamp, a bit each.
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

/// Whether somebody wants what the adapter could stamp by its stamp.
#[cold]
#[inline(never)]
pub(crate) fn wants_stamps() -> bool {
    events::ordered_interest().has_any(STAMPED)
}

/// The source of a port whose completion queue gives stamps; `None` where it does not, and it has one of no event.
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
        window: WINDOW,
        room: ROOM,
        read_clock,
    })
}

fn stage<P: Payload>(make: impl FnOnce() -> P) {
    events::stage(SAFETY, make);
}

/// The connection to this rank, on the process's port of this number, has failed.
pub(crate) fn failed(peer: u32, port: u8, failure: &Failure) {
    let status = match failure.cause {
        Cause::Completion { status, .. } => status.0,
        _ => 0,
    };
    let (detail, number) = match failure.cause {
        Cause::Completion { .. } => (0, u64::from(status)),
        Cause::Post { errno } => (1, errno as u64),
        Cause::Connect(_) => (2, 0),
        Cause::Port(_) => (3, 0),
    };
    flight::record((Kind::ConnectionFailed, detail), port, peer, [failure.qp_num.into(), number, 0, 0]);
    stage(|| ConnectionFailed { peer, port: u32::from(port), queue_pair: failure.qp_num, status });
}

/// All of the port's receives are used up.
#[cold]
#[inline(never)]
pub(crate) fn receives_used_up(port: u8, receives: u32) {
    flight::record((Kind::ReceiverNotReady, 0), port, NOBODY, [receives.into(), 0, 0, 0]);
    stage(|| ReceiverNotReady { port: u32::from(port), receives });
}

/// A request to this rank is put behind all that waits for it; so many wait now.
#[cold]
pub(crate) fn queued(peer: u32, port: u8, token: Token, waiting: usize) {
    if waiting == 1 {
        flight::record((Kind::StallBegun, 0), port, peer, [token.0, 1, 0, 0]);
    }
    stage(|| QueuedBegin { operation: token.0, peer, waiting: waiting as u32 });
}

/// A request to this rank that waited is posted, or has failed, and so many still wait.
#[cold]
pub(crate) fn unqueued(peer: u32, port: u8, token: Token, waiting: usize) {
    if waiting == 0 {
        flight::record((Kind::StallEnded, 0), port, peer, [token.0, 0, 0, 0]);
    }
    stage(|| QueuedEnd { operation: token.0, peer, waiting: waiting as u32 });
}

/// A peer has acknowledged nothing for long, and is held back; so many requests wait.
#[cold]
pub(crate) fn held_back(peer: u32, port: u8, waiting: usize) {
    flight::record((Kind::HeldBack, 0), port, peer, [waiting as u64, 0, 0, 0]);
}

/// A peer that has not answered is asked for a connection again, for the time of this number.
pub(crate) fn asked_again(peer: u32, port: u8, times: u32) {
    flight::record((Kind::HelloAgain, 0), port, peer, [times.into(), 0, 0, 0]);
}

/// A connection to this rank is begun; `asked`: by the peer.
pub(crate) fn connection_begun(peer: u32, host: &str, port: u8, asked: bool) {
    flight::record((Kind::ConnectionBegun, u8::from(asked)), port, peer, Entry::text(host));
    stage(|| ConnectionBegin { peer, port: u32::from(port), asked: u32::from(asked) });
}

/// A connection to this rank is ready; its queue pairs here and there.
pub(crate) fn connection_established(peer: u32, port: u8, (queue_pair, remote_queue_pair): (u32, u32)) {
    let numbers = [queue_pair.into(), remote_queue_pair.into(), 0, 0];
    flight::record((Kind::ConnectionEstablished, 0), port, peer, numbers);
    stage(|| ConnectionEstablished { peer, port: u32::from(port), queue_pair, remote_queue_pair });
}

/// The adapter reports something; `number` is the port's on its device, `port` its place among the process's.
pub(crate) fn asynchronous(event: AsyncEvent, number: u8, port: u8) {
    if event.port == 0 || event.port == number {
        let kind = if event.port == 0 { Kind::DeviceEvent } else { Kind::PortEvent };
        flight::record((kind, 0), port, NOBODY, [event.kind.into(), 0, 0, 0]);
    }
    let port = u32::from(port);
    if event.port == 0 {
        stage(|| DeviceAsync { event: event.kind, port });
    } else if event.port == number {
        stage(|| PortAsync { event: event.kind, port });
    }
}

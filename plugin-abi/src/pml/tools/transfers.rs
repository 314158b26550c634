// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the engine's transfer events (`ibex_xfer_begin` and the like) together with PERUSE's (`watch`), with the same
//! numbers of requests and messages.
//!
//! The source of an event is the port whose completion reported the step, with the completion's timestamp
//! ([`completed`]), else the thread, with the host's time. Grade: pending, while a tool listens. Threads: the one that
//! has entered the PML. Tests: `hw-tests/tools/mpi_t_transfers.c`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use engine::events::{self, EventGroup, MsgArrived, Payload, SourceId, TypeId, XferBegin, XferContinue, XferEnd};
use engine::messenger::host::{Bytes, Data, Moved};

use super::watch::RECEIVE;
use crate::pml::communicator::Comm;
use crate::pml::request::{Request, Role};
use crate::runtime::listeners::{Event, Spec};
use crate::runtime::watch::{self, Completed};

/// Completion that the PML handles now: its port and source, as their numbers plus 1 (0: none), and timestamp.
static PORT: AtomicU32 = AtomicU32::new(0);
static SOURCE: AtomicU32 = AtomicU32::new(0);
static STAMP: AtomicU64 = AtomicU64::new(0);

pub(crate) fn completed(by: Option<Completed>) {
    let stamp = by.and_then(|by| by.stamp);
    // Relaxed: only the thread that has entered the PML uses them.
    PORT.store(by.map_or(0, |by| u32::from(by.port) + 1), Ordering::Relaxed);
    SOURCE.store(stamp.map_or(0, |(source, _)| source.index() as u32 + 1), Ordering::Relaxed);
    STAMP.store(stamp.map_or(0, |(_, stamp)| stamp), Ordering::Relaxed);
}

pub(crate) fn completion() -> Option<Completed> {
    let port = PORT.load(Ordering::Relaxed).checked_sub(1)? as u8;
    let source = SOURCE.load(Ordering::Relaxed).checked_sub(1).and_then(|source| SourceId::from_index(source as usize));
    Some(Completed { port, stamp: source.map(|source| (source, STAMP.load(Ordering::Relaxed))) })
}

fn port(by: Option<Completed>) -> u32 {
    by.map_or(u32::MAX, |by| by.port.into())
}

/// Raises an event of type `step`, which has the elements of [`XferBegin`]. Adds port and thread.
fn give(step: TypeId, told: XferBegin, by: Option<Completed>) {
    let mut group = EventGroup::new(events::interest());
    group.add_as(step, || XferBegin { port: port(by), thread: events::this_thread(), ..told });
    watch::stage(group, by);
}

/// Raises the event of a step of a request's transfer. The request has a number for tools.
#[cold]
#[inline(never)]
pub(crate) fn tell(request: &mut Request, step: TypeId, moved: Moved) {
    let (id, comm) = (request.id, request.comm());
    let (of, message) = request.message;
    let (source, tag, peer, total, goes) = match request.core.role {
        Role::Receive => {
            let room = request.core.data.length();
            let status = &request.base().req_status;
            (status.MPI_SOURCE, status.MPI_TAG, status.MPI_SOURCE, status._ucount, status._ucount.min(room))
        }
        Role::Send(_) => {
            let length = request.core.data.length();
            (comm.rank(), request.core.tag, request.core.peer, length, length)
        }
    };
    let message = if request.core.role != Role::Receive {
        id
    } else if of == id {
        message
    } else {
        0
    };
    let (offset, bytes) = match moved.bytes {
        Bytes::All => (0, goes as u64),
        Bytes::None => (if step == XferEnd::TYPE { goes as u64 } else { 0 }, 0),
        Bytes::Of { offset, length } => (offset, length),
    };
    let peer = comm.rank_in_job(peer);
    let Spec { context, operation, .. } = request.spec;
    let (request, total, direction, rest) = (id, total as u64, operation as u32, XferBegin::default());
    let told = XferBegin { request, message, offset, bytes, total, context, source, tag, direction, peer, ..rest };
    give(step, told, completion().filter(|_| moved.is_completed));
}

/// [`tell`] for a send without a request.
#[cold]
#[inline(never)]
pub(crate) fn tell_at_once(comm: Comm, id: u64, spec: &Spec, step: TypeId) {
    let (source, peer) = (comm.rank(), comm.rank_in_job(spec.peer));
    let (offset, bytes) = if step == XferBegin::TYPE { (0, spec.bytes) } else { (spec.bytes, 0) };
    let Spec { bytes: total, context, tag, operation, .. } = *spec;
    let (request, message, direction, rest) = (id, id, operation as u32, XferBegin::default());
    let told = XferBegin { request, message, offset, bytes, total, context, source, tag, direction, peer, ..rest };
    give(step, told, None);
}

/// Raises the event of a message that has arrived with `bytes` of its data.
#[cold]
#[inline(never)]
pub(crate) fn arrived(comm: Comm, id: u64, spec: &Spec, bytes: usize) {
    if !events::interest().has(MsgArrived::TYPE) {
        return;
    }
    debug_assert_eq!(spec.operation, RECEIVE, "a message's");
    let peer = comm.rank_in_job(spec.peer);
    let by = completion();
    let mut group = EventGroup::new(events::interest());
    group.add(|| MsgArrived {
        message: id,
        bytes: bytes as u64,
        total: spec.bytes,
        context: spec.context,
        source: spec.peer,
        tag: spec.tag,
        peer,
        port: port(by),
        thread: events::this_thread(),
    });
    watch::stage(group, by);
}

/// Returns the step of a transfer that a PERUSE event stands for, if any.
#[inline(always)]
pub(crate) const fn step(event: Event) -> Option<TypeId> {
    match event {
        Event::XferBegin => Some(XferBegin::TYPE),
        Event::XferContinue => Some(XferContinue::TYPE),
        Event::XferEnd => Some(XferEnd::TYPE),
        _ => None,
    }
}

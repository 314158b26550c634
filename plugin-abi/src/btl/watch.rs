// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the sites of the BTL do while a tool listens: puts, gets, atomics and the waits for them, and the messages that it
//! carries.
//!
//! A site is one comparison ([`engine::events::has_interest`]). A message here is what the layer above hands to
//! `btl_send`, with that layer's header among its bytes: the transport does not know which message of MPI's it belongs
//! to. Callers give the peer, and have left the port, as tools' callbacks run in here. Grade: behind the branch of a
//! site; no allocation. Threads: any. Tests: `hw-tests/tools/mpi_t_below.c`, `hw-tests/mpi/events.c` (operations).

use engine::events::{
    self, AtomicComplete, AtomicStarted, EventGroup, GetComplete, GetStarted, HostTimestamp, MsgArrived, PutComplete,
    PutStarted, SourceId, XferBegin, XferEnd,
};
use engine::peer::PeerName;
use engine::transport::Failed;
use ibex_ffi::verbs::Status;

use crate::runtime::watch::{SAFETY, number};

/// The context, source and tag of a message that is not known to be a part of one of MPI's: the number of no
/// communicator, `MPI_ANY_SOURCE`, `MPI_ANY_TAG`.
const UNKNOWN: (u32, i32, i32) = (u32::MAX, -1, -1);

/// When the adapter says that something was completed: the port's source, and its raw ticks.
pub(crate) type Stamp = Option<(SourceId, u64)>;

/// What an operation does to the peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Get,
    FetchAdd,
    CompareSwap,
}

/// An operation that is watched, until it is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    pub(crate) kind: Kind,
    /// Its token, which is not soon reused, or [`operation_number`].
    pub(crate) operation: u64,
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) bytes: u64,
    /// The rank of the other process in the job.
    pub(crate) peer: u32,
}

/// The number of an operation that has no token. Odd, as those are.
pub(crate) fn operation_number() -> u64 {
    number() | 1
}

/// The rank in the job of the other process; of one that is not known that of none.
pub(crate) fn rank(name: Option<PeerName>) -> u32 {
    name.map_or(u32::MAX, |name| name.rank)
}

/// An operation was taken up, and posted after `moment`.
#[cold]
#[inline(never)]
pub(crate) fn started(watched: &Watched, moment: HostTimestamp) {
    let Watched { operation, local, remote, bytes, peer, .. } = *watched;
    let mut together = EventGroup::new(events::interest());
    let atomic = |kind| AtomicStarted { operation, local, remote, bytes, kind, peer };
    match watched.kind {
        Kind::Put => together.add(|| PutStarted { operation, local, remote, bytes, peer }),
        Kind::Get => together.add(|| GetStarted { operation, local, remote, bytes, peer, request: 0 }),
        Kind::FetchAdd => together.add(|| atomic(0)),
        Kind::CompareSwap => together.add(|| atomic(1)),
    }
    together.raise(|| moment, SAFETY);
}

/// A watched operation is done.
#[cold]
#[inline(never)]
pub(crate) fn done(watched: &Watched, outcome: Result<(), Failed>, stamp: Stamp) {
    let Watched { operation, local, remote, bytes, peer, .. } = *watched;
    let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS).0;
    let mut together = EventGroup::new(events::interest());
    let atomic = |kind| AtomicComplete { operation, local, remote, bytes, kind, peer, status };
    match watched.kind {
        Kind::Put => together.add(|| PutComplete { operation, local, remote, bytes, peer, status }),
        Kind::Get => together.add(|| GetComplete { operation, local, remote, bytes, peer, status, request: 0 }),
        Kind::FetchAdd => together.add(|| atomic(0)),
        Kind::CompareSwap => together.add(|| atomic(1)),
    }
    raise(together, stamp);
}

/// A message of so many bytes to process `peer` was posted after `moment`. Its end has the same time: a send inside its work
/// request has no completion.
#[cold]
#[inline(never)]
pub(crate) fn sent(peer: u32, port: u8, bytes: u64, moment: HostTimestamp) {
    transfer(false, bytes, (peer, port)).raise(|| moment, SAFETY);
}

/// A message of so many bytes has come from process `peer`; its callback has not been called yet.
#[cold]
#[inline(never)]
pub(crate) fn arrived(peer: u32, port: u8, bytes: u64, stamp: Stamp) {
    raise(transfer(true, bytes, (peer, port)), stamp);
}

/// The events of a message of one piece: all its bytes are in its begin.
fn transfer(is_received: bool, bytes: u64, (peer, port): (u32, u8)) -> EventGroup {
    let (request, message, total, direction) = (0, number(), bytes, u32::from(is_received));
    let ((context, source, tag), port, thread) = (UNKNOWN, u32::from(port), events::this_thread());
    macro_rules! step {
        ($type:ident, $offset:expr, $bytes:expr) => {
            $type {
                request,
                message,
                offset: $offset,
                bytes: $bytes,
                total,
                context,
                source,
                tag,
                direction,
                peer,
                port,
                thread,
            }
        };
    }
    let mut together = EventGroup::new(events::interest());
    if is_received {
        together.add(|| MsgArrived { message, bytes, total, context, source, tag, peer, port, thread });
    }
    together.add(|| step!(XferBegin, 0, bytes));
    together.add(|| step!(XferEnd, total, 0));
    together
}

/// With the adapter's stamp where there is one, else as of this moment of the host's clock.
fn raise(together: EventGroup, stamp: Stamp) {
    match stamp {
        Some((source, raw)) => together.raise_stamped(source, raw, SAFETY),
        None => together.raise(events::host_timestamp, SAFETY),
    }
}

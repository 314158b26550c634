// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the BTL while a tool listens: puts, gets, atomics, flushes, and the messages that the upper layer passes
//! to `btl_send`. Their bytes include that layer's header: the transport does not know to which message of MPI they
//! belong. Callers have left the port, because callbacks of tools run in here. Grade: pending, behind the branch of a
//! site ([`engine::events::has_interest`]). Threads: any. Tests: `mpi_t_below.c` and `events.c` in `hw-tests`.

use engine::events::{
    self, AtomicComplete, AtomicStarted, EventGroup, GetComplete, GetStarted, HostTimestamp, MsgArrived, Payload,
    PutComplete, PutStarted, SourceId, XferBegin, XferEnd,
};
use engine::peer::PeerName;
use engine::transport::Failed;
use ibex_ffi::verbs::Status;

use crate::runtime::watch::{SAFETY, number};

/// Context, source and tag of a message that cannot be assigned to one of MPI's: the number of no communicator,
/// `MPI_ANY_SOURCE`, `MPI_ANY_TAG`.
const UNKNOWN: (u32, i32, i32) = (u32::MAX, -1, -1);

/// Timestamp of a completion: the port's source, and the adapter's raw ticks.
pub(crate) type Stamp = Option<(SourceId, u64)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Get,
    FetchAdd,
    CompareSwap,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    pub(crate) kind: Kind,
    /// Token of the operation, which is not soon reused, or [`operation_number`].
    pub(crate) operation: u64,
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) bytes: u64,
    /// Rank of the other process in its job.
    pub(crate) peer: u32,
    /// Index of the port; `u32::MAX`: an atomic on memory of this process.
    pub(crate) port: u32,
}

/// Returns a number for an operation without a token. It is odd, like tokens of operations.
pub(crate) fn operation_number() -> u64 {
    number() | 1
}

/// Returns the rank of a process in its job; `u32::MAX` for an unknown one.
pub(crate) fn rank(name: Option<PeerName>) -> u32 {
    name.map_or(u32::MAX, |name| name.rank)
}

#[cold]
#[inline(never)]
pub(crate) fn started(watched: &Watched, moment: HostTimestamp) {
    let Watched { operation, local, remote, bytes, peer, port, .. } = *watched;
    let mut together = EventGroup::new(events::interest());
    let atomic = |kind| AtomicStarted { operation, local, remote, bytes, kind, peer, port };
    match watched.kind {
        Kind::Put => together.add(|| PutStarted { operation, local, remote, bytes, peer, port }),
        Kind::Get => together.add(|| GetStarted { operation, local, remote, bytes, peer, request: 0, port }),
        Kind::FetchAdd => together.add(|| atomic(0)),
        Kind::CompareSwap => together.add(|| atomic(1)),
    }
    together.raise(|| moment, SAFETY);
}

#[cold]
#[inline(never)]
pub(crate) fn done(watched: &Watched, outcome: Result<(), Failed>, stamp: Stamp) {
    let Watched { operation, local, remote, bytes, peer, port, .. } = *watched;
    let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS).0;
    let mut together = EventGroup::new(events::interest());
    let (request, thread) = (0, events::this_thread());
    let atomic = |kind| AtomicComplete { operation, local, remote, bytes, kind, peer, status, thread, port };
    match watched.kind {
        Kind::Put => together.add(|| PutComplete { operation, local, remote, bytes, peer, status, thread, port }),
        Kind::Get => {
            together.add(|| GetComplete { operation, local, remote, bytes, peer, status, request, thread, port });
        }
        Kind::FetchAdd => together.add(|| atomic(0)),
        Kind::CompareSwap => together.add(|| atomic(1)),
    }
    raise(together, stamp);
}

/// Raises the events of a message of `bytes` to process `peer` that was posted after `moment`. Its end has the same
/// time, because a send inside the work request has no completion.
#[cold]
#[inline(never)]
pub(crate) fn sent(peer: u32, port: u8, bytes: u64, moment: HostTimestamp) {
    transfer(false, bytes, (peer, port)).raise(|| moment, SAFETY);
}

#[cold]
#[inline(never)]
pub(crate) fn arrived(peer: u32, port: u8, bytes: u64, stamp: Stamp) {
    raise(transfer(true, bytes, (peer, port)), stamp);
}

/// Returns the events of a message of one fragment: its begin has all its bytes.
fn transfer(is_received: bool, bytes: u64, (peer, port): (u32, u8)) -> EventGroup {
    let (request, message, total, direction) = (0, number(), bytes, u32::from(is_received));
    let ((context, source, tag), port, thread) = (UNKNOWN, u32::from(port), events::this_thread());
    let begin =
        XferBegin { request, message, offset: 0, bytes, total, context, source, tag, direction, peer, port, thread };
    let mut together = EventGroup::new(events::interest());
    if is_received {
        together.add(|| MsgArrived { message, bytes, total, context, source, tag, peer, port, thread });
    }
    together.add(|| begin);
    together.add_as(XferEnd::TYPE, || XferBegin { offset: total, bytes: 0, ..begin });
    together
}

/// Raises events with the adapter's timestamp if there is one, else with the present time of the host's clock.
fn raise(together: EventGroup, stamp: Stamp) {
    match stamp {
        Some((source, raw)) => together.raise_stamped(source, raw, SAFETY),
        None => together.raise(events::host_timestamp, SAFETY),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of one-sided operations while a tool listens. They have the host's time: the port is entered, so the
//! events are staged, and progress delivers them. Grade: pending, behind the branch of a site. Threads: the one that
//! has entered the endpoint. Tests: `hw-tests`.

use std::sync::atomic::{AtomicU64, Ordering};

use ibex::events::{
    self, AtomicComplete, AtomicStarted, GetComplete, GetStarted, PutComplete, PutStarted, Safety, this_thread,
};
use ibex::transport::adapter::verbs::Verbs;
use ibex::transport::{EndpointId, Port};
use ibex_ffi::verbs::Status;

use crate::cq::Failure;
use crate::sys;

/// Level that callbacks must have: the endpoint is entered.
const SAFETY: Safety = Safety::ThreadSafe;

/// Index of the port.
const PORT: u32 = 0;

/// Kind of an atomic operation.
const KIND: u32 = 2;

/// What the events of an operation say.
pub(crate) struct Watched {
    /// `FI_READ`, `FI_WRITE` or `FI_ATOMIC`.
    kind: u64,
    operation: u64,
    local: u64,
    remote: u64,
    bytes: u64,
    peer: u32,
}

/// Raises the event that an operation with these completion flags begins, if a tool wants any.
#[inline]
pub(crate) fn started(
    port: &Port<Verbs>,
    to: EndpointId,
    flags: u64,
    (local, remote, length): (usize, u64, usize),
) -> Option<Box<Watched>> {
    if !events::has_interest() {
        return None;
    }
    let kind = if flags & sys::FI_ATOMIC == 0 { flags & (sys::FI_READ | sys::FI_WRITE) } else { sys::FI_ATOMIC };
    let peer = port.peer_name(to).map_or(u32::MAX, |name| name.rank);
    let (operation, local, bytes) = (number(), local as u64, length as u64);
    let watched = Watched { kind, operation, local, remote, bytes, peer };
    begun(&watched);
    Some(Box::new(watched))
}

/// Returns a number that no operation has had. Those of the engine's operations are other odd ones, and much smaller.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 48 | 1);
    NEXT.fetch_add(2, Ordering::Relaxed)
}

#[cold]
fn begun(watched: &Watched) {
    let Watched { kind, operation, local, remote, bytes, peer } = *watched;
    match kind {
        sys::FI_READ => {
            events::stage(SAFETY, || GetStarted { operation, local, remote, bytes, peer, request: 0, port: PORT });
        }
        sys::FI_WRITE => events::stage(SAFETY, || PutStarted { operation, local, remote, bytes, peer, port: PORT }),
        _ => events::stage(SAFETY, || AtomicStarted { operation, local, remote, bytes, kind: KIND, peer, port: PORT }),
    }
}

/// Raises the event that an operation has ended.
#[cold]
pub(crate) fn ended(watched: &Watched, failure: Option<Failure<'_>>) {
    let Watched { kind, operation, local, remote, bytes, peer } = *watched;
    let (thread, port) = (this_thread(), PORT);
    let status = match failure.map(|failure| failure.error) {
        None => Status::SUCCESS,
        Some(sys::FI_EACCES) => Status::REMOTE_ACCESS,
        Some(sys::FI_ETIMEDOUT) => Status::RETRY_EXCEEDED,
        Some(_) => Status::FLUSHED,
    }
    .0;
    match kind {
        sys::FI_READ => {
            events::stage(SAFETY, || GetComplete {
                operation,
                local,
                remote,
                bytes,
                peer,
                status,
                request: 0,
                thread,
                port,
            });
        }
        sys::FI_WRITE => {
            events::stage(SAFETY, || PutComplete { operation, local, remote, bytes, peer, status, thread, port });
        }
        _ => events::stage(SAFETY, || AtomicComplete {
            operation,
            local,
            remote,
            bytes,
            kind: KIND,
            peer,
            status,
            thread,
            port,
        }),
    }
}

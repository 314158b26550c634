// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts, gets and atomics while a tool listens.
//!
//! Called by `rdma` when one is taken up and by `completion` when it is done, behind the branches of their sites, with
//! the peer's name: the port is not entered where tools' callbacks run. Path: behind the branch of a site. Threads:
//! any. Tests: `hw-tests/mpi/events.c`.

use std::ffi::c_void;

use engine::events::{
    self, AtomicComplete, AtomicStarted, EventGroup, GetComplete, GetStarted, HostTimestamp, PutComplete, PutStarted,
};
use engine::peer::PeerName;
use engine::transport::Failed;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::Status;

use super::show::show;
use super::step::Read;
use super::{fragment, stamp, transfer};
use crate::runtime::watch::SAFETY;

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
    /// Its token: the name of no other among those of the last while.
    pub(crate) operation: u64,
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) bytes: u64,
    pub(crate) peer: u32,
}

/// What ob1 has noted of a read, if it is one of a message.
///
/// # Safety
/// Callback and data of a `btl_get` that has been called and is not complete.
#[cold]
#[inline(never)]
pub(crate) unsafe fn noted(callback: sys::mca_btl_base_rdma_completion_fn_t, data: *mut c_void) -> Option<Read> {
    if !events::interest().is_registered_for_messages() {
        return None;
    }
    // SAFETY: the caller says that both are of a `btl_get` that has been called and is not complete.
    unsafe { fragment::read(callback, data) }
}

/// A read of a message is complete, and its callback has not been called yet: should it be one that nobody has heard
/// of, it is known what to tell of it.
#[cold]
#[inline(never)]
pub(crate) fn completing(from: PeerName, read: Read) {
    transfer::was_read(from, read, events::activation_epoch());
}

/// An operation on the memory of a process (`None`: not known) was taken up, and posted after `moment`; `read` is what
/// ob1 has noted of it.
#[cold]
#[inline(never)]
pub(crate) fn started(watched: &Watched, with: Option<PeerName>, read: Option<Read>, moment: HostTimestamp) {
    let Watched { operation, local, remote, bytes, peer, .. } = *watched;
    let active = events::interest();
    let mut together = EventGroup::new(active);
    if watched.kind == Kind::Get
        && active.is_registered_for_messages()
        && let Some(step) = with.and_then(|from| transfer::reading(from, remote, read, events::activation_epoch()))
    {
        show(&mut together, &step);
    }
    let atomic = |kind| AtomicStarted { operation, local, remote, bytes, kind, peer };
    match watched.kind {
        Kind::Put => together.add(|| PutStarted { operation, local, remote, bytes, peer }),
        Kind::Get => together.add(|| GetStarted { operation, local, remote, bytes, peer }),
        Kind::FetchAdd => together.add(|| atomic(0)),
        Kind::CompareSwap => together.add(|| atomic(1)),
    }
    together.raise(|| moment, SAFETY);
}

/// A watched operation is done.
#[cold]
#[inline(never)]
pub(crate) fn done(watched: &Watched, outcome: Result<(), Failed>) {
    let Watched { operation, local, remote, bytes, peer, .. } = *watched;
    let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS).0;
    let mut together = EventGroup::new(events::interest());
    let atomic = |kind| AtomicComplete { operation, local, remote, bytes, kind, peer, status };
    match watched.kind {
        Kind::Put => together.add(|| PutComplete { operation, local, remote, bytes, peer, status }),
        Kind::Get => together.add(|| GetComplete { operation, local, remote, bytes, peer, status }),
        Kind::FetchAdd => together.add(|| atomic(0)),
        Kind::CompareSwap => together.add(|| atomic(1)),
    }
    stamp::tell(together, stamp::current(), events::host_timestamp);
}

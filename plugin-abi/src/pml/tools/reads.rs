// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the events of reads: `ibex_get_started` and `ibex_get_complete`.
//!
//! Called by `tools`. Grade: pending. Threads: the one that has entered the PML. Tests: `pml/tests.rs`;
//! for the events, `mpi_t_transfers.c` in `hw-tests/tools` and `events.c` in `hw-tests/mpi`.

use engine::events::{self, EventGroup, GetComplete, GetStarted, Payload};
use engine::messenger::host::Bytes;
use engine::messenger::path_taken::{self, PathTaken, Protocol, Reason};
use engine::messenger::rendezvous::stripes::Part;
use engine::transport::Failed;
use ibex_ffi::verbs::Status;

use super::{transfers, watch};
use crate::pml::instance::{Pml, State};
use crate::pml::request::{Core, Handle, Request, Transfer};
use crate::runtime::watch::{Completed, SAFETY, numbers};

/// Raises the events of a receive that will read its message, and notes what events of its reads need.
pub(crate) fn begins(pml: &Pml, state: &mut State, receive: Handle) {
    watch::begins_by(state, receive, Bytes::None.posted(), |state| read_by(pml, state.requests.core(receive)));
    let r = state.requests.get(receive);
    let Transfer::Reading(reads) = &r.core.transfer else { return };
    let (remote, wanted) = (reads.address, reads.stripes.length());
    // SAFETY: P1: the receive is not finished.
    let watched = unsafe { WatchedReads::of(r, remote, wanted) };
    if let Transfer::Reading(reads) = &mut r.core.transfer {
        reads.watched = watched;
    }
}

fn read_by(pml: &Pml, receive: &Core) -> Option<PathTaken> {
    let Transfer::Reading(reads) = &receive.transfer else { return None };
    let mut rails = reads.stripes.rails();
    let count = rails.len();
    Some(path_taken::by(pml, rails.next()?.route, (Protocol::Read, Reason::Size), count))
}

/// Raises the event of a read that is about to be posted.
pub(crate) fn started(pml: &Pml, state: &mut State, receive: Handle, rail: usize, part: Part) {
    if let Some(watched) = of(state, receive) {
        watched.started(part, port_of(pml, rail));
    }
}

/// Raises the event of a read that the port refused, because its connection has failed.
pub(crate) fn refused(pml: &Pml, state: &mut State, receive: Handle, rail: usize, part: Part) {
    if let Some(watched) = of(state, receive) {
        watched.done(part, port_of(pml, rail), (Err(Failed { status: Status::FLUSHED, posted: false }), None));
    }
}

fn of(state: &mut State, receive: Handle) -> Option<&WatchedReads> {
    let Transfer::Reading(reads) = &state.requests.core(receive).transfer else { return None };
    reads.watched.as_deref()
}

/// Raises the event of a read that has completed or failed.
pub(crate) fn ended(
    pml: &Pml,
    state: &mut State,
    receive: Handle,
    rail: usize,
    (part, outcome): (Part, Result<(), Failed>),
) {
    if let Some(watched) = of(state, receive) {
        watched.done(part, port_of(pml, rail), (outcome, transfers::completion()));
    }
}

fn port_of(pml: &Pml, rail: usize) -> u32 {
    pml.rails().get(rail).map_or(u32::MAX, |rail| rail.port().index().into())
}

/// Reads of a message whose events a tool wants: `ibex_get_started` when a read is posted, `ibex_get_complete` when its
/// completion is polled, with the adapter's timestamp. Has the elements that these events share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedReads {
    /// Number of the read at offset 0. The number of another read is greater by twice its offset.
    first: u64,
    request: u64,
    /// Address of the receive's data.
    local: u64,
    /// Address of the data in the sender's memory.
    remote: u64,
    /// Rank of the sender in the job.
    peer: u32,
}

impl WatchedReads {
    /// Makes the record of a receive that is about to read `wanted` bytes from `remote`; `None` if no tool wants it.
    #[inline]
    unsafe fn of(request: &mut Request, remote: u64, wanted: u64) -> Option<Box<WatchedReads>> {
        let interest = events::interest();
        if request.id == 0 || !(interest.has(GetStarted::TYPE) || interest.has(GetComplete::TYPE)) {
            return None;
        }
        let peer = request.comm().rank_in_job(request.base().req_status.MPI_SOURCE);
        let local = request.core.data.extent().start.expose_provenance() as u64;
        Some(Box::new(WatchedReads { first: numbers(wanted), request: request.id, local, remote, peer }))
    }

    /// Raises the event of a read that is about to be posted.
    #[cold]
    fn started(&self, read: Part, port: u32) {
        let WatchedReads { request, peer, .. } = *self;
        let (operation, local, remote, bytes) = self.place(read);
        events::stage(SAFETY, || GetStarted { operation, local, remote, bytes, peer, request, port });
    }

    /// Raises the event of a read that has completed or failed, as the completion `by` reports.
    #[cold]
    fn done(&self, read: Part, port: u32, (outcome, by): (Result<(), Failed>, Option<Completed>)) {
        let WatchedReads { request, peer, .. } = *self;
        let (operation, local, remote, bytes) = self.place(read);
        let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS).0;
        let (mut group, thread) = (EventGroup::new(events::interest()), events::this_thread());
        group.add(|| GetComplete { operation, local, remote, bytes, peer, status, request, thread, port });
        crate::runtime::watch::stage(group, by);
    }

    /// Returns the number of the read of a part, the part's local and remote address, and its length in bytes.
    fn place(&self, Part { offset, length }: Part) -> (u64, u64, u64, u64) {
        let (local, remote) = (self.local.wrapping_add(offset), self.remote.wrapping_add(offset));
        (self.first.wrapping_add(2 * offset), local, remote, length.into())
    }
}

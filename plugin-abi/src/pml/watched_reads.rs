// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the events of a message's RDMA reads: `ibex_get_started` when a read is posted, `ibex_get_complete` when its
//! completion is polled, with the adapter's timestamp.
//!
//! Called by `reading`. Grade: pending, while a tool listens. Threads: the one that has entered the PML. Tests:
//! `hw-tests/tools/mpi_t_transfers.c`, `hw-tests/mpi/events.c`.

use engine::events::{self, EventGroup, GetComplete, GetStarted, Payload};
use engine::messenger::rendezvous::read::Part;
use engine::transport::Failed;
use ibex_ffi::verbs::Status;

use super::request::Request;
use super::transfers;
use crate::runtime::watch::{self, SAFETY, numbers};

/// Elements that the events of all reads of a message share.
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
    pub(crate) unsafe fn of(request: &mut Request, remote: u64, wanted: u64) -> Option<Box<WatchedReads>> {
        let interest = events::interest();
        if request.id == 0 || !(interest.has(GetStarted::TYPE) || interest.has(GetComplete::TYPE)) {
            return None;
        }
        // SAFETY: P1: the receive is not finished, so its communicator lives; it is matched, so it has a source; P3.
        let peer = unsafe { transfers::process(request.comm(), request.base().req_status.MPI_SOURCE) };
        let local = request.core.extent.start.expose_provenance() as u64;
        Some(Box::new(WatchedReads { first: numbers(wanted), request: request.id, local, remote, peer }))
    }

    /// Raises the event of a read that is about to be posted.
    #[cold]
    pub(crate) fn started(&self, part: Part) {
        let WatchedReads { request, peer, .. } = *self;
        let (operation, local, remote, bytes) = self.place(part);
        events::stage(SAFETY, || GetStarted { operation, local, remote, bytes, peer, request });
    }

    /// Raises the event of a read that the port refused, because its connection has failed.
    #[cold]
    pub(crate) fn refused(&self, part: Part) {
        self.done(part, Err(Failed { status: Status::FLUSHED, posted: false }));
    }

    /// Raises the event of a read that has completed or failed.
    #[cold]
    pub(crate) fn done(&self, part: Part, outcome: Result<(), Failed>) {
        let WatchedReads { request, peer, .. } = *self;
        let (operation, local, remote, bytes) = self.place(part);
        let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS).0;
        let (mut group, thread) = (EventGroup::new(events::interest()), events::this_thread());
        group.add(|| GetComplete { operation, local, remote, bytes, peer, status, request, thread });
        watch::stage(group, transfers::completion());
    }

    /// Returns the number of the read of a part, the part's local and remote address, and its length in bytes.
    fn place(&self, Part { offset, length }: Part) -> (u64, u64, u64, u64) {
        let (local, remote) = (self.local.wrapping_add(offset), self.remote.wrapping_add(offset));
        (self.first.wrapping_add(2 * offset), local, remote, length.into())
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The RDMA reads of a message as tools see them: `ibex_get_started` when one is posted, `ibex_get_complete` when the
//! adapter says that it is done, with the adapter's stamp.
//!
//! Made when a receive begins to read, where a tool asks for these events, and kept with its reads (`reading`).
//! Grade: pending, while a tool listens. Threads: who has entered the PML. Tests:
//! `hw-tests/tools/mpi_t_transfers.c`, `hw-tests/mpi/events.c`.

use engine::events::{self, EventGroup, GetComplete, GetStarted, Payload};
use engine::protocol::reading::Part;
use engine::transport::Failed;
use ibex_ffi::verbs::Status;

use super::request::Request;
use super::transfers;
use crate::runtime::watch::{self, SAFETY, numbers};

/// What the events of all reads of a message have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedReads {
    /// The number of the read at offset 0; that of another is greater by twice its offset.
    first: u64,
    /// The receive.
    request: u64,
    /// Where the message begins, here and in the sender's memory.
    local: u64,
    remote: u64,
    /// The sender's rank in the job.
    peer: u32,
}

impl WatchedReads {
    /// Of a receive that is about to read `wanted` bytes of its message from this address; `None`: no tool asks.
    ///
    /// # Safety
    /// P1: a receive that was matched and is not finished; P3: the PML is entered.
    #[inline]
    pub(crate) unsafe fn of(request: &mut Request, remote: u64, wanted: u64) -> Option<Box<WatchedReads>> {
        let interest = events::interest();
        if request.id == 0 || !(interest.has(GetStarted::TYPE) || interest.has(GetComplete::TYPE)) {
            return None;
        }
        // SAFETY: P1: matched, so that it has a communicator that lives, and a source; P3.
        let peer = unsafe { transfers::process(request.comm(), request.base().req_status.MPI_SOURCE) };
        let local = request.extent.start.expose_provenance() as u64;
        Some(Box::new(WatchedReads { first: numbers(wanted), request: request.id, local, remote, peer }))
    }

    /// A part is about to be read.
    #[cold]
    pub(crate) fn started(&self, part: Part) {
        let WatchedReads { request, peer, .. } = *self;
        let (operation, local, remote, bytes) = self.place(part);
        events::stage(SAFETY, || GetStarted { operation, local, remote, bytes, peer, request });
    }

    /// The port has not taken the read of a part: its connection has failed.
    #[cold]
    pub(crate) fn refused(&self, part: Part) {
        self.done(part, Err(Failed { status: Status::FLUSHED, posted: false }));
    }

    /// A part was read, or could not be.
    #[cold]
    pub(crate) fn done(&self, part: Part, outcome: Result<(), Failed>) {
        let WatchedReads { request, peer, .. } = *self;
        let (operation, local, remote, bytes) = self.place(part);
        let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS).0;
        let mut group = EventGroup::new(events::interest());
        group.add(|| GetComplete { operation, local, remote, bytes, peer, status, request });
        watch::stage(group, transfers::completion());
    }

    /// The number of the read of a part, where that begins here and there, and its bytes.
    fn place(&self, Part { offset, length }: Part) -> (u64, u64, u64, u64) {
        let (local, remote) = (self.local.wrapping_add(offset), self.remote.wrapping_add(offset));
        (self.first.wrapping_add(2 * offset), local, remote, length.into())
    }
}

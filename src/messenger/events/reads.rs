// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the events of RDMA reads: `ibex_get_started` when a read is posted, `ibex_get_complete` when its completion
//! is polled, with the adapter's timestamp.
//!
//! Called by `rendezvous/read.rs` and `rails/user_memory.rs`. Grade: pending. Threads: the one that has entered the
//! messenger. Tests: `mpi_t_transfers.c` in `hw-tests/tools` and `events.c` in `hw-tests/mpi`.

use ibex_ffi::verbs::Status;

use super::transfers::Bytes;
use super::{SAFETY, begins_by, stage};
use crate::events::{self, EventGroup, GetComplete, GetStarted, Payload};
use crate::messenger::host::{Host, Process};
use crate::messenger::path_taken::lookup;
use crate::messenger::rendezvous::stripes::Part;
use crate::messenger::request::Transfer;
use crate::transport::Failed;

/// Reads of a message whose events a tool wants. Has the elements that these events share.
#[derive(Clone, Copy, Debug)]
pub struct WatchedReads {
    /// Number of the read at offset 0. The number of another read is greater by twice its offset.
    first: u64,
    request: u64,
    /// Address of the receive's data, once a read has begun.
    local: u64,
    /// Address of the data in the sender's memory.
    remote: u64,
    /// Rank of the sender in the job.
    peer: u32,
}

/// Raises the events of a receive that will read its message by the rails of its transfer, and notes what events of its
/// reads need.
pub(in crate::messenger) fn begins<H: Host>(process: &H::Process, host: &mut H, receive: H::Handle) {
    begins_by(host, receive, Bytes::None.posted(), |host| lookup::read(process, host, receive));
    let (interest, core) = (events::interest(), host.core(receive));
    let request = core.watched.id;
    let Transfer::Reading(reads) = &core.transfer else { return };
    let (remote, wanted) = (reads.address, reads.stripes.length());
    if request == 0 || !(interest.has(GetStarted::TYPE) || interest.has(GetComplete::TYPE)) {
        return;
    }
    let (of, ((source, _), _), first) = (host.communicator(receive), host.noted(receive), host.numbers(wanted));
    let peer = host.rank_in_job(of, source);
    if let Transfer::Reading(reads) = &mut host.core(receive).transfer {
        reads.watched = Some(Box::new(WatchedReads { first, request, local: 0, remote, peer }));
    }
}

/// Raises the event that a read by this rail is about to be posted, to this address.
pub(in crate::messenger) fn read_begins<H: Host>(
    process: &H::Process,
    host: &mut H,
    receive: H::Handle,
    rail: usize,
    (part, to): (Part, u64),
) {
    if let Some(watched) = of(host, receive) {
        watched.local = to.wrapping_sub(part.offset);
        watched.started(part, port_of(process, rail));
    }
}

/// Raises the event that the port has refused a read, because its connection has failed.
pub(in crate::messenger) fn read_refused<H: Host>(
    process: &H::Process,
    host: &mut H,
    receive: H::Handle,
    rail: usize,
    part: Part,
) {
    if let Some(watched) = of(host, receive) {
        watched.done(part, port_of(process, rail), Status::FLUSHED).stage(SAFETY);
    }
}

/// Raises the event that a read by this rail has completed or failed.
pub(in crate::messenger) fn read_ended<H: Host>(
    process: &H::Process,
    host: &mut H,
    receive: H::Handle,
    rail: usize,
    (part, outcome): (Part, Result<(), Failed>),
) {
    let by = host.messenger().completed;
    if let Some(watched) = of(host, receive) {
        let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS);
        stage(watched.done(part, port_of(process, rail), status), by);
    }
}

fn of<H: Host>(host: &mut H, receive: H::Handle) -> Option<&mut WatchedReads> {
    let Transfer::Reading(reads) = &mut host.core(receive).transfer else { return None };
    reads.watched.as_deref_mut()
}

fn port_of<P: Process>(process: &P, rail: usize) -> u32 {
    process.rail(rail).map_or(u32::MAX, |rail| rail.port.into())
}

impl WatchedReads {
    #[cold]
    fn started(&self, read: Part, port: u32) {
        let WatchedReads { request, peer, .. } = *self;
        let (operation, local, remote, bytes) = self.place(read);
        events::stage(SAFETY, || GetStarted { operation, local, remote, bytes, peer, request, port });
    }

    #[cold]
    fn done(&self, read: Part, port: u32, Status(status): Status) -> EventGroup {
        let WatchedReads { request, peer, .. } = *self;
        let (operation, local, remote, bytes) = self.place(read);
        let (mut group, thread) = (EventGroup::new(events::interest()), events::this_thread());
        group.add(|| GetComplete { operation, local, remote, bytes, peer, status, request, thread, port });
        group
    }

    /// Returns the number of the read of a part, the part's local and remote address, and its length in bytes.
    fn place(&self, Part { offset, length }: Part) -> (u64, u64, u64, u64) {
        let (local, remote) = (self.local.wrapping_add(offset), self.remote.wrapping_add(offset));
        (self.first.wrapping_add(2 * offset), local, remote, length.into())
    }
}

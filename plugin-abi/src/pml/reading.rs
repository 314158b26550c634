// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a long message from the sender's memory into the user's buffer: by the port that announced it, or by several
//! ports at once (`rails`).
//!
//! Other ports repeat the reads of a failed port; if none is left, the receiver asks for copies. The state machine is
//! `engine::messenger::rendezvous::read`. Called by `accept` and `progress`. Grade: pending. Threads: the one that has
//! entered the PML. Tests: `pml/tests.rs`; for the events, `mpi_t_transfers.c` in `hw-tests/tools` and `events.c` in
//! `hw-tests/mpi`.

use engine::events::{self, EventGroup, GetComplete, GetStarted, Payload};
use engine::messenger::header::{Header, Memory, PortKey};
use engine::messenger::host::{Bytes, Host, Moved};
use engine::messenger::link::Link;
use engine::messenger::passage::{Passage, Protocol, Reason};
use engine::messenger::rendezvous::read::{Part, Path, Reading};
use engine::messenger::rendezvous::{Step, fragments};
use engine::messenger::transfer_id::TransferId;
use engine::transport::Failed;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::{RemoteSpan, Status};

use super::finish::finish;
use super::handle::Handle;
use super::instance::{Pml, Rail, State};
use super::request::{Core, Reads, Request, Transfer};
use super::{flight, moving, passage, rails, routing, transfers, transmit, watch};
use crate::runtime::watch::{SAFETY, numbers};

/// Shortest and longest read while several ports read a message, bytes. A port may have a lower limit.
const PIECE: std::ops::RangeInclusive<u64> = 32 << 10..=1 << 20;

/// Number of reads per port of a message, as far as [`PIECE`] permits.
const READS: u64 = 4;

/// Starts to read the first `wanted` bytes, at least 1, of a message to the contiguous buffer of its receive, by all
/// ports that can. Returns false if no port can, or none can register the receive's memory.
pub(crate) fn begin(
    pml: &Pml,
    state: &mut State,
    request: Handle,
    (link, sender, memory): (Link, TransferId, Memory),
    (keys, wanted): (&[PortKey], u64),
) -> bool {
    let ways = if keys.is_empty() { vec![(link, memory.key)] } else { rails::ways(pml, state, link, keys, wanted) };
    let core = state.requests.core(request);
    let piece = match ways.len() as u64 {
        0 | 1 => u32::MAX,
        ways => (wanted / (ways * READS)).clamp(*PIECE.start(), *PIECE.end()).next_multiple_of(4096) as u32,
    };
    let lanes = ways.into_iter().filter_map(|(link, key)| {
        let rail = pml.rails().get(link.rail())?;
        let access = sys::MCA_RCACHE_ACCESS_LOCAL_WRITE;
        // SAFETY: P2, M3: the memory is mapped until the receive is finished, and `take` ends the registration before.
        let registered =
            unsafe { rail.port().memory().register(core.data.extent().start.cast(), wanted as usize, access) }?;
        Some((Path { link, key, registered }, rail.port().attributes().mbps, piece.min(rail.read_limit)))
    });
    let Some(reading) = Reading::new(wanted, lanes) else { return false };
    core.link = link;
    core.transfer =
        Transfer::Reading(Reads { state: reading, sender, from: link, address: memory.address, watched: None });
    watch::begins_by(state, request, Bytes::None.posted(), |state| read_by(pml, state.requests.core(request)));
    let r = state.requests.get(request);
    // SAFETY: P1: the receive is not finished.
    let watched = unsafe { WatchedReads::of(r, memory.address, wanted) };
    if let Transfer::Reading(reads) = &mut r.core.transfer {
        reads.watched = watched;
    }
    post(pml, state, request);
    true
}

fn read_by(pml: &Pml, receive: &Core) -> Option<Passage> {
    let Transfer::Reading(reads) = &receive.transfer else { return None };
    let mut lanes = reads.state.paths();
    let rails = lanes.len();
    Some(passage::by(pml, lanes.next()?.link, (Protocol::Read, Reason::Size), rails))
}

/// Posts as many reads of a message as may be in flight, on every lane.
fn post(pml: &Pml, state: &mut State, request: Handle) {
    let core = state.requests.core(request);
    let (start, Transfer::Reading(reads)) = (core.data.extent().start, &mut core.transfer) else { return };
    let (lanes, mut at) = (reads.state.paths().len(), 0);
    while at < lanes {
        // SAFETY: P2: a receive that is being read to `start`.
        let is_posted = unsafe { post_on(pml, reads, at, start, request) };
        // If the lane has failed, all other lanes take its reads.
        at = if is_posted { at + 1 } else { 0 };
    }
    if reads.state.is_stuck() && !reads.state.is_under_way() {
        ask_for_copies(pml, state, request);
    }
}

/// Posts reads on one lane. Returns false if the lane has failed.
///
/// # Safety
/// P2: a receive that is being read to `start`; each lane's port has registered the memory there.
unsafe fn post_on(pml: &Pml, reads: &mut Reads, at: usize, start: *mut u8, request: Handle) -> bool {
    let Reads { state: reading, address, watched, .. } = reads;
    let Some(&Path { link, key, registered }) = reading.paths().nth(at) else { return true };
    let Some(mut port) = pml.rails().get(link.rail()).and_then(Rail::enter) else { return true };
    while let Some(part) = reading.next_part(at) {
        if let Some(watched) = watched {
            watched.started(part, port_of(pml, link.rail()));
        }
        let (to, from) = ((start, registered.lkey()), RemoteSpan { addr: *address, rkey: key });
        // SAFETY: R3: the part stays registered under this key until the last read completes; R2, P2: until then it
        // belongs to the adapter.
        if !unsafe { transmit::read(&mut port, link, part, to, from, request) } {
            if let Some(watched) = watched {
                watched.refused(part, port_of(pml, link.rail()));
            }
            reading.refused(at);
            return false;
        }
    }
    true
}

/// Asks the sender for copies of the whole message, because no port is left that can read it, and no read is in flight.
#[cold]
fn ask_for_copies(pml: &Pml, state: &mut State, request: Handle) {
    // SAFETY: R3: no read is in flight.
    if let Some(reads) = unsafe { take(pml, state.requests.core(request)) } {
        let (from, why) = (reads.from, Reason::Adapter);
        state.goes_by_link(pml, request, from, (Protocol::Fragments, why));
        fragments::ask(pml, state, request, (from, reads.sender), (reads.state.length(), why.code()));
    }
}

/// Takes the reads out of a receive, and ends its registrations.
///
/// # Safety
/// R3: no read is in flight.
unsafe fn take(pml: &Pml, receive: &mut Core) -> Option<Reads> {
    let Transfer::Reading(reads) = std::mem::replace(&mut receive.transfer, Transfer::None) else { return None };
    for lane in reads.state.paths() {
        if let Some(rail) = pml.rails().get(lane.link.rail()) {
            // SAFETY: R3: no read is in flight.
            unsafe { rail.port().memory().put_back(lane.registered) };
        }
    }
    Some(reads)
}

fn port_of(pml: &Pml, rail: usize) -> u32 {
    pml.rails().get(rail).map_or(u32::MAX, |rail| rail.port().index().into())
}

/// Handles the completion of a read by this rail.
pub(crate) fn read_done(pml: &Pml, state: &mut State, request: Handle, rail: usize, outcome: Result<(), Failed>) {
    let Transfer::Reading(reads) = &mut state.requests.core(request).transfer else { return };
    let lane = reads.state.paths().map(|lane| lane.link).enumerate().find(|(_, link)| link.rail() == rail);
    let Some((at, link)) = lane else { return };
    if outcome.is_err() {
        if let (Some(part), Some(watched)) = (reads.state.failed(at), &reads.watched) {
            watched.done(part, port_of(pml, rail), outcome);
        }
        if !moving::goes_on(pml, state, link) {
            transmit::failed(state);
            return;
        }
    } else {
        let part = reads.state.done(at).unwrap_or(Part { offset: 0, length: 0 });
        if let Some(watched) = &reads.watched {
            watched.done(part, port_of(pml, rail), outcome);
        }
        let moved = Bytes::Of { offset: part.offset, length: u64::from(part.length) }.completed();
        if reads.state.is_done() {
            return end(pml, state, request, moved);
        }
        watch::continues(state, request, moved);
    }
    post(pml, state, request);
}

/// Finishes a receive whose message has been read; `last` are the bytes of the last read.
fn end(pml: &Pml, state: &mut State, request: Handle, last: Moved) {
    // SAFETY: R3: no read is in flight.
    let Some(reads) = (unsafe { take(pml, state.requests.core(request)) }) else { return };
    watch::ends(state, request, last);
    flight::note(state, request, &Step::Fetched(reads.sender, reads.state.length()));
    let header = Header::Finished { request: reads.sender.0, length: reads.state.length() };
    routing::control(pml, state, reads.from, &header);
    finish(state, request);
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
        // SAFETY: P1: the receive is not finished, so its communicator lives; it is matched, so it has a source; P3.
        let peer = unsafe { transfers::process(request.comm(), request.base().req_status.MPI_SOURCE) };
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

    /// Raises the event of a read that the port refused, because its connection has failed.
    #[cold]
    fn refused(&self, read: Part, port: u32) {
        self.done(read, port, Err(Failed { status: Status::FLUSHED, posted: false }));
    }

    /// Raises the event of a read that has completed or failed.
    #[cold]
    fn done(&self, read: Part, port: u32, outcome: Result<(), Failed>) {
        let WatchedReads { request, peer, .. } = *self;
        let (operation, local, remote, bytes) = self.place(read);
        let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS).0;
        let (mut group, thread) = (EventGroup::new(events::interest()), events::this_thread());
        group.add(|| GetComplete { operation, local, remote, bytes, peer, status, request, thread, port });
        crate::runtime::watch::stage(group, transfers::completion());
    }

    /// Returns the number of the read of a part, the part's local and remote address, and its length in bytes.
    fn place(&self, Part { offset, length }: Part) -> (u64, u64, u64, u64) {
        let (local, remote) = (self.local.wrapping_add(offset), self.remote.wrapping_add(offset));
        (self.first.wrapping_add(2 * offset), local, remote, length.into())
    }
}

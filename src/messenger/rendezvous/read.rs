// SPDX-License-Identifier: MIT OR Apache-2.0
//! RDMA-read rendezvous: the receiver reads the message from the sender's memory into the user's buffer, by the rail
//! that announced it or by several at once (`stripes.rs`), and sends `Finished` when it has all.
//!
//! Other rails repeat the reads of a failed rail; if none is left, the receiver asks for copies (`fragments.rs`).
//! Called by `delivery`, and by the host for completions of reads. Grade: pending. Threads: the one that has entered
//! the messenger. Tests: `messenger/tests`, `pml/tests`; for the events, `mpi_t_transfers.c` in `hw-tests/tools`.

use std::ops::RangeInclusive;

use super::stripes::{Part, Stripes};
use super::{Step, fragments};
use crate::messenger::events;
use crate::messenger::events::reads::{self, WatchedReads};
use crate::messenger::events::transfers::{Bytes, Moved};
use crate::messenger::header::{Header, PortKey};
use crate::messenger::host::Host;
use crate::messenger::path_taken::{Protocol, Reason};
use crate::messenger::rails::lost;
use crate::messenger::request::Transfer;
use crate::messenger::request::transfer_id::TransferId;
use crate::messenger::route::Route;
use crate::transport::Failed;

/// Shortest and longest read while several rails read a message, bytes. A rail may have a lower limit.
const READ_LENGTH: RangeInclusive<u64> = 32 << 10..=1 << 20;

/// Number of reads per rail of a message, as far as [`READ_LENGTH`] permits.
const READS: u64 = 4;

/// The reads of a receive's message.
pub struct Reads<H: Host> {
    /// What each rail has read.
    pub stripes: Stripes<ReadRail<H::Registration>>,
    /// Number of the send.
    pub sender: TransferId,
    /// Address of the data in the sender's memory.
    pub address: u64,
    /// What events of the reads say, if tools want them.
    pub watched: Option<Box<WatchedReads>>,
}

/// A rail that reads. `R`: a registration.
#[derive(Clone, Copy, Debug)]
pub struct ReadRail<R> {
    /// Route to the sender.
    pub route: Route,
    /// Remote key of the sender's memory for this rail.
    pub key: u32,
    /// Registration of the receive's memory with this rail.
    pub registered: R,
}

/// The receive's memory, registered with a rail that will read into it.
#[derive(Clone, Copy, Debug)]
pub struct ReadTarget<R> {
    /// Registration of the receive's memory.
    pub registered: R,
    /// Data rate of the rail, Mbit/s.
    pub mbps: u32,
    /// Longest read, bytes.
    pub longest: u32,
}

/// Starts to read the first `wanted` bytes, at least 1, of a message to the contiguous buffer of its receive, by all
/// rails that can. `key`: that of the port that announced it; `keys`: those of several ports, or empty. Returns false
/// if no rail can, or none can register the receive's memory.
pub(crate) fn begin<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    (from, sender, address): (Route, TransferId, u64),
    (key, keys, wanted): (u32, &[PortKey], u64),
) -> bool {
    let (only, several);
    let readable: &[(Route, u32)] = if keys.is_empty() {
        only = [(from, key)];
        &only
    } else {
        several = host.readable_by(process, from, keys, wanted);
        &several
    };
    let piece = match readable.len() as u64 {
        0 | 1 => u32::MAX,
        rails => {
            (wanted / (rails * READS)).clamp(*READ_LENGTH.start(), *READ_LENGTH.end()).next_multiple_of(4096) as u32
        }
    };
    let rails = readable.iter().filter_map(|&(route, key)| {
        let ReadTarget { registered, mbps, longest } = host.register(process, request, route, wanted)?;
        Some((ReadRail { route, key, registered }, mbps, piece.min(longest)))
    });
    let Some(stripes) = Stripes::new(wanted, rails) else { return false };
    let core = host.core(request);
    core.route = from;
    core.transfer = Transfer::Reading(Reads { stripes, sender, address, watched: None });
    reads::begins(process, host, request);
    post(process, host, request);
    true
}

fn reads<H: Host>(host: &mut H, request: H::Handle) -> Option<&mut Reads<H>> {
    if let Transfer::Reading(reads) = &mut host.core(request).transfer { Some(reads) } else { None }
}

/// Posts as many reads of a message as may be in flight, on every lane.
fn post<H: Host>(process: &H::Process, host: &mut H, request: H::Handle) {
    let (lanes, mut lane) = (reads(host, request).map_or(0, |reads| reads.stripes.rails().len()), 0);
    while lane < lanes {
        // If the lane has failed, all other lanes take its reads.
        lane = if post_on(process, host, request, lane) { lane + 1 } else { 0 };
    }
    let is_stuck = |reads: &mut Reads<H>| reads.stripes.is_stuck() && !reads.stripes.is_under_way();
    if reads(host, request).is_some_and(is_stuck) {
        ask_for_copies(process, host, request);
    }
}

/// Posts reads on one lane. Returns false if the lane has failed.
fn post_on<H: Host>(process: &H::Process, host: &mut H, request: H::Handle, lane: usize) -> bool {
    let next = |reads: &mut Reads<H>| {
        let part = reads.stripes.next_part(lane)?;
        Some((*reads.stripes.rails().nth(lane)?, part))
    };
    while let Some((rail, part)) = reads(host, request).and_then(next) {
        if !host.post_read(process, request, &rail, part) {
            if let Some(reads) = reads(host, request) {
                reads.stripes.refused(lane);
            }
            return false;
        }
    }
    true
}

/// Asks the sender for copies of the whole message, because no rail is left that can read it, and no read is in flight.
#[cold]
fn ask_for_copies<H: Host>(process: &H::Process, host: &mut H, request: H::Handle) {
    if let Some(Reads { stripes, sender, .. }) = take(process, host, request) {
        let from = host.core(request).route;
        events::raise_path_by(process, host, request, from, (Protocol::Fragments, Reason::Adapter), 1);
        fragments::ask(process, host, request, (from, sender), (stripes.length(), Reason::Adapter));
    }
}

/// Takes the reads out of a receive, and ends its registrations. No read is in flight.
fn take<H: Host>(process: &H::Process, host: &mut H, request: H::Handle) -> Option<Reads<H>> {
    let Transfer::Reading(reads) = std::mem::replace(&mut host.core(request).transfer, Transfer::None) else {
        return None;
    };
    deregister(process, host, &reads);
    Some(reads)
}

/// Ends the registrations of reads, of which none is in flight.
pub(in crate::messenger) fn deregister<H: Host>(process: &H::Process, host: &mut H, reads: &Reads<H>) {
    for rail in reads.stripes.rails() {
        host.deregister(process, rail.route.rail(), rail.registered);
    }
}

/// Handles the completion of the oldest read by this rail.
pub(crate) fn done<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    rail: usize,
    outcome: Result<(), Failed>,
) {
    let Some(Reads { stripes, .. }) = reads(host, request) else { return };
    let lane = stripes.rails().map(|rail| rail.route).enumerate().find(|(_, route)| route.rail() == rail);
    let Some((lane, route)) = lane else { return };
    let part = if outcome.is_ok() { stripes.done(lane) } else { stripes.failed(lane) };
    let is_done = stripes.is_done();
    let Part { offset, length } = part.unwrap_or(Part { offset: 0, length: 0 });
    if let Some(part) = part {
        reads::read_ended(process, host, request, rail, (part, outcome));
    }
    if outcome.is_err() {
        if !host.fails_over(process, route) {
            return lost::note(process, host, route);
        }
    } else {
        let moved = Bytes::Of { offset, length: length.into() }.completed();
        if is_done {
            return end(process, host, request, moved);
        }
        events::continues(host, request, moved);
    }
    post(process, host, request);
}

/// Finishes a receive whose message has been read; `last` are the bytes of the last read.
fn end<H: Host>(process: &H::Process, host: &mut H, request: H::Handle, last: Moved) {
    let Some(Reads { stripes, sender, .. }) = take(process, host, request) else { return };
    let (length, from) = (stripes.length(), host.core(request).route);
    events::ends(host, request, last);
    super::enter(host, request, &Step::Fetched(sender, length));
    host.control(process, from, &Header::Finished { request: sender.0, length });
    host.finish(request);
}

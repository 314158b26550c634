// SPDX-License-Identifier: MIT OR Apache-2.0
//! A long message that its receiver reads from the sender's memory to the user's, without a copy: by the port that it was
//! announced by, or by several at once.
//!
//! Both sides register through Open MPI's cache; a side that cannot has copies sent (`pieces`). Of a message that was
//! announced with several ports' keys (`striped`) the shares are by the ports' rates; a port that fails leaves its reads to
//! the others, and where none is left it asks for copies. The state machine is `engine::protocol::reading`. Called by
//! `accept`, `incoming` and `progress`. Grade: pending. Threads: who has entered the PML.

use std::ptr::NonNull;

use engine::protocol::header::{Header, Memory, PortKey};
use engine::protocol::reading::{Part, Reading};
use engine::protocol::transfers::TransferId;
use engine::transport::Failed;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::RemoteSpan;

use super::finish::finish;
use super::flight::Step;
use super::instance::{Pml, Rail, State};
use super::link::Link;
use super::passage::{self, Passage, Protocol, Reason};
use super::request::{Request, Transfer};
use super::transfers::{Bytes, Moved};
use super::watched_reads::WatchedReads;
use super::{flight, moving, pieces, resume, routing, striped, transmit, watch};
use crate::runtime::memory::Registered;

/// The shortest and the longest read where several ports read, bytes, as far as the port permits it.
const PIECE: std::ops::RangeInclusive<u64> = 32 << 10..=1 << 20;

/// Reads of each of several ports that a message is divided into, where the pieces are of a length that is permitted.
const READS: u64 = 4;

/// A message that is being read.
pub(crate) struct Reads {
    state: Reading<Lane>,
    sender: TransferId,
    /// By which the message was announced.
    from: Link,
    /// Where the data begins.
    address: u64,
    watched: Option<Box<WatchedReads>>,
}

/// A port that reads.
#[derive(Debug)]
struct Lane {
    link: Link,
    /// The sender's key of its memory.
    key: u32,
    registered: Registered,
}

/// Has a receive that was matched read the first `wanted` bytes, at least 1, of its message, by as many ports as can.
/// False: none can, or its memory cannot be registered.
///
/// # Safety
/// P1: a matched receive into contiguous memory, with no transfer in progress.
pub(crate) unsafe fn begin(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    (link, sender, memory): (Link, TransferId, Memory),
    (keys, wanted): (&[PortKey], u64),
) -> bool {
    let ways = if keys.is_empty() { vec![(link, memory.key)] } else { striped::ways(pml, state, link, keys, wanted) };
    // SAFETY: P1: a receive that is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let piece = match ways.len() as u64 {
        0 | 1 => u32::MAX,
        ways => (wanted / (ways * READS)).clamp(*PIECE.start(), *PIECE.end()).next_multiple_of(4096) as u32,
    };
    let lanes = ways.into_iter().filter_map(|(link, key)| {
        let rail = pml.rails().get(link.rail())?;
        let access = sys::MCA_RCACHE_ACCESS_LOCAL_WRITE;
        // SAFETY: P2, M3: mapped until the receive is finished, and put back before.
        let registered = unsafe { rail.port().memory().register(r.extent.start.cast(), wanted as usize, access) }?;
        Some((Lane { link, key, registered }, rail.port().attributes().mbps, piece.min(rail.read_limit)))
    });
    let Some(reading) = Reading::new(wanted, lanes) else { return false };
    r.link = link;
    r.transfer =
        Transfer::Reading(Reads { state: reading, sender, from: link, address: memory.address, watched: None });
    // SAFETY: P1: a receive that is not finished, and is being read from here on; P3.
    unsafe {
        watch::begins_by(r, Bytes::None.posted(), |r| read_by(pml, r));
        let watched = WatchedReads::of(r, memory.address, wanted);
        if let Transfer::Reading(reads) = &mut r.transfer {
            reads.watched = watched;
        }
        post(pml, state, request);
    }
    true
}

/// How a message goes that is being read.
fn read_by(pml: &Pml, request: &Request) -> Option<Passage> {
    let Transfer::Reading(reads) = &request.transfer else { return None };
    let mut lanes = reads.state.paths();
    let rails = lanes.len();
    Some(passage::by(pml, lanes.next()?.link, (Protocol::Read, Reason::Size), rails))
}

/// Posts as many reads as may be under way, on every lane.
///
/// # Safety
/// P1: a receive that is being read.
unsafe fn post(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: a receive that is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Reading(reads) = &mut r.transfer else { return };
    let (lanes, mut at) = (reads.state.paths().len(), 0);
    while at < lanes {
        // SAFETY: P1: a receive that is being read, into where its data starts.
        let is_posted = unsafe { post_on(pml, reads, at, r.extent.start, request) };
        // What a lane could not take is left to the others, those before included.
        at = if is_posted { at + 1 } else { 0 };
    }
    if reads.state.is_stuck() && !reads.state.is_under_way() {
        // SAFETY: P1: a receive that is being read, and no read is under way.
        unsafe { ask_for_copies(pml, state, request) };
    }
}

/// Posts on one lane. False: it has failed.
///
/// # Safety
/// P1: a receive that is being read to `start`, where it is registered with each lane's port.
unsafe fn post_on(pml: &Pml, reads: &mut Reads, at: usize, start: *mut u8, request: NonNull<Request>) -> bool {
    let Reads { state: reading, address, watched, .. } = reads;
    let Some(&Lane { link, key, registered }) = reading.paths().nth(at) else { return true };
    let Some(mut port) = pml.rails().get(link.rail()).and_then(Rail::enter) else { return true };
    while let Some(part) = reading.next_part(at) {
        if let Some(watched) = watched {
            watched.started(part);
        }
        let (to, from) = ((start, registered.lkey()), RemoteSpan { addr: *address, rkey: key });
        // SAFETY: R3: within what is registered under that key until the last read is done; R2, P2: the adapter's till
        // then.
        if !unsafe { transmit::read(&mut port, link, part, to, from, request) } {
            if let Some(watched) = watched {
                watched.refused(part);
            }
            reading.refused(at);
            return false;
        }
    }
    true
}

/// No port is left that could read: the sender is to send copies instead, of all of it.
///
/// # Safety
/// P1: a receive that is being read, and no read is under way.
#[cold]
unsafe fn ask_for_copies(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: a receive of which no read is under way; P3.
    if let Some(reads) = unsafe { take(pml, request) } {
        // SAFETY: P1: a receive, matched, with nothing under way; P3.
        unsafe {
            let (from, why) = (reads.from, Reason::Adapter);
            watch::goes(&mut *request.as_ptr(), |_| Some(passage::by_home(pml, state, from, (Protocol::Pieces, why))));
            pieces::ask(pml, state, request, (from, reads.sender), (reads.state.length(), passage::code(why)));
        }
    }
}

/// Takes the reads of a message, whose memory is given back.
///
/// # Safety
/// P1: a receive of which no read is under way any more; P3: the caller has entered the PML.
unsafe fn take(pml: &Pml, request: NonNull<Request>) -> Option<Reads> {
    // SAFETY: P1: a receive that is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Reading(reads) = std::mem::replace(&mut r.transfer, Transfer::None) else { return None };
    for lane in reads.state.paths() {
        if let Some(rail) = pml.rails().get(lane.link.rail()) {
            // SAFETY: R3: no read is under way.
            unsafe { rail.port().memory().put_back(lane.registered) };
        }
    }
    Some(reads)
}

/// A read by this rail is done, or has failed.
///
/// # Safety
/// P1: the receive to which the read belonged; it is not finished.
pub(crate) unsafe fn read_done(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    rail: usize,
    outcome: Result<(), Failed>,
) {
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Reading(reads) = &mut r.transfer else { return };
    let lane = reads.state.paths().map(|lane| lane.link).enumerate().find(|(_, link)| link.rail() == rail);
    let Some((at, link)) = lane else { return };
    if outcome.is_err() {
        if let (Some(part), Some(watched)) = (reads.state.failed(at), &reads.watched) {
            watched.done(part, outcome);
        }
        if !moving::goes_on(pml, state, link) {
            transmit::failed(state);
            return;
        }
    } else {
        let part = reads.state.done(at).unwrap_or(Part { offset: 0, length: 0 });
        if let Some(watched) = &reads.watched {
            watched.done(part, outcome);
        }
        let moved = Bytes::Of { offset: part.offset, length: u64::from(part.length) }.completed();
        if reads.state.is_done() {
            // SAFETY: P1: a receive that is being read, and this was the last read.
            return unsafe { end(pml, state, request, moved) };
        }
        // SAFETY: P1: a receive that is not finished; P3.
        unsafe { watch::continues(r, moved) };
    }
    // SAFETY: P1: a receive that is being read.
    unsafe { post(pml, state, request) };
}

/// All has been read, `last` at the end.
///
/// # Safety
/// P1: a receive that was being read, and no read is under way any more.
unsafe fn end(pml: &Pml, state: &mut State, request: NonNull<Request>, last: Moved) {
    // SAFETY: P1: a receive of which no read is under way any more; P3.
    let Some(reads) = (unsafe { take(pml, request) }) else { return };
    // SAFETY: P1: a receive that is not finished; P3.
    unsafe {
        watch::ends(&mut *request.as_ptr(), last);
        flight::note(&mut *request.as_ptr(), &Step::Fetched(reads.sender, reads.state.length()));
    }
    let header = Header::Finished { request: reads.sender.0, length: reads.state.length() };
    routing::control(pml, state, reads.from, &header);
    // SAFETY: P1: a receive that has all it wants.
    unsafe { finish(state, request) };
}

/// Finishes a send that this process announced: the receiver has read what it wants, or has matched a short message.
pub(crate) fn finished(pml: &Pml, state: &mut State, sender: TransferId) {
    let Some(request) = state.transfers.end(sender) else { return };
    // SAFETY: P1: in `state.transfers` until now; P3.
    let r = unsafe { &mut *request.as_ptr() };
    // SAFETY: P1: the send is not finished.
    let counted = unsafe { resume::counted(r) };
    let transfer = std::mem::replace(&mut r.transfer, Transfer::None);
    let moved = Bytes::Of { offset: 0, length: r.extent.length as u64 }.completed();
    // SAFETY: P1: the send is not finished, and its transfer ends here; P3; R3: the receiver has read.
    unsafe {
        // Raises nothing for a message that was sent whole: its events were raised then.
        watch::ends_by(r, moved, |r| passage::was_read(pml, r, &transfer));
        striped::put_back(pml, r.link, transfer);
        flight::note(r, &Step::Answered { number: sender, wants_copies: false });
        finish(state, request);
    }
    resume::answered(pml, state, counted);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multi-rail read: the receiver reads a long message by several ports at once.
//!
//! The sender registers the memory with each port that reaches the peer, and announces it with each port's key
//! ([`announce`]). The receiver reads by those of its ports that are connected to one of them, and lets the others
//! begin to connect, for the next message. Ports share a message by their rates. If a port fails the others take its
//! reads; if none is left, the receiver asks for copies. The state machine is `engine::protocol::striping`. Called by
//! `protocol`, `accept`, `reading`, and by `pieces` when the receiver has answered. Grade: pending. Threads: the one
//! that has entered the PML. Tests: `rail_down.c` in `hw-tests/mpi`.

use std::num::NonZeroU64;
use std::ptr::NonNull;

use engine::protocol::header::{Header, Match, Memory, PortKey};
use engine::protocol::reading::Part;
use engine::protocol::striping::Striping;
use engine::protocol::transfers::TransferId;
use engine::transport::Failed;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::RemoteSpan;

use super::datatype::{Data, Extent};
use super::finish::finish;
use super::flight::Step;
use super::instance::{Pml, Rail, State};
use super::link::Link;
use super::passage::{self, Passage, Protocol, Reason};
use super::request::{Request, Transfer};
use super::transfers::{Bytes, Moved};
use super::transmit::{self, Transmitted};
use super::watched_reads::WatchedReads;
use super::{flight, moving, pieces, rails, routing, watch};
use crate::runtime::memory::Registered;

/// Maximum number of reads of a message that are posted to a port at a time.
const MOST: usize = 4;

/// Shortest and longest read, bytes, if the port permits that.
const PIECE: std::ops::RangeInclusive<u64> = 32 << 10..=1 << 20;

/// Number of reads per port that a message is divided into, within the limits of [`PIECE`].
const READS: u64 = 4;

/// Begins to read the first `wanted` bytes (at least 1) of a message by as many ports as can. Returns false if none
/// can, or if the receive's memory cannot be registered.
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
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let access = sys::MCA_RCACHE_ACCESS_LOCAL_WRITE;
    let lanes = ways(pml, state, link, keys, wanted).into_iter().filter_map(|(link, key)| {
        let rail = pml.rails().get(link.rail())?;
        // SAFETY: P2, M3: mapped until the receive is finished, and [`take`] ends the registration before.
        let registered = unsafe { rail.port().memory().register(r.extent.start.cast(), wanted as usize, access) };
        Some(Lane { link, key, registered: registered? })
    });
    let lanes: Vec<Lane> = lanes.collect();
    let Some(parts) = NonZeroU64::new(lanes.len() as u64 * READS) else { return false };
    r.link = link;
    let piece = (wanted / parts).clamp(*PIECE.start(), *PIECE.end()).next_multiple_of(4096) as u32;
    let piece = if lanes.len() == 1 { u32::MAX } else { piece };
    let weights: Vec<(u32, u32)> = lanes
        .iter()
        .filter_map(|lane| pml.rails().get(lane.link.rail()))
        .map(|rail| (rail.port().attributes().mbps, piece.min(rail.read_limit)))
        .collect();
    let striping = Striping::new(wanted, &weights, MOST);
    let reads = Reads { state: striping, lanes, sender, from: link, address: memory.address, watched: None };
    r.transfer = Transfer::Striped(Box::new(reads));
    // SAFETY: P1: the receive is not finished, and its transfer is `Striped` from here on; P3.
    unsafe {
        watch::begins_by(r, Bytes::None.posted(), |r| read_by(pml, r));
        let watched = WatchedReads::of(r, memory.address, wanted);
        if let Transfer::Striped(reads) = &mut r.transfer {
            reads.watched = watched;
        }
        post(pml, state, request);
    }
    true
}

/// Passage of a message that is being read.
fn read_by(pml: &Pml, request: &Request) -> Option<Passage> {
    let Transfer::Striped(reads) = &request.transfer else { return None };
    let first = reads.lanes.first()?;
    Some(passage::by(pml, first.link, (Protocol::Read, Reason::Size), reads.lanes.len()))
}

/// Returns the links by which a message can be read now, with the sender's keys. A short message has only one: that
/// which announced it, if possible.
fn ways(pml: &Pml, state: &mut State, from: Link, keys: &[PortKey], wanted: u64) -> Vec<(Link, u32)> {
    let Some(peer) = rails::of(pml, state, from) else { return Vec::new() };
    let links = state.several.peers[peer].links.iter().copied();
    let mut ways: Vec<(Link, u32)> = links
        .filter_map(|link| {
            let mut port = pml.rails().get(link.rail())?.enter()?;
            let remote = u32::from(port.partner(link.to())?);
            let key = keys.iter().find(|key| key.port == remote)?.key;
            let is_usable = !port.is_down() && rails::has_not_failed(&port, link);
            // The port that announced the message is connected, or is about to be.
            (is_usable && (link.rail() == from.rail() || port.is_ready(link.to()))).then_some((link, key))
        })
        .collect();
    if wanted < SHORTEST as u64 {
        ways.sort_by_key(|(link, _)| link.rail() != from.rail());
        ways.truncate(1);
    }
    ways
}

/// Posts as many reads as permitted, on every lane.
///
/// # Safety
/// P1: a receive whose transfer is `Striped`.
unsafe fn post(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Striped(reads) = &mut r.transfer else { return };
    let Reads { state: striping, lanes, address, watched, .. } = &mut **reads;
    let (start, watched, mut at) = (r.extent.start, watched.as_deref(), 0);
    while let Some(lane) = lanes.get(at) {
        // SAFETY: P1: the receive is being read: from the announced address to the start of its data.
        let is_posted = unsafe { post_on(pml, striping, (at, lane), (start, *address), watched, request) };
        // After a failure all lanes are tried again, because they take over the reads of the failed one.
        at = if is_posted { at + 1 } else { 0 };
    }
    if striping.is_stuck() && !striping.is_under_way() {
        // SAFETY: P1: the receive is being read, and no read is in flight.
        unsafe { ask_for_copies(pml, state, request) };
    }
}

/// Asks the sender to send the whole message as copies, because no port is left to read it.
///
/// # Safety
/// P1: a receive whose transfer is `Striped`, with no read in flight.
#[cold]
unsafe fn ask_for_copies(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: no read of this receive is in flight; P3.
    if let Some(reads) = unsafe { take(pml, request) } {
        // SAFETY: P1: a matched receive, which after [`take`] has no transfer in progress; P3.
        unsafe {
            let (from, why) = (reads.from, Reason::Adapter);
            watch::goes(&mut *request.as_ptr(), |_| Some(passage::by_home(pml, state, from, (Protocol::Pieces, why))));
            pieces::ask(pml, state, request, (from, reads.sender), (reads.state.length(), passage::code(why)));
        }
    }
}

/// Takes the reads out of a receive, and ends its registrations.
///
/// # Safety
/// P1: a receive of which no read is in flight any more; P3: the PML is entered.
unsafe fn take(pml: &Pml, request: NonNull<Request>) -> Option<Box<Reads>> {
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Striped(reads) = std::mem::replace(&mut r.transfer, Transfer::None) else { return None };
    for lane in &reads.lanes {
        if let Some(rail) = pml.rails().get(lane.link.rail()) {
            // SAFETY: R3: no read is in flight.
            unsafe { rail.port().memory().put_back(lane.registered) };
        }
    }
    Some(reads)
}

/// Posts reads on one lane. Returns false if the lane has failed.
///
/// # Safety
/// P1: a receive whose transfer is `Striped` and has this lane. Its memory at `start` is registered with that port.
unsafe fn post_on(
    pml: &Pml,
    striping: &mut Striping,
    (at, lane): (usize, &Lane),
    (start, address): (*mut u8, u64),
    watched: Option<&WatchedReads>,
    request: NonNull<Request>,
) -> bool {
    let Some(mut port) = pml.rails().get(lane.link.rail()).and_then(Rail::enter) else { return true };
    while let Some(part) = striping.next_part(at) {
        if let Some(watched) = watched {
            watched.started(part);
        }
        let (to, from) = ((start, lane.registered.lkey()), RemoteSpan { addr: address, rkey: lane.key });
        // SAFETY: R3: the part is within the memory registered under that key until the last read is done; R2, P2:
        // until then it belongs to the adapter.
        if !unsafe { transmit::read(&mut port, lane.link, part, to, from, request) } {
            if let Some(watched) = watched {
                watched.refused(part);
            }
            striping.refused(at);
            return false;
        }
    }
    true
}

/// A read by this rail is done or has failed: continues the transfer, or ends it.
///
/// # Safety
/// P1: a receive whose transfer is `Striped`; the read was one of its reads.
pub(crate) unsafe fn read_done(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    rail: usize,
    outcome: Result<(), Failed>,
) {
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Striped(reads) = &mut r.transfer else { return };
    let Some(at) = reads.lanes.iter().position(|lane| lane.link.rail() == rail) else { return };
    if outcome.is_err() {
        let failed = reads.lanes[at].link;
        if let (Some(part), Some(watched)) = (reads.state.failed(at), &reads.watched) {
            watched.done(part, outcome);
        }
        if !moving::goes_on(pml, state, failed) {
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
            // SAFETY: P1: this was the last read of the receive.
            return unsafe { end(pml, state, request, moved) };
        }
        // SAFETY: P1: the receive is not finished; P3.
        unsafe { watch::continues(r, moved) };
    }
    // SAFETY: P1: the receive is still being read.
    unsafe { post(pml, state, request) };
}

/// Ends a transfer whose last read has moved `last`: reports it to the sender and finishes the receive.
///
/// # Safety
/// P1: a receive whose transfer is `Striped`, with no read in flight any more.
unsafe fn end(pml: &Pml, state: &mut State, request: NonNull<Request>, last: Moved) {
    // SAFETY: P1: no read of this receive is in flight any more; P3.
    let Some(reads) = (unsafe { take(pml, request) }) else { return };
    // SAFETY: P1: the receive is not finished; P3.
    unsafe {
        watch::ends(&mut *request.as_ptr(), last);
        flight::note(&mut *request.as_ptr(), &Step::Fetched(reads.sender, reads.state.length()));
    }
    let header = Header::Finished { request: reads.sender.0, length: reads.state.length() };
    routing::control(pml, state, reads.from, &header);
    // SAFETY: P1: the receive has all the data that it wants, and no transfer in progress.
    unsafe { finish(state, request) };
}

/// Shortest message that is read by several ports, bytes: two reads of the minimum length.
pub(crate) const SHORTEST: usize = 64 << 10;

/// A registration with a port: index of its rail, and the registration.
pub(crate) type OfRail = (usize, Registered);

/// State of a message that several ports read.
pub(crate) struct Reads {
    pub(crate) state: Striping,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) sender: TransferId,
    /// Link that announced the message.
    pub(crate) from: Link,
    /// Address of the data in the sender.
    pub(crate) address: u64,
    pub(crate) watched: Option<Box<WatchedReads>>,
}

/// A port that reads a message.
pub(crate) struct Lane {
    pub(crate) link: Link,
    /// The sender's key of its memory.
    pub(crate) key: u32,
    pub(crate) registered: Registered,
}

/// Registers a message with the other ports that reach its receiver, if it is long enough for several.
///
/// # Safety
/// P2, M3: the data of a send, whose registrations [`put_back`] ends before the send is finished.
pub(crate) unsafe fn register(pml: &Pml, state: &mut State, home: Link, extent: Extent) -> Vec<OfRail> {
    if !pml.has_several() || extent.length < SHORTEST {
        return Vec::new();
    }
    let Some(peer) = rails::of(pml, state, home) else { return Vec::new() };
    let links = state.several.peers[peer].links.iter().filter(|link| link.rail() != home.rail());
    let registered = links.filter(|link| rails::is_usable(pml, **link)).filter_map(|link| {
        let rail = pml.rails().get(link.rail())?;
        let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
        // SAFETY: P2, M3: mapped until the send is finished, and [`put_back`] ends the registration before.
        let registered = unsafe { rail.port().memory().register(extent.start.cast(), extent.length, access) };
        Some((link.rail(), registered?))
    });
    registered.collect()
}

/// Announces a message that these ports can read. Each key is sent with its port's number, because the announcement may
/// go by another port than is expected now.
pub(crate) fn announce(
    pml: &Pml,
    state: &mut State,
    link: Link,
    (of, sender, memory): (Match, TransferId, Memory),
    registered: impl Iterator<Item = OfRail>,
) {
    let key = |(rail, registered): OfRail| {
        let rail = pml.rails().get(rail)?;
        Some(PortKey { port: u32::from(rail.port().index()), key: registered.rkey() })
    };
    let keys = PortKey::encode(&registered.filter_map(key).collect::<Vec<_>>());
    let extent = Extent { start: keys.as_ptr().cast_mut(), length: keys.len() };
    // `routing` does not look at `data` if the extent is contiguous.
    let data = Data { buffer: std::ptr::null_mut(), count: 0, datatype: std::ptr::null_mut() };
    let header = Header::AnnounceKeyed(of, sender.0, memory);
    // SAFETY: P2: the keys live during the call; by shared memory, which needs more, no announcement has keys.
    if unsafe { routing::message(pml, state, link, &header, (&data, extent), None) } == Transmitted::Failed {
        transmit::failed(state);
    }
}

/// Ends the registrations of an announced message.
///
/// # Safety
/// R3: the receiver has read the message, or will not read it.
pub(crate) unsafe fn put_back(pml: &Pml, home: Link, transfer: Transfer) {
    let Transfer::Announced { registered, others, .. } = transfer else { return };
    let home = registered.map(|registered| (home.rail(), registered));
    for (rail, registered) in home.into_iter().chain(others) {
        if let Some(rail) = pml.rails().get(rail) {
            // SAFETY: R3: the receiver has read the message, or will not read it.
            unsafe { rail.port().memory().put_back(registered) };
        }
    }
}

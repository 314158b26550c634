// SPDX-License-Identifier: MIT OR Apache-2.0
//! A long message that its receiver reads by several ports at once.
//!
//! The sender registers the memory with each port that reaches the peer, and announces it with each port's key
//! ([`announce`]). The receiver reads by those of its own that are connected to one of them, and lets the others begin to
//! connect, for the next message. Shares are by the ports' rates; a port that fails leaves its reads to the others, and
//! where none is left it asks for copies. The state machine is `engine::protocol::striping`. Called by `protocol`, `accept`
//! and `reading`, and by `pieces` when the receiver has answered. Grade: pending. Threads: who has entered the PML.

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

/// Reads of a message that are posted to a port at a time.
const MOST: usize = 4;

/// The shortest and the longest read of one, bytes, where the port permits it.
const PIECE: std::ops::RangeInclusive<u64> = 32 << 10..=1 << 20;

/// Reads of each port that a message is divided into, where the pieces are of a length that is permitted.
const READS: u64 = 4;

/// Has a receive that was matched read the first `wanted` bytes, at least 1, of its message, by as many ports as can.
/// False: none can, or its memory cannot be registered.
///
/// # Safety
/// P1: a receive into memory of one piece, matched, with nothing under way.
pub(crate) unsafe fn begin(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    (link, sender, memory): (Link, TransferId, Memory),
    (keys, wanted): (&[PortKey], u64),
) -> bool {
    // SAFETY: P1: a receive that is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let access = sys::MCA_RCACHE_ACCESS_LOCAL_WRITE;
    let lanes = ways(pml, state, link, keys, wanted).into_iter().filter_map(|(link, key)| {
        let rail = pml.rails().get(link.rail())?;
        // SAFETY: P2, M3: mapped until the receive is finished, and put back before.
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
    // SAFETY: P1: a receive that is not finished, and is read by several ports from here on; P3.
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

/// How a message goes that is being read.
fn read_by(pml: &Pml, request: &Request) -> Option<Passage> {
    let Transfer::Striped(reads) = &request.transfer else { return None };
    let first = reads.lanes.first()?;
    Some(passage::by(pml, first.link, (Protocol::Read, Reason::Size), reads.lanes.len()))
}

/// The links by which a message can be read now, with the sender's keys: a short one by the link that announced it if
/// that can be.
fn ways(pml: &Pml, state: &mut State, from: Link, keys: &[PortKey], wanted: u64) -> Vec<(Link, u32)> {
    let Some(peer) = rails::of(pml, state, from) else { return Vec::new() };
    let links = state.several.peers[peer].links.iter().copied();
    let mut ways: Vec<(Link, u32)> = links
        .filter_map(|link| {
            let mut port = pml.rails().get(link.rail())?.enter()?;
            let remote = u32::from(port.partner(link.to())?);
            let key = keys.iter().find(|key| key.port == remote)?.key;
            let is_usable = !port.is_down() && rails::has_not_failed(&port, link);
            // What has announced it is connected, or as good as.
            (is_usable && (link.rail() == from.rail() || port.is_ready(link.to()))).then_some((link, key))
        })
        .collect();
    if wanted < SHORTEST as u64 {
        ways.sort_by_key(|(link, _)| link.rail() != from.rail());
        ways.truncate(1);
    }
    ways
}

/// Posts as many reads as may be under way, on every lane.
///
/// # Safety
/// P1: a receive that is being read by several ports.
unsafe fn post(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: a receive that is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Striped(reads) = &mut r.transfer else { return };
    let Reads { state: striping, lanes, address, watched, .. } = &mut **reads;
    let (start, watched, mut at) = (r.extent.start, watched.as_deref(), 0);
    while let Some(lane) = lanes.get(at) {
        // SAFETY: P1: a receive that is being read, into where its data starts, from where the sender has announced it.
        let is_posted = unsafe { post_on(pml, striping, (at, lane), (start, *address), watched, request) };
        // What a lane could not take is left to the others, those before included.
        at = if is_posted { at + 1 } else { 0 };
    }
    if striping.is_stuck() && !striping.is_under_way() {
        // SAFETY: P1: a receive that is being read by several ports, and no read is under way.
        unsafe { ask_for_copies(pml, state, request) };
    }
}

/// No port is left that could read: the sender is to send copies instead, of all of it.
///
/// # Safety
/// P1: a receive that is being read by several ports, and no read is under way.
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
unsafe fn take(pml: &Pml, request: NonNull<Request>) -> Option<Box<Reads>> {
    // SAFETY: P1: a receive that is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Striped(reads) = std::mem::replace(&mut r.transfer, Transfer::None) else { return None };
    for lane in &reads.lanes {
        if let Some(rail) = pml.rails().get(lane.link.rail()) {
            // SAFETY: R3: no read is under way.
            unsafe { rail.port().memory().put_back(lane.registered) };
        }
    }
    Some(reads)
}

/// Posts on one lane. False: it has failed.
///
/// # Safety
/// P1: a receive that is being read by several ports, of which this is a lane: what its parts are of is at `start`,
/// registered with the lane's port.
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
        // SAFETY: R3: within what is registered under that key until the last read is done; R2, P2: the adapter's till
        // then.
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

/// A read by this rail is done, or has failed.
///
/// # Safety
/// P1: it was a read of this receive, which is read by several ports.
pub(crate) unsafe fn read_done(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    rail: usize,
    outcome: Result<(), Failed>,
) {
    // SAFETY: P1: a receive that is not finished; P3.
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
            // SAFETY: P1: a receive that is read by several ports, and this was the last read.
            return unsafe { end(pml, state, request, moved) };
        }
        // SAFETY: P1: a receive that is not finished; P3.
        unsafe { watch::continues(r, moved) };
    }
    // SAFETY: P1: a receive that is being read by several ports.
    unsafe { post(pml, state, request) };
}

/// All has been read, `last` at the end.
///
/// # Safety
/// P1: a receive that was read by several ports, and no read is under way any more.
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

/// The shortest message that is read by several ports, bytes: two reads of the least length.
pub(crate) const SHORTEST: usize = 64 << 10;

/// What a port's registration is of: which rail's, and the registration.
pub(crate) type OfRail = (usize, Registered);

/// A message that is being read by several ports.
pub(crate) struct Reads {
    pub(crate) state: Striping,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) sender: TransferId,
    /// By which the message was announced.
    pub(crate) from: Link,
    /// Where the data begins.
    pub(crate) address: u64,
    pub(crate) watched: Option<Box<WatchedReads>>,
}

/// A port that reads.
pub(crate) struct Lane {
    pub(crate) link: Link,
    /// The sender's key of its memory.
    pub(crate) key: u32,
    pub(crate) registered: Registered,
}

/// Registers a message with the other ports that reach its receiver, if it is long enough to be read by several.
///
/// # Safety
/// P2, M3: the data of a send, whose registrations are put back before it is finished.
pub(crate) unsafe fn register(pml: &Pml, state: &mut State, home: Link, extent: Extent) -> Vec<OfRail> {
    if !pml.has_several() || extent.length < SHORTEST {
        return Vec::new();
    }
    let Some(peer) = rails::of(pml, state, home) else { return Vec::new() };
    let links = state.several.peers[peer].links.iter().filter(|link| link.rail() != home.rail());
    let registered = links.filter(|link| rails::is_usable(pml, **link)).filter_map(|link| {
        let rail = pml.rails().get(link.rail())?;
        let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
        // SAFETY: P2, M3: mapped until the send is finished, and put back before.
        let registered = unsafe { rail.port().memory().register(extent.start.cast(), extent.length, access) };
        Some((link.rail(), registered?))
    });
    registered.collect()
}

/// Announces a message that can be read by these ports. Their keys are told apart by the ports' numbers, as the
/// announcement may have to go by another port than is expected now.
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
    // Data in one piece is not looked at.
    let data = Data { buffer: std::ptr::null_mut(), count: 0, datatype: std::ptr::null_mut() };
    let header = Header::AnnounceKeyed(of, sender.0, memory);
    // SAFETY: the keys live for the call; `link` is a rail's, as only rails register.
    if unsafe { routing::message(pml, state, link, &header, (&data, extent), None) } == Transmitted::Failed {
        transmit::failed(state);
    }
}

/// Gives back what was registered for an announcement.
///
/// # Safety
/// R3: the receiver has read, or will not.
pub(crate) unsafe fn put_back(pml: &Pml, home: Link, transfer: Transfer) {
    let Transfer::Announced { registered, others, .. } = transfer else { return };
    let home = registered.map(|registered| (home.rail(), registered));
    for (rail, registered) in home.into_iter().chain(others) {
        if let Some(rail) = pml.rails().get(rail) {
            // SAFETY: R3: the receiver has read, or will not.
            unsafe { rail.port().memory().put_back(registered) };
        }
    }
}

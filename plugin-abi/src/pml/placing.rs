// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver first, the sender's side: a message is written to the place that its receiver has offered, and a header
//! behind it says so.
//!
//! The rules are `engine::protocol::place`'s. As long as messages to a peer are counted, or places of it wait for them,
//! its link in the communicator is marked, as flow control marks it (`flow`): each message comes by [`send`], in the
//! order in which they go. What is not longer than what goes at once is not written, as a copy is as quick and needs no
//! registration. A process with several ports, or with several threads, refuses each offer: a thread may be about to
//! send by a short path.
//!
//! A send is finished when its memory is not used any more, and the header is with the adapter. Called by `protocol`,
//! `send`, `incoming` and `progress`. Grade: pending. Threads: who has entered the PML, and no port. Tests:
//! `receiver_first.c` in `hw-tests/mpi`.

use std::ptr::NonNull;
use std::sync::Arc;

use engine::counters::add_shared;
use engine::protocol::header::{Header, Match, Memory};
use engine::protocol::place::{Going, Offer, OfferId, Refused, refusal};
use engine::transport::Failed;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::{LocalSpan, RemoteSpan};

use super::communicator::Communicator;
use super::datatype::Extent;
use super::finish::finish;
use super::instance::{Pml, Rail, State};
use super::link::Link;
use super::passage::{Protocol, Reason};
use super::places::{MOST_UNPLACED, Offers};
use super::request::{Request, Transfer};
use super::transmit::{self, Transmitted};
use super::{passage, routing, token, watch};
use crate::runtime::memory::Registered;

/// An offer has come: in a communicator, of the receiver with this rank there.
pub(crate) fn offered(pml: &Pml, state: &mut State, from: Link, at: Match, offer: Offer<Memory>) {
    if let Some(refused) = answer(pml, state, from, at, offer) {
        routing::control(pml, state, from, &Header::Refused { refused, context: at.context });
    }
}

fn answer(pml: &Pml, state: &mut State, from: Link, at: Match, offer: Offer<Memory>) -> Option<Refused> {
    let communicator = state.contexts.get(at.context).copied();
    // SAFETY: in the table, so alive.
    let communicator = communicator.as_ref().map(|communicator| unsafe { communicator.as_ref() });
    // A rank that is not known yet, or reached by another way, is not.
    let is_known = |communicator: &&Communicator| {
        let link = communicator.link(at.rank);
        link != Link::UNKNOWN && link.unmarked() == from
    };
    let Some(communicator) = communicator.filter(|_| pml.offers != Offers::Never).filter(is_known) else {
        return Some(refusal(offer.id, &mut state.places.epochs));
    };
    // SAFETY: the PML is entered, and nothing else has them.
    let peer = unsafe { communicator.make_places() }.to.entry(at.rank).or_default();
    communicator.set_link(at.rank, from.marked());
    peer.accepted.offered(offer, &mut state.places.epochs)
}

/// A message goes now, by this link: whether it is long and all is free, so that it may be written. What is returned
/// goes as ever.
///
/// # Safety
/// A send of the PML's that is filled in, and the caller's alone; its message goes before whatever goes later.
#[inline]
pub(crate) unsafe fn send(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    of: Match,
    may_be_written: bool,
) -> Option<Match> {
    // SAFETY: this function's rule; a live communicator.
    let communicator = unsafe { Communicator::of((*request.as_ptr()).comm()) };
    // SAFETY: the PML is entered.
    if unsafe { communicator.places() }.is_none() {
        return Some(of);
    }
    // SAFETY: this function's rule.
    unsafe { send_counted(pml, state, (communicator, request), of, may_be_written) }
}

/// # Safety
/// As for [`send`].
#[cold]
#[inline(never)]
unsafe fn send_counted(
    pml: &Pml,
    state: &mut State,
    (communicator, request): (&Communicator, NonNull<Request>),
    of: Match,
    may_be_written: bool,
) -> Option<Match> {
    // SAFETY: this function's rule.
    let r = unsafe { &mut *request.as_ptr() };
    // SAFETY: the PML is entered, and nothing else has them.
    let places = unsafe { communicator.places() }?;
    let Some(peer) = places.to.get_mut(&r.peer) else { return Some(of) };
    let mut registered = None;
    let going = peer.accepted.send(of.tag, |place| {
        if may_be_written && r.extent.length as u64 <= place.length {
            // SAFETY: the user's buffer, until the send is finished (M3).
            registered = unsafe { register(pml, r.link, r.extent) };
        }
        registered.is_some()
    });
    match (going, registered) {
        (Going::Placed(id, place), Some(registered)) => {
            peer.unplaced = 0;
            // SAFETY: this function's rule; an accepted offer, used up now.
            unsafe { write(pml, state, request, (id, of.context), (place, registered)) };
            None
        }
        (Going::Unplaced { is_counted }, _) => {
            peer.unplaced = peer.unplaced.saturating_add(1);
            if peer.unplaced >= MOST_UNPLACED && peer.accepted.stop() {
                // The next message takes the mark away.
                places.to.remove(&r.peer);
            }
            Some(Match { is_counted, ..of })
        }
        (Going::Placed(..), None) => unreachable!("it is placed only if it is registered"),
    }
}

/// # Safety
/// The user's buffer, until the send is finished (M3).
unsafe fn register(pml: &Pml, link: Link, Extent { start, length }: Extent) -> Option<Registered> {
    let start = NonNull::new(start)?;
    let memory = pml.rails().get(link.rail())?.port().memory();
    // As an announcement registers it, so that the cache has one for both.
    let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
    // SAFETY: this function's rule.
    unsafe { memory.register(start.as_ptr().cast(), length, access) }
}

/// Writes a message to a place, and says so.
///
/// # Safety
/// As for [`send`]; the place is as long, and the request's memory is registered.
unsafe fn write(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    (id, context): (OfferId, u32),
    (place, registered): (Memory, Registered),
) {
    // SAFETY: this function's rule.
    let r = unsafe { &mut *request.as_ptr() };
    // SAFETY: as above.
    unsafe {
        let how = (Protocol::ReceiverFirst, Reason::Offered);
        watch::begins_by(r, |r| Some(passage::by(pml, r.link, how, 1)));
    }
    let (link, Extent { start, length }) = (r.link, r.extent);
    r.transfer = Transfer::Placing { registered: Some(registered), is_header_waiting: false };
    let port = pml.rails().get(link.rail()).and_then(Rail::enter);
    let Some(mut port) = port else {
        transmit::failed(state);
        return;
    };
    let remote = RemoteSpan { addr: place.address, rkey: place.key };
    // SAFETY: registered under that key until the write is done (R3), and the user's as long (M3, R2).
    let local = unsafe { LocalSpan::new(start.expose_provenance() as u64, length as u32, registered.lkey()) };
    let header = Header::Placed { id, context, length: length as u32 }.encode();
    if port.put(link.to(), local, remote, token::written(request)).is_err() {
        transmit::failed(state);
        return;
    }
    add_shared(&state.flow.shown.placed, 1);
    // SAFETY: no bytes.
    if unsafe { transmit::inline_apart(&mut port, link, header.as_slice(), Extent::EMPTY) } {
        return;
    }
    let bytes = header.as_slice();
    match transmit::queue(&mut port, link, (Arc::from(bytes), bytes.len() as u32), token::sent(request)) {
        Transmitted::Failed => _ = transmit::failed(state),
        _ => r.transfer = Transfer::Placing { registered: Some(registered), is_header_waiting: true },
    }
}

/// A message has been written.
///
/// # Safety
/// It was this request's.
pub(crate) unsafe fn written(pml: &Pml, state: &mut State, request: NonNull<Request>, outcome: Result<(), Failed>) {
    // SAFETY: this function's rule.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Placing { registered, is_header_waiting } = &mut r.transfer else { return };
    if outcome.is_err() {
        transmit::failed(state);
        return;
    }
    let (registered, is_header_waiting) = (registered.take(), *is_header_waiting);
    if let (Some(registered), Some(rail)) = (registered, pml.rails().get(r.link.rail())) {
        // SAFETY: the write is done.
        unsafe { rail.port().memory().put_back(registered) };
    }
    if !is_header_waiting {
        // SAFETY: this function's rule; nothing of it is under way.
        unsafe { ended(state, request) };
    }
}

/// The header of a message that is written has gone.
///
/// # Safety
/// It was this request's.
pub(crate) unsafe fn header_sent(state: &mut State, request: NonNull<Request>) {
    // SAFETY: this function's rule.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Placing { registered, is_header_waiting } = &mut r.transfer else { return };
    *is_header_waiting = false;
    if registered.is_none() {
        // SAFETY: this function's rule; nothing of it is under way.
        unsafe { ended(state, request) };
    }
}

/// # Safety
/// A send of which nothing is under way.
unsafe fn ended(state: &mut State, request: NonNull<Request>) {
    // SAFETY: this function's rule.
    unsafe {
        let r = &mut *request.as_ptr();
        r.transfer = Transfer::None;
        watch::ends(r);
        finish(state, request);
    }
}

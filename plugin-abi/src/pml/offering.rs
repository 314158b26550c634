// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver first, the receiver's side: a blocking receive that has waited for a while tells its sender where to write.
//!
//! The rules are `engine::protocol::place`'s; what is offered here is less than they permit. Only a blocking receive,
//! which cannot be cancelled; only one that no other was posted before in its communicator, so that nothing holds it
//! back; with a known source and tag; for more than goes at once and into memory of one piece; where there is one port,
//! one thread, and no tool that listens. So at most one receive of a communicator is offered at a time. It is offered
//! when it has waited for a pause of its wait loop: who has its message sooner pays nothing, and a receive that waits
//! for the answer to what its process has just sent mostly has.
//!
//! With one port a connection that is lost ends the job, so that no offer outlives one.
//!
//! Called by `receive` and `incoming`. Grade: pending. Threads: who has entered the PML. Tests: `receiver_first.c` in
//! `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::matching::Envelope;
use engine::protocol::header::{Header, Match, Memory};
use engine::protocol::place::{Offer, OfferId, Refused};
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::finish::{Outcome, finish, note};
use super::instance::{Pml, Rail, State};
use super::link::Link;
use super::places::{Current, FromPeer, LONGEST, Offers};
use super::request::Request;
use super::{peer, routing, transmit};
use crate::runtime::memory::Registered;

/// A receive that was offered.
pub(crate) struct Offering {
    request: NonNull<Request>,
    link: Link,
    context: u32,
    registered: Registered,
}

/// Offers a receive that has waited for a pause, if it is one that may be, and is due.
///
/// # Safety
/// A receive of a blocking call's, in a live communicator, that was posted. Its memory is its caller's until [`end`].
pub(crate) unsafe fn begin(pml: &Pml, state: &mut State, request: NonNull<Request>) -> Option<Offering> {
    // SAFETY: this function's rule.
    let r = unsafe { request.as_ref() };
    // SAFETY: a live communicator.
    let communicator = unsafe { Communicator::of(r.comm()) };
    // SAFETY: the PML is entered.
    let envelope = unsafe { communicator.pattern_of_first(request) }?.as_exact()?;
    // SAFETY: as above.
    let link = unsafe { link_to(state, communicator, envelope) }?;
    if r.extent.length <= transmit::eager_limit(pml, link)? {
        return None;
    }
    let start = NonNull::new(r.extent.start)?;
    // SAFETY: the PML is entered, and nothing else has them.
    let from = unsafe { communicator.make_places() }.from.entry(link).or_default();
    let rail = pml.rails().first()?;
    let is_due = pml.offers == Offers::Always || from.wasted.is_due();
    if from.current.is_some() || !is_due || !rail.enter()?.has_room(link.to()) {
        return None;
    }
    let length = r.extent.length.min(LONGEST);
    let access = sys::MCA_RCACHE_ACCESS_REMOTE_WRITE | sys::MCA_RCACHE_ACCESS_LOCAL_WRITE;
    // SAFETY: this function's rule (M3).
    let registered = unsafe { rail.port().memory().register(start.as_ptr().cast(), length, access) }?;
    let address = start.as_ptr().expose_provenance() as u64;
    let place = Memory { key: registered.rkey(), address, length: length as u64 };
    let Some(offer) = from.offered.offer(envelope.tag(), true, place, request, &mut state.places.ids) else {
        // SAFETY: nobody was told of it.
        unsafe { put_back(rail, registered) };
        return None;
    };
    from.source = envelope.source();
    from.current = Some(Current { request, id: offer.id, place, may_repeat: true });
    say(pml, state, communicator, link, &offer);
    Some(Offering { request, link, context: communicator.context, registered })
}

/// How the sender is reached by the port, if it was looked for.
///
/// # Safety
/// A live communicator.
unsafe fn link_to(state: &State, communicator: &Communicator, envelope: Envelope) -> Option<Link> {
    let link = match communicator.link(envelope.source()) {
        // SAFETY: this function's rule.
        Link::UNKNOWN => unsafe { peer::known(state, communicator.comm, envelope.source()) }?,
        link => link.unmarked(),
    };
    link.is_of_only().then_some(link)
}

fn say(pml: &Pml, state: &mut State, communicator: &Communicator, link: Link, offer: &Offer<Memory>) {
    let Offer { id, epoch, after, tag, place } = *offer;
    let at = Match { context: communicator.context, rank: communicator.rank, tag, number: None, is_counted: false };
    routing::control(pml, state, link, &Header::Place { at, id, epoch, after, memory: place });
}

/// # Safety
/// Nobody writes there any more.
unsafe fn put_back(rail: &Rail, registered: Registered) {
    // SAFETY: this function's rule; put back once.
    unsafe { rail.port().memory().put_back(registered) };
}

/// A receive that was offered is finished: it was written to, or has a message that came as ever (rule M).
///
/// # Safety
/// It is finished. No place is written to after its receive has gone (`engine::protocol::place`).
pub(crate) unsafe fn end(pml: &Pml, state: &mut State, offering: &Offering) {
    let Offering { request, link, context, registered } = *offering;
    if let Some(from) = of(state, context, link)
        && let Some(current) = from.current.take_if(|current| current.request == request)
    {
        from.offered.end(current.id);
        from.wasted.note(false);
    }
    if let Some(rail) = pml.rails().first() {
        // SAFETY: this function's rule.
        unsafe { put_back(rail, registered) };
    }
}

/// What was offered to a peer in a communicator.
fn of<'entered>(state: &State, context: u32, link: Link) -> Option<&'entered mut FromPeer> {
    let communicator = state.contexts.get(context)?;
    // SAFETY: in the table, so alive; the PML is entered, as the caller has its state, and nobody has another
    // reference.
    unsafe { communicator.as_ref().places() }?.from.get_mut(&link)
}

/// A message has come that says that it is counted.
pub(crate) fn counted(state: &State, context: u32, link: Link) {
    if let Some(from) = of(state, context, link) {
        from.offered.count();
    }
}

/// A message was written to a place.
pub(crate) fn placed(state: &mut State, link: Link, (id, context): (OfferId, u32), length: u32) {
    let Some(communicator) = state.contexts.get(context).copied() else { return };
    // SAFETY: in the table, so alive.
    let communicator = unsafe { communicator.as_ref() };
    let Some(from) = of(state, context, link) else { return };
    // An offer that is outstanding is the current one, and its receive is posted, unless its sender errs.
    let Some(current) = from.current.take_if(|current| current.id == id) else { return };
    let Some(offer) = from.offered.end(id) else { return };
    from.wasted.note(true);
    let source = from.source;
    // SAFETY: the PML is entered.
    if unsafe { communicator.take_first(current.request) } {
        // SAFETY: posted until now; all its bytes are there, as they were written before this header was sent on the
        // same queue pair.
        unsafe {
            note(offer.request, &Outcome { source, tag: offer.tag, length: length as usize, error: sys::OPAL_SUCCESS });
            finish(state, offer.request);
        }
    }
}

/// An offer is void, as are those made after it. The receive that is offered now, if that is void and waits, is offered
/// again, but once.
pub(crate) fn refused(pml: &Pml, state: &mut State, link: Link, refused: Refused, context: u32) {
    let Some(communicator) = state.contexts.get(context).copied() else { return };
    // SAFETY: in the table, so alive.
    let communicator = unsafe { communicator.as_ref() };
    let Some(from) = of(state, context, link) else { return };
    let void = from.offered.refused(refused);
    let Some(Current { request, id, place, may_repeat: true }) = from.current else { return };
    let Some(void) = void.iter().find(|offer| offer.id == id) else { return };
    // SAFETY: the PML is entered.
    if unsafe { communicator.pattern_of_first(request) }.is_none() {
        return;
    }
    if let Some(offer) = from.offered.offer(void.tag, true, place, request, &mut state.places.ids) {
        from.current = Some(Current { request, id: offer.id, place, may_repeat: false });
        say(pml, state, communicator, link, &offer);
    }
}

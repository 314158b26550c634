// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes the messages that arrive for the PML, matches those that begin a send, and keeps those that no receive
//! matches. Ignores messages that are too short or of an unknown kind.
//!
//! Called by `progress`, `failover` and `local` for each message, in order of arrival. Grade: hot for whole messages.
//! Threads: the one that has entered the PML; with a port only in `is_taken` and `is_taken_or_deferred`. Tests:
//! `pml/tests.rs`, and `unexpected_memory.c` and others in `hw-tests/mpi`.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use engine::messenger::header::{EAGER_SIZE, Header, Match};
use engine::messenger::host::{Bytes, Data};
use engine::messenger::matching::Envelope;
use engine::messenger::receive::arrived::{Arrived, Body};
use engine::messenger::receive::delivery;
use engine::messenger::route::Route;
use engine::messenger::{self, flow_control};
use engine::transport::Immediate;

use super::communicator::Communicator;
use super::finish::{note, note_not_put};
use super::instance::{Pml, State};
use super::ports::rails;
use super::request::{Handle, Outcome, Owner};
use super::tools::{path_taken, watch};
use crate::runtime::listeners::{Event, Listeners};
use crate::runtime::token::Tag;

/// A message in a receive slot, or in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'slot> {
    /// The message, header included.
    pub(crate) bytes: &'slot [u8],
    pub(crate) sender: Sender,
}

/// How a message arrived.
#[derive(Clone, Copy)]
pub(crate) struct ByRail {
    pub(crate) rail: usize,
    /// Names the sender; not verified.
    pub(crate) immediate: Immediate,
    pub(crate) qp_num: u32,
}

impl ByRail {
    /// Looks up the sender; `None` if the message came by another queue pair than that of the sender it names.
    pub(crate) fn route(self, pml: &Pml) -> Option<Route> {
        let port = pml.rails().get(self.rail)?.enter()?;
        Some(Route::new(self.rail, port.sender(self.immediate, self.qp_num)?))
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Sender {
    /// [`ByRail::route`] looks the sender up.
    ByRail(ByRail),
    /// May be [`Route::UNKNOWN`].
    Known(Route),
}

impl Incoming<'_> {
    /// Returns the route for an answer; `None` as in [`ByRail::route`].
    pub(crate) fn sender(&self, pml: &Pml) -> Option<Route> {
        match self.sender {
            Sender::ByRail(by) => by.route(pml),
            Sender::Known(route) => Some(route),
        }
    }
}

/// Returns the bytes of a message in a receive slot, header included.
///
/// # Safety
/// R1, R2: the slot is the PML's while the returned slice is used.
#[inline(always)]
pub(crate) unsafe fn bytes_of<'slot>(arrived: engine::transport::Arrived) -> &'slot [u8] {
    let start = std::ptr::with_exposed_provenance(arrived.addr as usize);
    // SAFETY: R1: the adapter has filled the slot, and does not write to it before its release, which is later.
    unsafe { std::slice::from_raw_parts(start, arrived.len as usize) }
}

/// Delivers a whole message in place, while the port is entered, if a receive is posted for it. Returns whether it did.
#[inline(always)]
pub(crate) unsafe fn is_taken(state: &mut State, arrived: engine::transport::Arrived) -> bool {
    // SAFETY: R1, R2: the bytes may be read, as this function requires.
    arrived.immediate.tag() == Tag::PML.0 && is_taken_whole(state, unsafe { bytes_of(arrived) })
}

/// [`is_taken`] for a message of the PML.
#[inline(always)]
pub(crate) fn is_taken_whole(state: &mut State, bytes: &[u8]) -> bool {
    let Some((header, bytes)) = bytes.split_first_chunk::<EAGER_SIZE>() else { return false };
    let Some(of) = Match::from_eager(header) else { return false };
    let Some(communicator) = state.contexts.get(of.context).copied() else { return false };
    let envelope = Envelope::new(of.rank, of.tag);
    // SAFETY: P1: in `state.contexts`, so alive.
    let Some(request) = (unsafe { communicator.as_ref() }).take_posted(state, envelope) else { return false };
    delivery::whole::<_, false>(state, request, envelope, bytes);
    true
}

/// A short message, copied out of its slot while the port is entered; its listeners are called after the port is left.
pub(crate) struct Deferred {
    communicator: NonNull<Communicator>,
    envelope: Envelope,
    length: usize,
    bytes: MaybeUninit<[u8; MAX_DEFERRED]>,
}

/// Longest data that is deferred, bytes.
const MAX_DEFERRED: usize = 64;

/// [`is_taken`] while a tool listens. Also copies to `deferred` the first short message that matches the first receive
/// of a communicator with listeners, for [`deliver_deferred`].
#[inline(always)]
pub(crate) unsafe fn is_taken_or_deferred(
    state: &mut State,
    arrived: engine::transport::Arrived,
    deferred: &mut Option<Deferred>,
) -> bool {
    if arrived.immediate.tag() != Tag::PML.0 {
        return false;
    }
    // SAFETY: R1, R2: the bytes may be read, as this function requires.
    let bytes = unsafe { bytes_of(arrived) };
    let Some((header, bytes)) = bytes.split_first_chunk::<EAGER_SIZE>() else { return false };
    let Some(of) = Match::from_eager(header) else { return false };
    let Some(communicator) = state.contexts.get(of.context).copied() else { return false };
    let (envelope, length) = (Envelope::new(of.rank, of.tag), bytes.len());
    // SAFETY: P1: in `state.contexts`, so alive.
    let receiver = unsafe { communicator.as_ref() };
    if length <= MAX_DEFERRED && deferred.is_none() && receiver.is_for_first_watched(state, envelope) {
        let message = deferred.insert(Deferred { communicator, envelope, length, bytes: MaybeUninit::uninit() });
        // SAFETY: `message.bytes` has room for `MAX_DEFERRED` bytes.
        unsafe { message.bytes.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length) };
        return true;
    }
    let Some(request) = receiver.take_posted(state, envelope) else { return false };
    delivery::whole::<_, false>(state, request, envelope, bytes);
    true
}

/// Delivers a message that was deferred.
///
/// # Safety
/// P3: the PML was entered without a break since then, so the communicator is still in `state.contexts`.
#[inline(always)]
pub(crate) unsafe fn deliver_deferred(pml: &Pml, state: &mut State, deferred: &Deferred) {
    let Deferred { communicator, envelope, length, .. } = *deferred;
    // SAFETY: P1: in `state.contexts`, so alive; P3. `length` bytes were deferred.
    let (communicator, listeners, bytes) = unsafe {
        let (communicator, bytes) = (communicator.as_ref(), deferred.bytes.as_ptr().cast::<u8>());
        (communicator, Listeners::of(communicator.comm), std::slice::from_raw_parts(bytes, length))
    };
    let taken = match listeners {
        Some(listeners) => {
            let (of, from) = ((communicator, envelope), Route::UNKNOWN);
            let how = |state: &mut State, _| Some(path_taken::came_whole(pml, state, of, from, (EAGER_SIZE, length)));
            let told = (how, |_: &mut State| {});
            watch::take_posted_watched(state, listeners, communicator, envelope, (length, length), told)
        }
        // A callback has removed the last listener meanwhile.
        None => communicator.take_posted_watched(state, envelope).ok_or(0),
    };
    match (taken, listeners) {
        (Ok(request), Some(listeners)) if is_of_watched_call(state, request, length) => {
            whole_watched(state, listeners, request, envelope, bytes);
        }
        (Ok(request), _) => delivery::whole::<_, true>(state, request, envelope, bytes),
        (Err(id), _) => {
            let message = Arrived { from: Route::UNKNOWN, id, body: Body::copy(bytes) };
            keep(pml, state, communicator, (envelope, message), || Some(Route::UNKNOWN));
        }
    }
}

#[inline(always)]
fn is_of_watched_call(state: &mut State, request: Handle, length: usize) -> bool {
    let request = state.requests.get(request);
    request.shell.owner == Owner::WatchedCall && length <= request.core.data.length()
}

/// Delivers a whole message to the receive of a blocking call, which has room for it, while a tool listens to its
/// communicator.
#[inline(always)]
fn whole_watched(state: &mut State, listeners: &Listeners, request: Handle, envelope: Envelope, bytes: &[u8]) {
    note(state.requests.get(request), &Outcome::new(envelope, bytes.len(), bytes.len()));
    watch::told(state, listeners, request, Event::XferBegin);
    watch::told_moved(state, listeners, request, Event::XferBegin, Bytes::All.completed());
    let r = state.requests.get(request);
    if !r.core.data.put(bytes) {
        note_not_put(r);
    }
    watch::told(state, listeners, request, Event::XferEnd);
    watch::told_moved(state, listeners, request, Event::XferEnd, Bytes::None.completed());
    watch::told(state, listeners, request, Event::Complete);
    state.requests.get(request).set_finished(true);
}

#[inline(never)]
pub(crate) fn message(pml: &Pml, state: &mut State, incoming: Incoming<'_>) {
    if let Some(message) = Header::decode(incoming.bytes) {
        messenger::receive::handle(pml, state, message, || incoming.sender(pml));
    }
}

/// Delivers a whole message to its receive, or stores it; `sender` looks up its sender's route.
pub(crate) fn whole(pml: &Pml, state: &mut State, of: Match, bytes: &[u8], sender: impl Fn() -> Option<Route> + Copy) {
    let envelope = Envelope::new(of.rank, of.tag);
    let kept = |from, id| Arrived { from, id, body: Body::copy(bytes) };
    let Some(communicator) = state.contexts.get(of.context).copied() else {
        return keep_early(pml, state, of.context, (envelope, kept(Route::UNKNOWN, 0)), sender);
    };
    // SAFETY: P1: in `state.contexts`, so alive.
    let communicator = unsafe { communicator.as_ref() };
    let mut from = Route::UNKNOWN;
    let of = (communicator, envelope);
    let how = |state: &mut State, _| {
        Some(path_taken::came_whole(pml, state, of, sender().unwrap_or(Route::UNKNOWN), (EAGER_SIZE, bytes.len())))
    };
    // With several ports, the event of an unexpected message names the route by which it came.
    let keeping = |_: &mut State| from = sender().unwrap_or(Route::UNKNOWN);
    match watch::take_posted(state, communicator, envelope, (bytes.len(), bytes.len()), (how, keeping)) {
        Ok(request) => delivery::whole::<_, true>(state, request, envelope, bytes),
        Err(id) => keep(pml, state, communicator, (envelope, kept(from, id)), sender),
    }
}

pub(crate) fn deliver(pml: &Pml, state: &mut State, context: u32, envelope: Envelope, message: Arrived) {
    let from = message.from;
    let sender = || Some(from);
    let Some(communicator) = state.contexts.get(context).copied() else {
        return keep_early(pml, state, context, (envelope, message), sender);
    };
    // SAFETY: P1: in `state.contexts`, so alive.
    let communicator = unsafe { communicator.as_ref() };
    let how = |state: &mut State, receive| path_taken::came(pml, state, (communicator, envelope), &message, receive);
    match watch::take_posted(state, communicator, envelope, message.lengths(), (how, |_: &mut State| {})) {
        Ok(request) => delivery::arrived(pml, state, request, envelope, message),
        Err(id) => keep(pml, state, communicator, (envelope, Arrived { id, ..message }), sender),
    }
}

/// Stores a message that no receive matched. If `sender` returns [`Route::UNKNOWN`] (shared memory, or stored early),
/// looks the rank up in the communicator.
pub(crate) fn keep(
    pml: &Pml,
    state: &mut State,
    communicator: &Communicator,
    (envelope, message): (Envelope, Arrived),
    sender: impl FnOnce() -> Option<Route>,
) {
    flow_control::keep(pml, state, &message, |state| match sender()? {
        // SAFETY: P1: `communicator` is alive, so Open MPI's is.
        Route::UNKNOWN => unsafe { rails::known(state, communicator.comm, envelope.source()) },
        from => Some(from),
    });
    watch::insert_unexpected(state, communicator, envelope, message);
    if communicator.has_posted(state) {
        flow_control::found_nothing(pml, state, communicator.context);
    }
}

/// Stores a message whose communicator this process has not added yet. Without the communicator it cannot look up, and
/// so not hold back, an unknown sender.
#[cold]
fn keep_early(
    pml: &Pml,
    state: &mut State,
    context: u32,
    (envelope, message): (Envelope, Arrived),
    sender: impl FnOnce() -> Option<Route>,
) {
    flow_control::keep(pml, state, &message, |_| sender().filter(|from| *from != Route::UNKNOWN));
    state.contexts.keep(context, (envelope, message));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short messages to a communicator that a tool listens to, in the poll of a blocking receive: they are copied while
//! their port is entered ([`defer`]), and delivered, with their events, once it is left ([`deliver`]).
//!
//! Called by `progress`. Grade: hot for a watched message. Threads: the one that has entered the PML. Tests:
//! `pml/tests.rs`, and `mpi_t_matching.c` in `hw-tests/tools`.

use std::mem::MaybeUninit;

use engine::messenger::host::{Bytes, Communicators, Data};
use engine::messenger::matching::Envelope;
use engine::messenger::receive::arrived::{Arrival, Arrived, Body};
use engine::messenger::receive::{delivery, search};
use engine::messenger::route::Route;

use super::watch;
use crate::pml::communicator::Communicator;
use crate::pml::host::{note, note_not_put};
use crate::pml::instance::{Pml, State};
use crate::pml::request::{Handle, Outcome, Owner};
use crate::runtime::listeners::{Event, Listeners};

/// A short message, copied out of its slot while the port is entered; its listeners are called after the port is left.
pub(crate) struct Deferred {
    communicator: &'static Communicator,
    envelope: Envelope,
    length: usize,
    bytes: MaybeUninit<[u8; MAX_DEFERRED]>,
}

/// Longest data that is deferred, bytes.
const MAX_DEFERRED: usize = 64;

/// Copies a short message that matches the first receive of a communicator with listeners to `deferred`, unless another
/// one is there, for [`deliver`]. Returns whether it did.
#[inline(always)]
pub(crate) fn defer(
    state: &mut State,
    deferred: &mut Option<Deferred>,
    (communicator, envelope): (&'static Communicator, Envelope),
    bytes: &[u8],
) -> bool {
    let length = bytes.len();
    if length > MAX_DEFERRED || deferred.is_some() || !state.queues(communicator).0.is_for_told(envelope) {
        return false;
    }
    let message = deferred.insert(Deferred { communicator, envelope, length, bytes: MaybeUninit::uninit() });
    // SAFETY: `message.bytes` has room for `MAX_DEFERRED` bytes.
    unsafe { message.bytes.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length) };
    true
}

/// Delivers a message that was deferred.
///
/// # Safety
/// P3: the PML was entered without a break since then, so the communicator is still there (P1).
#[inline(always)]
pub(crate) unsafe fn deliver(pml: &Pml, state: &mut State, deferred: &Deferred) {
    let Deferred { communicator, envelope, length, .. } = *deferred;
    // SAFETY: P1: `communicator` is alive; P3. `length` bytes were deferred.
    let (listeners, bytes) = unsafe {
        (communicator.comm.listeners(state), std::slice::from_raw_parts(deferred.bytes.as_ptr().cast::<u8>(), length))
    };
    let of = (communicator, envelope);
    let arrival = Arrival { from: Route::UNKNOWN, length, message: None };
    // Without listeners, a callback has removed the last one meanwhile.
    match (search::posted(pml, state, listeners, of, &arrival), listeners) {
        (Ok(request), Some(listeners)) if is_of_watched_call(state, request, length) => {
            whole_watched(state, listeners, request, envelope, bytes);
        }
        (Ok(request), _) => delivery::whole::<_, true>(state, request, envelope, bytes),
        (Err(id), _) => {
            let message = Arrived { from: Route::UNKNOWN, id, body: Body::copy(bytes) };
            search::store(pml, state, of, message, || Some(Route::UNKNOWN));
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

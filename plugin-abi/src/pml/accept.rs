// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers a message to the receive that it matches: copies its data, or begins its transfer.
//!
//! Sets the receive's status: `MPI_ERR_TRUNCATE` and the whole length if the message is too long, `MPI_ERR_INTERN` if
//! its data cannot be unpacked. Called by `receive` and `incoming`. Grade: hot for whole messages. Threads: the one
//! that has entered the PML. Tests: `pt2pt_truncation.c` and others in `hw-tests/mpi`, `device/local.rs` in `hw-tests`.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use engine::messenger::arrived::{Arrived, Body};
use engine::messenger::flow_control;
use engine::messenger::header::{Header, Memory, PortKey};
use engine::messenger::host::{Bytes, Data, Host};
use engine::messenger::link::Link;
use engine::messenger::matching::Envelope;
use engine::messenger::oneself;
use engine::messenger::passage::{Protocol, Reason};
use engine::messenger::rendezvous::{Step, fragments};
use engine::messenger::transfer_id::TransferId;
use ibex_ffi::openmpi::sys;

use super::finish::{finish, note, note_not_put};
use super::handle::Handle;
use super::instance::{Pml, State, pml};
use super::request::{Outcome, Request, Transfer};
use super::{flight, reading, routing, watch};
use crate::runtime::guard::fence;
use crate::runtime::listeners::{Event, Listeners};

/// Delivers a whole message to a receive. `TOLD`: raises events.
#[inline(always)]
pub(crate) fn whole<const TOLD: bool>(state: &mut State, request: Handle, envelope: Envelope, bytes: &[u8]) {
    if bytes.len() > state.requests.core(request).data.length() {
        return truncated::<TOLD>(state, request, envelope, bytes);
    }
    put::<TOLD>(state, request, envelope, bytes);
}

#[cold]
#[inline(never)]
fn truncated<const TOLD: bool>(state: &mut State, request: Handle, envelope: Envelope, bytes: &[u8]) {
    put::<TOLD>(state, request, envelope, bytes);
}

/// Copies a message to the user's buffer, as far as that has room, and finishes the receive.
#[inline(always)]
fn put<const TOLD: bool>(state: &mut State, request: Handle, envelope: Envelope, bytes: &[u8]) {
    let r = state.requests.get(request);
    let outcome = Outcome::new(envelope, bytes.len(), r.core.data.length());
    note(r, &outcome);
    if TOLD {
        watch::begins(state, request, Bytes::All.completed());
    }
    let r = state.requests.get(request);
    if !r.core.data.put(bytes) {
        note_not_put(r);
    }
    if TOLD {
        watch::ends(state, request, Bytes::None.completed());
    }
    finish(state, request);
}

/// [`whole`] for the receive of a blocking call that has room for the message, while a tool listens to its communicator.
#[inline(always)]
pub(crate) fn whole_watched(
    state: &mut State,
    listeners: &Listeners,
    request: Handle,
    envelope: Envelope,
    bytes: &[u8],
) {
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

/// Begins the transfer of an announced message to a receive.
pub(crate) fn announced(
    pml: &Pml,
    state: &mut State,
    request: Handle,
    envelope: Envelope,
    (from, sender): (Link, TransferId),
    (memory, keys): (Memory, &[PortKey]),
) {
    if from == Link::ONESELF {
        return oneself::receive(state, request, envelope, sender);
    }
    let (r, length) = (state.requests.get(request), memory.length as usize);
    let (room, is_contiguous) = (r.core.data.length(), r.core.data.is_contiguous());
    note(r, &Outcome::new(envelope, length, room));
    let wanted = memory.length.min(room as u64);
    if wanted == 0 {
        watch::begins(state, request, Bytes::All.completed());
        watch::ends(state, request, Bytes::None.completed());
        routing::control(pml, state, from, &Header::Finished { request: sender.0, length: 0 });
        return finish(state, request);
    }
    flight::note(state, request, &Step::Begins(sender, wanted));
    let mut why = Reason::Gaps;
    if memory.address != 0 && is_contiguous {
        let message = (from, sender, memory);
        let is_read = if from.as_local().is_some() {
            get(pml, state, request, message, wanted)
        } else {
            reading::begin(pml, state, request, message, (keys, wanted))
        };
        if is_read {
            return;
        }
        why = Reason::NotRegistered;
        // A message by shared memory has the same passage with and without CMA, and the match has reported it.
        if from.as_local().is_none() {
            state.goes_by_link(pml, request, from, (Protocol::Fragments, why));
        }
    }
    fragments::ask(pml, state, request, (from, sender), (wanted, why.code()));
}

/// Delivers an unexpected message to a receive.
pub(crate) fn unexpected(pml: &Pml, state: &mut State, request: Handle, envelope: Envelope, message: Arrived) {
    flow_control::give_up(pml, state, &message);
    arrived(pml, state, request, envelope, message);
}

/// Delivers a decoded message to a receive.
pub(crate) fn arrived(pml: &Pml, state: &mut State, request: Handle, envelope: Envelope, message: Arrived) {
    let Arrived { from, body, .. } = message;
    match body {
        Body::Short(length, bytes) => whole::<true>(state, request, envelope, &bytes[..usize::from(length)]),
        Body::Whole(bytes) => whole::<true>(state, request, envelope, &bytes),
        Body::Synchronous(bytes, sender) => {
            routing::control(pml, state, from, &Header::Acknowledge { request: sender.0 });
            whole::<true>(state, request, envelope, &bytes);
        }
        Body::Announced(sender, memory) => announced(pml, state, request, envelope, (from, sender), (memory, &[])),
        Body::AnnouncedKeyed(sender, memory, keys) => {
            announced(pml, state, request, envelope, (from, sender), (memory, &keys));
        }
    }
}

/// Begins a single-copy read within the host: the shared-memory BTL reads the first `wanted` bytes (at least 1) of a
/// message from the sender's memory to the contiguous buffer of a receive, mostly within the call. Returns false if the
/// BTL cannot.
fn get(
    pml: &Pml,
    state: &mut State,
    request: Handle,
    (link, sender, memory): (Link, TransferId, Memory),
    wanted: u64,
) -> bool {
    let (Some(shared), Some(from)) = (pml.shared_memory(), link.as_local()) else { return false };
    let core = state.requests.core(request);
    core.link = link;
    core.transfer = Transfer::Getting(sender, wanted);
    let (to, data) = ((core.data.extent().start, wanted as usize), request.pointer().as_ptr().cast());
    watch::begins(state, request, Bytes::None.posted());
    // SAFETY: P2: the BTL writes the memory until it calls `got`, and the receive is finished only there.
    let is_begun = pml.within(state, || unsafe { shared.get(from, to, memory.address, Some(got), data) });
    if !is_begun {
        // The BTL does not call `got` if it reads nothing.
        state.requests.core(request).transfer = Transfer::None;
    }
    is_begun
}

/// `mca_btl_base_rdma_completion_fn_t`: the BTL has read the message, or has failed to.
unsafe extern "C" fn got(
    _btl: *mut sys::mca_btl_base_module_t,
    _endpoint: *mut sys::mca_btl_base_endpoint_t,
    _to: *mut c_void,
    _handle: *mut sys::mca_btl_base_registration_handle_t,
    _context: *mut c_void,
    data: *mut c_void,
    status: c_int,
) {
    fence("the end of a read", (), || {
        let (Some(pml), Some(request)) = (pml(), NonNull::new(data.cast::<Request>())) else { return };
        // SAFETY: P1: `data` is the receive that [`get`] passed to the BTL, which calls this once.
        let request = unsafe { Handle::new(request) };
        pml.with_state(|state| has_got(pml, state, request, status == sys::OPAL_SUCCESS));
    });
}

/// Finishes a receive whose message the BTL has read. If the kernel forbids that, asks for copies.
fn has_got(pml: &Pml, state: &mut State, request: Handle, is_read: bool) {
    let core = state.requests.core(request);
    let (link, &Transfer::Getting(sender, length)) = (core.link, &core.transfer) else { return };
    core.transfer = Transfer::None;
    if is_read {
        watch::ends(state, request, Bytes::Of { offset: 0, length }.posted());
        flight::note(state, request, &Step::Fetched(sender, length));
        routing::control(pml, state, link, &Header::Finished { request: sender.0, length });
        finish(state, request);
    } else {
        fragments::ask(pml, state, request, (link, sender), (length, 0));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers a message to the receive that it matches: copies its data, or begins its transfer.
//!
//! Sets the receive's status: `MPI_ERR_TRUNCATE` and the whole length if the message is too long, `MPI_ERR_INTERN` if
//! its data cannot be unpacked. Called by `receive` and `incoming`. Grade: hot for whole messages. Threads: the one
//! that has entered the PML. Tests: `pt2pt_truncation.c` and others in `hw-tests/mpi`, `device/local.rs` in `hw-tests`.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use engine::messenger::arrived::{Arrived, Body};
use engine::messenger::header::{Header, Memory, PortKey};
use engine::messenger::link::Link;
use engine::messenger::matching::Envelope;
use engine::messenger::transfer_id::TransferId;
use ibex_ffi::openmpi::sys;

use super::finish::{Outcome, finish, note, note_not_put};
use super::flight::Step;
use super::instance::{Pml, State, pml};
use super::passage::{Protocol, Reason};
use super::request::{Request, Transfer};
use super::transfers::Bytes;
use super::{datatype, flight, flow, oneself, passage, pieces, reading, routing, watch};
use crate::runtime::guard::fence;
use crate::runtime::listeners::{Event, Listeners};

/// Delivers a whole message to a receive. `TOLD`: raises events.
#[inline(always)]
pub(crate) unsafe fn whole<const TOLD: bool>(
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    from: *const u8,
    length: usize,
) {
    // SAFETY: P1: the receive is matched and not finished; P3.
    let room = unsafe { request.as_ref() }.core.extent.length;
    if length > room {
        // SAFETY: P1: the receive is matched and not finished; `from` has `length` bytes, as this function requires.
        return unsafe { truncated::<TOLD>(state, request, envelope, from, length) };
    }
    let outcome = Outcome { source: envelope.source(), tag: envelope.tag(), length, error: sys::OPAL_SUCCESS };
    // SAFETY: P1: the receive is matched and not finished, and has room; `from` has `length` bytes.
    unsafe { put::<TOLD>(state, request, &outcome, from, length) };
}

#[cold]
#[inline(never)]
unsafe fn truncated<const TOLD: bool>(
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    from: *const u8,
    length: usize,
) {
    let error = sys::MPI_ERR_TRUNCATE as i32;
    let outcome = Outcome { source: envelope.source(), tag: envelope.tag(), length, error };
    // SAFETY: P1: the receive is matched and not finished; P3. `from` has more bytes than `room`.
    unsafe {
        let room = request.as_ref().core.extent.length;
        put::<TOLD>(state, request, &outcome, from, room);
    }
}

/// Copies the first `wanted` bytes of a message to the user's buffer, and finishes the receive.
///
/// # Safety
/// P1: the message matches this receive, which has room for `wanted` bytes. They may be read at `from`.
#[inline(always)]
unsafe fn put<const TOLD: bool>(
    state: &mut State,
    request: NonNull<Request>,
    outcome: &Outcome,
    from: *const u8,
    wanted: usize,
) {
    // SAFETY: P1: the receive is not finished before the call at the end; P2; P3. `from` has `wanted` bytes.
    unsafe {
        let r = &mut *request.as_ptr();
        note(r, outcome);
        if TOLD {
            watch::begins(r, Bytes::All.completed());
        }
        if !datatype::put(&r.core.data, r.core.extent, from, wanted) {
            note_not_put(r);
        }
        if TOLD {
            watch::ends(r, Bytes::None.completed());
        }
        finish(state, request);
    }
}

/// [`whole`] for the receive of a blocking call, while a tool listens.
///
/// # Safety
/// P1: the message matches this receive, which has room for the `length` bytes at `from`; P3. The listeners are those
/// of the receive's communicator.
#[inline(always)]
pub(crate) unsafe fn whole_watched(
    listeners: &Listeners,
    request: NonNull<Request>,
    envelope: Envelope,
    from: *const u8,
    length: usize,
) {
    let outcome = Outcome { source: envelope.source(), tag: envelope.tag(), length, error: sys::OPAL_SUCCESS };
    // SAFETY: P1: the receive is not finished; P2: it has room for the `length` bytes at `from`; P3.
    unsafe {
        let r = &mut *request.as_ptr();
        note(r, &outcome);
        watch::told(listeners, r, Event::XferBegin);
        watch::told_moved(listeners, r, Event::XferBegin, Bytes::All.completed());
        if !datatype::put(&r.core.data, r.core.extent, from, length) {
            note_not_put(r);
        }
        watch::told(listeners, r, Event::XferEnd);
        watch::told_moved(listeners, r, Event::XferEnd, Bytes::None.completed());
        watch::told(listeners, r, Event::Complete);
        r.set_finished(true);
    }
}

/// Begins the transfer of an announced message to a receive.
pub(crate) unsafe fn announced(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    (from, sender): (Link, TransferId),
    (memory, keys): (Memory, &[PortKey]),
) {
    if from == Link::ONESELF {
        // SAFETY: P1: the receive is matched and not finished.
        return unsafe { oneself::receive(state, request, envelope, sender) };
    }
    // SAFETY: P1: the receive is matched and not finished; P3.
    let extent = unsafe {
        note_match(request, envelope, memory.length as usize);
        request.as_ref().core.extent
    };
    let wanted = memory.length.min(extent.length as u64);
    if wanted == 0 {
        // SAFETY: P1: the receive is not finished; P3.
        unsafe {
            watch::begins(&mut *request.as_ptr(), Bytes::All.completed());
            watch::ends(&mut *request.as_ptr(), Bytes::None.completed());
        }
        routing::control(pml, state, from, &Header::Finished { request: sender.0, length: 0 });
        // SAFETY: P1: the receive is not finished, and no data is to come.
        return unsafe { finish(state, request) };
    }
    // SAFETY: P1: the receive is not finished; P3.
    unsafe { flight::note(&mut *request.as_ptr(), &Step::Begins(sender, wanted)) };
    let mut why = Reason::Gaps;
    if memory.address != 0 && !extent.start.is_null() {
        let message = (from, sender, memory);
        // SAFETY: P1: a matched receive into contiguous memory, with no transfer in progress.
        let is_read = unsafe {
            if from.as_local().is_some() {
                get(pml, state, request, message, wanted)
            } else {
                reading::begin(pml, state, request, message, (keys, wanted))
            }
        };
        if is_read {
            return;
        }
        why = Reason::NotRegistered;
        // By shared memory the passage is the same with and without CMA, and the match has reported it.
        if from.as_local().is_none() {
            // SAFETY: P1: the receive is not finished; P3.
            unsafe {
                let how = (Protocol::Pieces, why);
                watch::goes(&mut *request.as_ptr(), |_| Some(passage::by_home(pml, state, from, how)));
            }
        }
    }
    // SAFETY: P1: a matched receive with no transfer in progress.
    unsafe { pieces::ask(pml, state, request, (from, sender), (wanted, passage::code(why))) };
}

/// Delivers an unexpected message to a receive.
pub(crate) unsafe fn unexpected(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    message: Arrived,
) {
    flow::give_up(pml, state, &message);
    // SAFETY: P1: the receive is matched and not finished.
    unsafe { arrived(pml, state, request, envelope, message) };
}

/// Delivers a decoded message to a receive.
pub(crate) unsafe fn arrived(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    envelope: Envelope,
    message: Arrived,
) {
    let Arrived { from, body, .. } = message;
    // SAFETY: P1: the receive is matched and not finished. `message` owns the bytes until this returns.
    unsafe {
        match body {
            Body::Short(length, bytes) => {
                whole::<true>(state, request, envelope, bytes.as_ptr(), usize::from(length));
            }
            Body::Whole(bytes) => whole::<true>(state, request, envelope, bytes.as_ptr(), bytes.len()),
            Body::Synchronous(bytes, sender) => {
                routing::control(pml, state, from, &Header::Acknowledge { request: sender.0 });
                whole::<true>(state, request, envelope, bytes.as_ptr(), bytes.len());
            }
            Body::Announced(sender, memory) => {
                announced(pml, state, request, envelope, (from, sender), (memory, &[]));
            }
            Body::AnnouncedKeyed(sender, memory, keys) => {
                announced(pml, state, request, envelope, (from, sender), (memory, &keys));
            }
        }
    }
}

#[inline(always)]
unsafe fn note_match(request: NonNull<Request>, envelope: Envelope, length: usize) {
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let error = if length > r.core.extent.length { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS };
    note(r, &Outcome { source: envelope.source(), tag: envelope.tag(), length, error });
}

/// Begins a single-copy read within the host: the shared-memory BTL reads the first `wanted` bytes (at least 1) of a
/// message from the sender's memory to the buffer, mostly within the call. Returns false if the BTL cannot.
///
/// # Safety
/// P1: a matched receive into contiguous memory, with no transfer in progress.
unsafe fn get(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    (link, sender, memory): (Link, TransferId, Memory),
    wanted: u64,
) -> bool {
    let (Some(shared), Some(from)) = (pml.shared_memory(), link.as_local()) else { return false };
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    r.core.link = link;
    r.core.transfer = Transfer::Getting { sender, length: wanted };
    let (to, data) = ((r.core.extent.start, wanted as usize), request.as_ptr().cast());
    // SAFETY: P1: the receive is not finished; P3.
    unsafe { watch::begins(r, Bytes::None.posted()) };
    // SAFETY: P2: the BTL writes the memory until it calls `got`, and the receive is finished only there.
    let is_begun = pml.within(state, || unsafe { shared.get(from, to, memory.address, Some(got), data) });
    if !is_begun {
        // SAFETY: P1: the receive is not finished, since `got` is not called if nothing is read; P3.
        unsafe { (*request.as_ptr()).core.transfer = Transfer::None };
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
        pml.with_state(|state| unsafe { has_got(pml, state, request, status == sys::OPAL_SUCCESS) });
    });
}

/// Finishes a receive whose message the BTL has read. If the kernel forbids that, asks for copies.
///
/// # Safety
/// P1: a receive whose transfer is `Getting`.
unsafe fn has_got(pml: &Pml, state: &mut State, request: NonNull<Request>, is_read: bool) {
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Getting { sender, length } = r.core.transfer else { return };
    r.core.transfer = Transfer::None;
    if is_read {
        // SAFETY: P1: the receive is not finished; P3.
        unsafe {
            watch::ends(r, Bytes::Of { offset: 0, length }.posted());
            flight::note(r, &Step::Fetched(sender, length));
        }
        routing::control(pml, state, r.core.link, &Header::Finished { request: sender.0, length });
        // SAFETY: P1: the receive has all the data that it wants, and no transfer in progress.
        unsafe { finish(state, request) };
    } else {
        // SAFETY: P1: a matched receive, now with no transfer in progress.
        unsafe { pieces::ask(pml, state, request, (r.core.link, sender), (length, 0)) };
    }
}

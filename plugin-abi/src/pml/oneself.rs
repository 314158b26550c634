// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a process to itself: copied once, from where they are to where they are wanted, by no adapter.
//!
//! A send that finds its receive posted copies to it. One that does not is kept among the unexpected messages: a short
//! one in standard mode as a copy, so that its sender goes on, as a program may count on that; any other where it is,
//! and its receive copies. They are matched like all others, and no sender of this process is held back: it would wait
//! for itself. Called by `protocol` and `accept`. Grade: pending. Threads: who has entered the PML. Tests:
//! `self_messages.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::matching::Envelope;
use engine::protocol::header::{MAX_SIZE, Memory};
use engine::protocol::transfers::TransferId;
use ibex_ffi::openmpi::sys;

use super::arrived::{Arrived, Body, SHORT};
use super::communicator::Communicator;
use super::datatype::{self, Convertor, Data, Extent};
use super::finish::{Outcome, finish, note, note_not_put};
use super::instance::{Pml, State};
use super::link::Link;
use super::request::{Mode, Request, Role, Transfer};
use super::{passage, transmit, unexpected, watch};

/// Bytes that are copied at a time where there are gaps on both sides.
const PIECE: usize = 32 * 1024;

/// Sends a message to this process.
///
/// # Safety
/// A send of the PML's that is filled in, and the caller's alone until now.
pub(crate) unsafe fn send(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: this function's rule.
    let r = unsafe { &mut *request.as_ptr() };
    r.link = Link::ONESELF;
    // SAFETY: a live communicator.
    let communicator = unsafe { Communicator::of(r.comm()) };
    let envelope = Envelope::new(communicator.rank, r.tag);
    // Before its message arrives, which is at once.
    // SAFETY: a live communicator, as the request is on it; the PML is entered.
    unsafe { watch::begins_by(r, |_| Some(passage::ONESELF)) };
    let told = (|_: &Request| Some(passage::ONESELF), || {});
    // SAFETY: a live communicator, as the request is on it; the PML is entered.
    let id = match unsafe { watch::take_posted(communicator, envelope, r.extent.length, told) } {
        // SAFETY: matched by this message, which nothing was done with.
        Ok(receive) => return unsafe { meet(state, request, receive, envelope) },
        Err(id) => id,
    };
    let longest = pml.rails().first().map_or(0, |rail| rail.eager_limit - MAX_SIZE);
    let is_copied = r.role == Role::Send(Mode::Standard) && r.extent.length <= longest;
    let body = if is_copied {
        // SAFETY: the user's buffer, which is his until the send is finished (M3).
        let Some(body) = (unsafe { copied(&r.data, r.extent) }) else {
            transmit::cannot_pack(state, r.extent.length);
            return;
        };
        body
    } else {
        r.transfer = Transfer::Announced { registered: None, others: Vec::new(), counted: false };
        let memory = Memory { key: 0, address: 0, length: r.extent.length as u64 };
        Body::Announced { sender: state.transfers.begin(request), memory }
    };
    let message = Arrived { from: Link::ONESELF, id, body };
    // SAFETY: as above.
    unsafe { unexpected::insert(pml, state, communicator, (envelope, message), || Some(Link::ONESELF)) };
    if is_copied {
        // SAFETY: not finished, and all of it is kept.
        unsafe {
            watch::ends(&mut *request.as_ptr());
            finish(state, request);
        }
    }
}

/// A message that was kept where it is meets its receive.
///
/// # Safety
/// A receive of the PML's that is matched by it.
pub(crate) unsafe fn receive(state: &mut State, receive: NonNull<Request>, envelope: Envelope, sender: TransferId) {
    let Some(send) = state.transfers.end(sender) else { return };
    // SAFETY: a transfer's request is alive.
    unsafe { (*send.as_ptr()).transfer = Transfer::None };
    // SAFETY: as above; this function's rule.
    unsafe { meet(state, send, receive, envelope) };
}

/// Copies a message to its receive, and finishes both.
///
/// # Safety
/// A send and a receive of the PML's, the latter matched by the former, and nothing of them under way.
unsafe fn meet(state: &mut State, send: NonNull<Request>, receive: NonNull<Request>, envelope: Envelope) {
    // SAFETY: this function's rule; two requests.
    let (s, r) = unsafe { (&mut *send.as_ptr(), &mut *receive.as_ptr()) };
    let (length, room) = (s.extent.length, r.extent.length);
    let error = if length > room { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS };
    // SAFETY: this function's rule. The buffers are the user's, and his until the requests are finished (M3).
    unsafe {
        note(receive, &Outcome { source: envelope.source(), tag: envelope.tag(), length, error });
        watch::begins(r);
        if !copy((&s.data, s.extent), (&r.data, r.extent), length.min(room)) {
            note_not_put(receive);
        }
        watch::ends(s);
        watch::ends(r);
        finish(state, send);
        finish(state, receive);
    }
}

/// What is kept of a short message. `None`: it cannot be packed.
///
/// # Safety
/// `extent` is that of the data, which may be read.
unsafe fn copied(data: &Data, extent: Extent) -> Option<Body> {
    let mut short = [0; SHORT];
    if extent.length <= SHORT {
        let body = |bytes| Body::Short { length: extent.length as u8, bytes };
        // SAFETY: at least as long as the message; this function's rule.
        return unsafe { datatype::take(data, extent, short.as_mut_ptr()) }.then(|| body(short));
    }
    let mut bytes = vec![0; extent.length].into_boxed_slice();
    // SAFETY: as long as the message; this function's rule.
    unsafe { datatype::take(data, extent, bytes.as_mut_ptr()) }.then_some(Body::Whole { bytes })
}

/// Copies the first `length` bytes of a message. False: not all of them.
///
/// # Safety
/// The extents are those of the data, of which the first may be read for so many bytes, and the second written.
unsafe fn copy((from, from_extent): (&Data, Extent), (to, to_extent): (&Data, Extent), length: usize) -> bool {
    if !from_extent.start.is_null() {
        // SAFETY: this function's rule.
        return unsafe { datatype::put(to, to_extent, from_extent.start, length) };
    }
    // SAFETY: as above.
    let Some(mut packing) = (unsafe { Convertor::packing(from) }) else { return false };
    if !to_extent.start.is_null() {
        // SAFETY: as above.
        return unsafe { packing.pack(to_extent.start, length) } == length;
    }
    // SAFETY: as above.
    let Some(mut unpacking) = (unsafe { Convertor::unpacking(to) }) else { return false };
    let mut piece = vec![0; length.min(PIECE)];
    let mut left = length;
    while left > 0 {
        // SAFETY: a buffer of at least so many bytes.
        let packed = unsafe { packing.pack(piece.as_mut_ptr(), left.min(PIECE)) };
        // SAFETY: just filled so far; in order, as the convertor needs it.
        if packed == 0 || !unsafe { unpacking.unpack(piece.as_ptr(), packed) } {
            return false;
        }
        left -= packed;
    }
    true
}

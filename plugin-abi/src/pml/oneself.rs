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

use super::arrived::{self, Arrived, Body, SHORT};
use super::communicator::Communicator;
use super::datatype::{self, Convertor, Data, Extent};
use super::finish::{Outcome, finish, note, note_not_put};
use super::instance::{Pml, State};
use super::link::Link;
use super::request::{Mode, Request, Role, Transfer};
use super::transfers::Bytes;
use super::watch::{self, Came};
use super::{passage, transmit};
use crate::runtime::variables::now;

/// Bytes that are copied at a time where there are gaps on both sides.
const PIECE: usize = 32 * 1024;

/// Sends a message to this process.
///
/// # Safety
/// P1: a send that is filled in, and the caller's alone until now.
pub(crate) unsafe fn send(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: the caller's alone; P3.
    let r = unsafe { &mut *request.as_ptr() };
    r.link = Link::ONESELF;
    // SAFETY: P1: not finished, so its communicator lives; MPI's call has it, so it is the PML's still (P4).
    let communicator = unsafe { Communicator::of(r.comm()) };
    let envelope = Envelope::new(communicator.rank, r.tag);
    // Before its message arrives, which is at once.
    // SAFETY: P1: not finished; P3.
    unsafe { watch::begins_by(r, Bytes::All.posted(), |_| Some(passage::ONESELF)) };
    let told = (|_: &Request| Some(passage::ONESELF), || {});
    // SAFETY: P3; the communicator lives, as the request is of it.
    let id = match unsafe { watch::take_posted(communicator, envelope, Came::whole(r.extent.length), told) } {
        // SAFETY: P1: a receive that was posted, matched by this message, which nothing was done with.
        Ok(receive) => return unsafe { meet(state, request, receive, envelope) },
        Err(id) => id,
    };
    let longest = pml.rails().first().map_or(0, |rail| now::eager_limit(rail.copy_size) - MAX_SIZE);
    let is_copied = r.role == Role::Send(Mode::Standard) && r.extent.length <= longest;
    let body = if is_copied {
        // SAFETY: P2.
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
    // SAFETY: P1: not finished, so its communicator lives; P3.
    unsafe {
        arrived::insert(pml, state, communicator, (envelope, message), || Some(Link::ONESELF));
        if is_copied {
            // All of it is kept, and nothing names the request.
            watch::ends(&mut *request.as_ptr(), Bytes::None.posted());
            finish(state, request);
        }
    }
}

/// A message that was kept where it is meets its receive.
///
/// # Safety
/// P1: a receive that is matched by it.
pub(crate) unsafe fn receive(state: &mut State, receive: NonNull<Request>, envelope: Envelope, sender: TransferId) {
    let Some(send) = state.transfers.end(sender) else { return };
    // SAFETY: P1: in `state.transfers` until now, and a receive that it matches; P3.
    unsafe {
        (*send.as_ptr()).transfer = Transfer::None;
        meet(state, send, receive, envelope);
    }
}

/// Copies a message to its receive, and finishes both.
///
/// # Safety
/// P1: a send and a receive, the latter matched by the former, and nothing of them under way.
unsafe fn meet(state: &mut State, send: NonNull<Request>, receive: NonNull<Request>, envelope: Envelope) {
    // SAFETY: P1: not finished; P3: two requests.
    let (s, r) = unsafe { (&mut *send.as_ptr(), &mut *receive.as_ptr()) };
    let (length, room) = (s.extent.length, r.extent.length);
    let error = if length > room { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS };
    // SAFETY: P1: not finished; P2; P3.
    unsafe {
        note(r, &Outcome { source: envelope.source(), tag: envelope.tag(), length, error });
        watch::begins(r, Bytes::All.posted());
        if !copy((&s.data, s.extent), (&r.data, r.extent), length.min(room)) {
            note_not_put(r);
        }
        watch::ends(s, Bytes::None.posted());
        watch::ends(r, Bytes::None.posted());
        finish(state, send);
        finish(state, receive);
    }
}

/// What is kept of a short message. `None`: it cannot be packed.
///
/// # Safety
/// P2: the data may be read; `extent` is its.
unsafe fn copied(data: &Data, extent: Extent) -> Option<Body> {
    let mut short = [0; SHORT];
    if extent.length <= SHORT {
        let body = |bytes| Body::Short { length: extent.length as u8, bytes };
        // SAFETY: P2; `short` is at least as long as the message.
        return unsafe { datatype::take(data, extent, short.as_mut_ptr()) }.then(|| body(short));
    }
    let mut bytes = vec![0; extent.length].into_boxed_slice();
    // SAFETY: P2; `bytes` is as long as the message.
    unsafe { datatype::take(data, extent, bytes.as_mut_ptr()) }.then_some(Body::Whole { bytes })
}

/// Copies the first `length` bytes of a message. False: not all of them.
///
/// # Safety
/// P2: the first data may be read for so many bytes, and the second written; the extents are theirs.
unsafe fn copy((from, from_extent): (&Data, Extent), (to, to_extent): (&Data, Extent), length: usize) -> bool {
    if !from_extent.start.is_null() {
        // SAFETY: P2.
        return unsafe { datatype::put(to, to_extent, from_extent.start, length) };
    }
    // SAFETY: P2.
    let Some(mut packing) = (unsafe { Convertor::packing(from) }) else { return false };
    if !to_extent.start.is_null() {
        // SAFETY: P2; made to pack.
        return unsafe { packing.pack(to_extent.start, length) } == length;
    }
    // SAFETY: P2.
    let Some(mut unpacking) = (unsafe { Convertor::unpacking(to) }) else { return false };
    let mut piece = vec![0; length.min(PIECE)];
    let mut left = length;
    while left > 0 {
        // SAFETY: made to pack; `piece` is of at least so many bytes.
        let packed = unsafe { packing.pack(piece.as_mut_ptr(), left.min(PIECE)) };
        // SAFETY: made to unpack; `piece` was just filled so far. In order, as the convertor needs it.
        if packed == 0 || !unsafe { unpacking.unpack(piece.as_ptr(), packed) } {
            return false;
        }
        left -= packed;
    }
    true
}

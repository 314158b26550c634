// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a process to itself: copied once, from the send buffer to the receive buffer, without an adapter.
//!
//! A message whose receive is not posted is stored as unexpected: a short one in standard mode as a copy, so that its
//! sender continues, as programs expect; of any other, an announcement. Called by `protocol` and `accept`. Grade:
//! pending. Threads: the one that has entered the PML. Tests: `self_messages.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::arrived::{Arrived, Body, SHORT};
use engine::messenger::header::{MAX_SIZE, Memory};
use engine::messenger::link::Link;
use engine::messenger::matching::Envelope;
use engine::messenger::transfer_id::TransferId;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::datatype::{self, Convertor, Data, Extent};
use super::finish::{Outcome, finish, note, note_not_put};
use super::instance::{Pml, State};
use super::request::{Mode, Request, Role, Transfer};
use super::transfers::Bytes;
use super::{incoming, passage, transmit, watch};
use crate::runtime::variables::now;

/// Number of bytes that are copied at a time if both sides have gaps.
const PIECE: usize = 32 * 1024;

pub(crate) unsafe fn send(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: only the caller has it; P3.
    let r = unsafe { &mut *request.as_ptr() };
    r.core.link = Link::ONESELF;
    // SAFETY: P1: not finished, so its communicator lives; P4: a call of MPI has it, so it is still the PML's.
    let communicator = unsafe { Communicator::of(r.comm()) };
    let envelope = Envelope::new(communicator.rank, r.core.tag);
    // SAFETY: P1: the send is not finished; P3.
    unsafe { watch::begins_by(r, Bytes::All.posted(), |_| Some(passage::ONESELF)) };
    let (length, told) = (r.core.extent.length, (|_: &Request| Some(passage::ONESELF), || {}));
    // SAFETY: P3; P1: the send is not finished, so its communicator lives.
    let id = match unsafe { watch::take_posted(communicator, envelope, (length, length), told) } {
        // SAFETY: P1: a posted receive that this message matches; the send has no transfer in progress.
        Ok(receive) => return unsafe { meet(state, request, receive, envelope) },
        Err(id) => id,
    };
    let longest = pml.rails().first().map_or(0, |rail| now::eager_limit(rail.copy_size) - MAX_SIZE);
    let is_copied = r.core.role == Role::Send(Mode::Standard) && r.core.extent.length <= longest;
    let body = if is_copied {
        // SAFETY: P2: the data may be read until the send is finished.
        let Some(body) = (unsafe { copied(&r.core.data, r.core.extent) }) else {
            transmit::cannot_pack(state, r.core.extent.length);
            return;
        };
        body
    } else {
        r.core.transfer = Transfer::Announced { registered: None, others: Vec::new(), counted: false };
        let memory = Memory { key: 0, address: 0, length: r.core.extent.length as u64 };
        Body::Announced(state.transfers.begin(request), memory)
    };
    let message = Arrived { from: Link::ONESELF, id, body };
    // SAFETY: P1: not finished, so its communicator lives; P3.
    unsafe {
        incoming::keep(pml, state, communicator, (envelope, message), || Some(Link::ONESELF));
        if is_copied {
            watch::ends(&mut *request.as_ptr(), Bytes::None.posted());
            finish(state, request);
        }
    }
}

/// Delivers an announced message to its receive.
pub(crate) unsafe fn receive(state: &mut State, receive: NonNull<Request>, envelope: Envelope, sender: TransferId) {
    let Some(send) = state.transfers.end(sender) else { return };
    // SAFETY: P1: the send was in `state.transfers` until now, and the receive is matched and not finished; P3.
    unsafe {
        (*send.as_ptr()).core.transfer = Transfer::None;
        meet(state, send, receive, envelope);
    }
}

/// Copies a message to its receive, and finishes both.
///
/// # Safety
/// P1: a send and the receive that it matches, both not finished and with no transfer in progress.
unsafe fn meet(state: &mut State, send: NonNull<Request>, receive: NonNull<Request>, envelope: Envelope) {
    // SAFETY: P1: both are not finished; P3: they are two different requests.
    let (s, r) = unsafe { (&mut *send.as_ptr(), &mut *receive.as_ptr()) };
    let (length, room) = (s.core.extent.length, r.core.extent.length);
    let error = if length > room { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS };
    // SAFETY: P1: both are not finished; P2; P3.
    unsafe {
        note(r, &Outcome { source: envelope.source(), tag: envelope.tag(), length, error });
        watch::begins(r, Bytes::All.posted());
        if !copy((&s.core.data, s.core.extent), (&r.core.data, r.core.extent), length.min(room)) {
            note_not_put(r);
        }
        watch::ends(s, Bytes::None.posted());
        watch::ends(r, Bytes::None.posted());
        finish(state, send);
        finish(state, receive);
    }
}

/// Copies the data of a message, to store it as unexpected. `None`: the data cannot be packed.
unsafe fn copied(data: &Data, extent: Extent) -> Option<Body> {
    let mut short = [0; SHORT];
    if extent.length <= SHORT {
        // SAFETY: P2: the data may be read; `short` is at least as long as the message.
        let is_taken = unsafe { datatype::take(data, extent, short.as_mut_ptr()) };
        return is_taken.then_some(Body::Short(extent.length as u8, short));
    }
    let mut bytes = vec![0; extent.length].into_boxed_slice();
    // SAFETY: P2: the data may be read; `bytes` is as long as the message.
    unsafe { datatype::take(data, extent, bytes.as_mut_ptr()) }.then_some(Body::Whole(bytes))
}

/// Copies the first `length` bytes of a message. Returns false if it cannot copy all of them.
unsafe fn copy((from, from_extent): (&Data, Extent), (to, to_extent): (&Data, Extent), length: usize) -> bool {
    if !from_extent.start.is_null() {
        // SAFETY: P2, as this function requires.
        return unsafe { datatype::put(to, to_extent, from_extent.start, length) };
    }
    // SAFETY: P2: `from` may be read.
    let Some(mut packing) = (unsafe { Convertor::packing(from) }) else { return false };
    if !to_extent.start.is_null() {
        // SAFETY: P2: `to` may be written for `length` bytes; the convertor packs.
        return unsafe { packing.pack(to_extent.start, length) } == length;
    }
    // SAFETY: P2: `to` may be written.
    let Some(mut unpacking) = (unsafe { Convertor::unpacking(to) }) else { return false };
    let mut piece = vec![0; length.min(PIECE)];
    let mut left = length;
    while left > 0 {
        // SAFETY: the convertor packs; `piece` has at least `left.min(PIECE)` bytes.
        let packed = unsafe { packing.pack(piece.as_mut_ptr(), left.min(PIECE)) };
        // SAFETY: the convertor unpacks; `piece` has `packed` bytes, which are the next of the message.
        if packed == 0 || !unsafe { unpacking.unpack(piece.as_ptr(), packed) } {
            return false;
        }
        left -= packed;
    }
    true
}

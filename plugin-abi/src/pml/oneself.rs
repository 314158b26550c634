// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a process to itself: copied once, from the send buffer to the receive buffer, without an adapter.
//!
//! A message whose receive is not posted is stored as unexpected: a short one in standard mode as a copy, so that its
//! sender continues, as programs expect; of any other, an announcement. Called by `protocol` and `accept`. Grade:
//! pending. Threads: the one that has entered the PML. Tests: `self_messages.c` in `hw-tests/mpi`.

use engine::messenger::arrived::{Arrived, Body, SHORT};
use engine::messenger::header::{MAX_SIZE, Memory};
use engine::messenger::link::Link;
use engine::messenger::matching::Envelope;
use engine::messenger::transfer_id::TransferId;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::datatype::{self, Convertor, Data, Extent};
use super::finish::{Outcome, finish, note, note_not_put};
use super::handle::Handle;
use super::instance::{Pml, State};
use super::request::{Core, Mode, Role, Transfer};
use super::transfers::Bytes;
use super::{incoming, passage, transmit, watch};
use crate::runtime::variables::now;

/// Number of bytes that are copied at a time if both sides have gaps.
const PIECE: usize = 32 * 1024;

pub(crate) fn send(pml: &Pml, state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    r.core.link = Link::ONESELF;
    // SAFETY: P1: not finished, so its communicator lives; P4: a call of MPI has it, so it is still the PML's.
    let communicator = unsafe { Communicator::of(r.comm()) };
    let (envelope, length) = (Envelope::new(communicator.rank, r.core.tag), r.core.extent.length);
    watch::begins_by(state, request, Bytes::All.posted(), |_, _| Some(passage::ONESELF));
    let told = (|_: &mut State, _| Some(passage::ONESELF), |_: &mut State| {});
    let id = match watch::take_posted(state, communicator, envelope, (length, length), told) {
        Ok(receive) => return meet(state, request, receive, envelope),
        Err(id) => id,
    };
    let core = state.requests.core(request);
    let longest = pml.rails().first().map_or(0, |rail| now::eager_limit(rail.copy_size) - MAX_SIZE);
    let is_copied = core.role == Role::Send(Mode::Standard) && length <= longest;
    let body = if is_copied {
        let Some(body) = copied(core) else {
            transmit::cannot_pack(state, length);
            return;
        };
        body
    } else {
        core.transfer = Transfer::Announced { registered: None, others: Vec::new(), counted: false };
        let memory = Memory { key: 0, address: 0, length: length as u64 };
        Body::Announced(state.transfers.begin(request), memory)
    };
    let message = Arrived { from: Link::ONESELF, id, body };
    incoming::keep(pml, state, communicator, (envelope, message), || Some(Link::ONESELF));
    if is_copied {
        watch::ends(state, request, Bytes::None.posted());
        finish(state, request);
    }
}

/// Delivers an announced message to its receive.
pub(crate) fn receive(state: &mut State, receive: Handle, envelope: Envelope, sender: TransferId) {
    let Some(send) = state.transfers.end(sender) else { return };
    state.requests.core(send).transfer = Transfer::None;
    meet(state, send, receive, envelope);
}

/// Copies a message to its receive, and finishes both.
fn meet(state: &mut State, send: Handle, receive: Handle, envelope: Envelope) {
    let core = state.requests.core(send);
    let (from, length) = ((core.data, core.extent), core.extent.length);
    let r = state.requests.get(receive);
    let (to, room) = ((r.core.data, r.core.extent), r.core.extent.length);
    let error = if length > room { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS };
    note(r, &Outcome { source: envelope.source(), tag: envelope.tag(), length, error });
    watch::begins(state, receive, Bytes::All.posted());
    // SAFETY: P2: the data of two requests that are not finished.
    if !unsafe { copy(from, to, length.min(room)) } {
        note_not_put(state.requests.get(receive));
    }
    watch::ends(state, send, Bytes::None.posted());
    watch::ends(state, receive, Bytes::None.posted());
    finish(state, send);
    finish(state, receive);
}

/// Copies the data of a message, to store it as unexpected. `None`: the data cannot be packed.
fn copied(send: &Core) -> Option<Body> {
    let (mut short, length) = ([0; SHORT], send.extent.length);
    if length <= SHORT {
        return send.take_all(&mut short[..length]).then_some(Body::Short(length as u8, short));
    }
    let mut bytes = vec![0; length].into_boxed_slice();
    send.take_all(&mut bytes).then_some(Body::Whole(bytes))
}

/// Copies the first `length` bytes of a message. Returns false if it cannot copy all of them.
unsafe fn copy((from, from_extent): (Data, Extent), (to, to_extent): (Data, Extent), length: usize) -> bool {
    if !from_extent.start.is_null() {
        // SAFETY: P2, as this function requires.
        return unsafe { datatype::put(&to, to_extent, from_extent.start, length) };
    }
    // SAFETY: P2: `from` may be read.
    let Some(mut packing) = (unsafe { Convertor::packing(&from) }) else { return false };
    if !to_extent.start.is_null() {
        // SAFETY: P2: `to` may be written for `length` bytes; the convertor packs.
        return unsafe { packing.pack(to_extent.start, length) } == length;
    }
    // SAFETY: P2: `to` may be written.
    let Some(mut unpacking) = (unsafe { Convertor::unpacking(&to) }) else { return false };
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

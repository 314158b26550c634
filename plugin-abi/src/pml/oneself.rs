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
use engine::messenger::passage::Passage;
use engine::messenger::transfer_id::TransferId;

use super::communicator::Communicator;
use super::finish::{finish, note, note_not_put};
use super::handle::Handle;
use super::instance::{Pml, State};
use super::request::{Core, Mode, Outcome, Role, Transfer};
use super::transfers::Bytes;
use super::{incoming, transmit, watch};
use crate::runtime::variables::now;

pub(crate) fn send(pml: &Pml, state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    r.core.link = Link::ONESELF;
    // SAFETY: P1: not finished, so its communicator lives; P4: a call of MPI has it, so it is still the PML's.
    let communicator = unsafe { Communicator::of(r.comm()) };
    let (envelope, length) = (Envelope::new(communicator.rank, r.core.tag), r.core.data.length());
    watch::begins_by(state, request, Bytes::All.posted(), |_| Some(Passage::ONESELF));
    let told = (|_: &mut State, _| Some(Passage::ONESELF), |_: &mut State| {});
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
    let length = state.requests.core(send).data.length();
    let r = state.requests.get(receive);
    let room = r.core.data.length();
    note(r, &Outcome::new(envelope, length, room));
    watch::begins(state, receive, Bytes::All.posted());
    let [from, to] = state.requests.cores([send, receive]);
    if !from.data.copy_to(&mut to.data) {
        note_not_put(state.requests.get(receive));
    }
    watch::ends(state, send, Bytes::None.posted());
    watch::ends(state, receive, Bytes::None.posted());
    finish(state, send);
    finish(state, receive);
}

/// Copies the data of a message, to store it as unexpected. `None`: the data cannot be packed.
fn copied(send: &mut Core) -> Option<Body> {
    let (mut short, length) = ([0; SHORT], send.data.length());
    if length <= SHORT {
        return send.data.take_all(&mut short[..length]).then_some(Body::Short(length as u8, short));
    }
    let mut bytes = vec![0; length].into_boxed_slice();
    send.data.take_all(&mut bytes).then_some(Body::Whole(bytes))
}

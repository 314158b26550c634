// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends a long message as copied fragments, and unpacks them in order: if either side's data has gaps, or its memory
//! cannot be registered. The state machine is `engine::messenger::rendezvous::copies`.
//!
//! Called by `accept`, `incoming`, `reading`, `local` and `progress`. Grade: pending. Threads: the one that
//! has entered the PML. Tests: below, `pml/tests.rs`, and `pt2pt_datatypes.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::header::Header;
use engine::messenger::host::{Bytes, Data};
use engine::messenger::link::Link;
use engine::messenger::rendezvous::copies::{Gathering, Sending};
use engine::messenger::transfer_id::TransferId;

use super::buffer::{SendBuffer, SendBuffers};
use super::datatype::Extent;
use super::finish::{finish, note_not_put};
use super::flight::Step;
use super::handle::Handle;
use super::instance::{Pml, Rail, State};
use super::local::{Payload, Then};
use super::request::{Told, Transfer};
use super::transmit::{self, Transmitted};
use super::{flight, flow, moving, passage, rails, routing, token, watch};
use crate::runtime::messages;

/// Maximum number of fragments of a message in flight.
const MOST: u32 = 4;

/// Asks the sender of an announced message for copies of its first `wanted` bytes (at least 1). `why`: the reason
/// (`Reason::code`), if the receiver could have read the message.
pub(crate) fn ask(
    pml: &Pml,
    state: &mut State,
    request: Handle,
    (from, sender): (Link, TransferId),
    (wanted, why): (u64, u32),
) {
    let receiver = state.messenger.transfers.begin(request);
    state.requests.core(request).transfer = Transfer::Gathering(Gathering::new(receiver, wanted));
    let header = Header::ClearToSend { request: sender.0, receive: receiver.0, why, length: wanted };
    routing::control(pml, state, from, &header);
}

/// Unpacks a fragment that has arrived. `receiver` may be any number.
pub(crate) fn received(state: &mut State, receiver: TransferId, bytes: &[u8]) {
    let Some(request) = state.messenger.transfers.get(receiver) else { return };
    let Transfer::Gathering(gathering) = &mut state.requests.core(request).transfer else { return };
    let (offset, length) = gathering.take(bytes.len() as u64);
    let (id, is_complete) = (gathering.id, gathering.is_complete());
    let moved = Bytes::Of { offset, length }.completed();
    // A receive that was to read its message has begun already, without any bytes.
    let begins = offset == 0 && state.requests.get(request).shell.told == Told::Nothing;
    if begins {
        watch::begins(state, request, moved);
    }
    let r = state.requests.get(request);
    if !r.core.data.put_at(offset, &bytes[..length as usize]) {
        note_not_put(r);
    }
    if is_complete {
        state.messenger.transfers.end(id);
        watch::ends(state, request, if begins { Bytes::None.completed() } else { moved });
        flight::note(state, request, &Step::Copied);
        end(state, request);
    } else if !begins {
        watch::continues(state, request, moved);
    }
}

/// Finishes a request whose copies have all been sent or received.
fn end(state: &mut State, request: Handle) {
    let core = state.requests.core(request);
    core.transfer = Transfer::None;
    core.data.end();
    finish(state, request);
}

/// Begins to send the copies for which a receiver has called [`ask`].
pub(crate) fn wanted(
    pml: &Pml,
    state: &mut State,
    (sender, receiver): (TransferId, TransferId),
    (asked, why): (u64, u32),
) {
    let Some(request) = state.messenger.transfers.get(sender) else { return };
    let core = state.requests.core(request);
    let length = core.data.length() as u64;
    if !matches!(core.transfer, Transfer::Announced { .. }) || !(1..=length).contains(&asked) {
        transmit::failed_for(state, &messages::asked_for(asked, length));
        return;
    }
    state.messenger.transfers.end(sender);
    let counted = flow::counted(state, request);
    flight::note(state, request, &Step::Answered { number: sender, wants_copies: true });
    let core = state.requests.core(request);
    let sending = Transfer::Sending(Sending::new(receiver, asked, MOST));
    let (link, announced) = (core.link, std::mem::replace(&mut core.transfer, sending));
    if let Transfer::Announced { registered: Some(_), .. } = announced {
        watch::goes(state, request, |state| Some(passage::wanted(pml, state, link, why)));
    }
    // SAFETY: R3: the receiver will not read the message.
    unsafe { rails::put_back(pml, link, announced) };
    send(pml, state, request);
    flow::answered(pml, state, counted);
}

/// Returns the next fragment that a send may send now: its offset, and the number of its receive.
fn next(state: &mut State, request: Handle) -> Option<(u64, TransferId)> {
    match &state.requests.core(request).transfer {
        Transfer::Sending(sending) => Some((sending.next_offset()?, sending.receiver)),
        _ => None,
    }
}

/// Counts a fragment of `length` bytes that was handed to the port, and raises its events.
fn sent(state: &mut State, request: Handle, (offset, length): (u64, usize)) {
    let Transfer::Sending(sending) = &mut state.requests.core(request).transfer else { return };
    let is_last = sending.sent(length as u64);
    watch::piece_sent(state, request, (offset, length), is_last);
}

/// Queues a send for a free buffer.
fn starve(state: &mut State, request: Handle) {
    if let Transfer::Sending(sending) = &mut state.requests.core(request).transfer {
        sending.is_starved = true;
        state.messenger.starved.push_back(request);
    }
}

/// Sends as many fragments as may be in flight, of a send that is not in [`State::starved`]. Without a free buffer it
/// waits there for one.
fn send(pml: &Pml, state: &mut State, request: Handle) {
    if let Some(to) = state.requests.core(request).link.as_local() {
        return send_locally(pml, state, request, to);
    }
    while let Some((offset, receiver)) = next(state, request) {
        let home = state.requests.core(request).link;
        let link = rails::route(pml, state, home);
        let Some(rail) = pml.rails().get(link.rail()) else { return };
        let Some(mut port) = rail.enter() else { return };
        let Some(buffer) = state.buffers[link.rail()].take_large(&mut port) else {
            drop(port);
            if state.buffers[link.rail()].has_large() {
                starve(state, request);
            } else {
                send_unregistered(pml, state, request, (link, rail));
            }
            return;
        };
        let header = Header::Fragment { receive: receiver.0, offset }.encode();
        let header = header.as_slice();
        // SAFETY: P3, R1, R2: the buffer was just taken, so it is ours alone, and it is as long as a receive slot.
        let bytes = unsafe { std::slice::from_raw_parts_mut((*buffer.as_ptr()).start(), rail.receive_size) };
        let (before, data) = bytes.split_at_mut(header.len());
        before.copy_from_slice(header);
        let core = state.requests.core(request);
        let (length, all) = (core.data.take_at(offset, data), core.data.length());
        if length == 0 {
            // SAFETY: P3, R2: just taken from these buffers, and not sent.
            unsafe { state.buffers[link.rail()].give_back(buffer) };
            transmit::cannot_pack(state, all);
            return;
        }
        // SAFETY: P3, R2: the buffer belongs to this port, has that many bytes, and is ours alone.
        let transmitted = unsafe { transmit::piece(&mut port, link, buffer, header.len() + length, request) };
        transmit::note(pml, rail, &mut port, link, transmitted);
        drop(port);
        // SAFETY: R2: the port refused the buffer, which is its own and ours alone, and has that many bytes.
        let is_refused =
            transmitted == Transmitted::Failed && !unsafe { goes_on(pml, state, link, buffer, header.len() + length) };
        if is_refused {
            transmit::failed(state);
            return;
        }
        sent(state, request, (offset, length));
    }
}

/// Sends fragments from ordinary memory, one at a time, because the port can register no buffer.
#[cold]
fn send_unregistered(pml: &Pml, state: &mut State, request: Handle, (link, rail): (Link, &Rail)) {
    let Some((offset, receiver)) = next(state, request) else { return };
    let core = state.requests.core(request);
    if matches!(&core.transfer, Transfer::Sending(sending) if sending.is_under_way()) {
        return;
    }
    let header = Header::Fragment { receive: receiver.0, offset }.encode();
    let header = header.as_slice();
    let mut bytes = vec![0; rail.copy_size];
    bytes[..header.len()].copy_from_slice(header);
    let (length, all) = (core.data.take_at(offset, &mut bytes[header.len()..]), core.data.length());
    if length == 0 {
        transmit::cannot_pack(state, all);
    } else if moving::queue(pml, link, (bytes.into(), (header.len() + length) as u32), token::sent(request)) {
        sent(state, request, (offset, length));
    } else {
        transmit::failed(state);
    }
}

/// Sends a fragment of a failed port by another one. Returns false if there is none.
unsafe fn goes_on(pml: &Pml, state: &mut State, failed: Link, buffer: NonNull<SendBuffer>, length: usize) -> bool {
    if !moving::goes_on(pml, state, failed) {
        return false;
    }
    let home = rails::route(pml, state, failed);
    // SAFETY: R2: the buffer belongs to the failed port, has `length` bytes, and is ours alone.
    unsafe { moving::send_buffer_again(pml, state, (failed, home), buffer, length as u32) }
}

/// [`send`] by shared memory. A fragment is in flight only while it waits for room.
fn send_locally(pml: &Pml, state: &mut State, request: Handle, to: u32) {
    let Some(shared) = pml.shared_memory() else { return };
    while let Some((offset, receiver)) = next(state, request) {
        let header = Header::Fragment { receive: receiver.0, offset };
        let core = state.requests.core(request);
        let Extent { start, length: all } = core.data.extent();
        let mut length = (all - offset as usize).min(shared.room());
        let payload = if start.is_null() {
            let mut bytes = vec![0; length];
            length = core.data.take_at(offset, &mut bytes);
            bytes.truncate(length);
            Payload::Packed(bytes)
        } else {
            Payload::InPlace(Extent { start: start.wrapping_add(offset as usize), length })
        };
        if length == 0 {
            transmit::cannot_pack(state, all);
            return;
        }
        let has_gone = state.backlog.send(shared, to, &header, payload, Then::Piece(request));
        sent(state, request, (offset, length));
        if has_gone && is_done(state, request) {
            // All is sent, and no fragment waits.
            return end(state, request);
        }
    }
}

/// Counts a fragment as done. Returns true if no other is to come.
fn is_done(state: &mut State, request: Handle) -> bool {
    let Transfer::Sending(sending) = &mut state.requests.core(request).transfer else { return false };
    sending.done()
}

/// Sends more fragments after one has been sent; first those of the sends that wait for a buffer.
pub(crate) fn piece_done(pml: &Pml, state: &mut State, request: Handle) {
    let Transfer::Sending(sending) = &mut state.requests.core(request).transfer else { return };
    if sending.done() {
        end(state, request);
    } else if state.messenger.starved.is_empty() {
        send(pml, state, request);
    } else if !sending.is_starved && sending.next_offset().is_some() {
        starve(state, request);
    }
    feed_starved(pml, state);
}

/// Continues the sends that wait for a buffer, each once, while any port has a free one.
pub(crate) fn feed_starved(pml: &Pml, state: &mut State) {
    for _ in 0..state.messenger.starved.len() {
        if !state.buffers.iter().any(SendBuffers::has_free_large) {
            return;
        }
        let Some(request) = state.messenger.starved.pop_front() else { return };
        if let Transfer::Sending(sending) = &mut state.requests.core(request).transfer {
            sending.is_starved = false;
        }
        send(pml, state, request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pml::request::{Mode, Owner, Role};

    #[test]
    fn who_asks_for_what_a_message_does_not_have_ends_the_job_with_that_reason() {
        let mut bytes = [0; 100];
        for asked in [0, bytes.len() as u64 + 1, u64::MAX] {
            let pml = Pml::of_no_rails(false);
            let mut state = pml.enter().expect("nobody is inside");
            let send = state.requests.take();
            let r = state.requests.get(send);
            (r.core.role, r.shell.owner) = (Role::Send(Mode::Standard), Owner::Call);
            r.core.transfer = Transfer::Announced { registered: None, others: Vec::new(), counted: false };
            // SAFETY: P2: the bytes live as long as the request.
            unsafe { r.core.data.set_extent(Extent { start: bytes.as_mut_ptr(), length: bytes.len() }) };
            let sender = state.messenger.transfers.begin(send);
            wanted(&pml, &mut state, (sender, TransferId(7)), (asked, 0));
            assert!(state.has_failed);
            assert!(matches!(state.requests.core(send).transfer, Transfer::Announced { .. }), "nothing is sent");
        }
    }
}

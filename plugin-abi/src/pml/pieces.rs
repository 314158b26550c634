// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends a long message as copied fragments, and unpacks them in order: if either side's data has gaps, or its memory
//! cannot be registered. The state machine is `engine::messenger::rendezvous::copies`.
//!
//! Called by `accept`, `incoming`, `reading`, `local` and `progress`. Grade: pending. Threads: the one that
//! has entered the PML. Tests: below, `pml/tests.rs`, and `pt2pt_datatypes.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::header::Header;
use engine::messenger::link::Link;
use engine::messenger::rendezvous::copies::{Gathering, Sending};
use engine::messenger::transfer_id::TransferId;

use super::buffer::{SendBuffer, SendBuffers};
use super::datatype::{Convertor, Data, Extent};
use super::finish::{finish, note_not_put};
use super::flight::Step;
use super::instance::{Pml, Rail, State};
use super::local::{Payload, Then};
use super::request::{Request, Transfer};
use super::transfers::Bytes;
use super::transmit::{self, Transmitted};
use super::{flight, flow, moving, passage, rails, routing, token, watch};
use crate::runtime::messages;

/// Maximum number of fragments of a message in flight.
const MOST: u32 = 4;

/// Asks the sender of an announced message for copies of its first `wanted` bytes (at least 1). `why`: the reason
/// ([`super::passage::code`]), if the receiver could have read the message.
///
/// # Safety
/// P1: a matched receive with no transfer in progress.
pub(crate) unsafe fn ask(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    (from, sender): (Link, TransferId),
    (wanted, why): (u64, u32),
) {
    let receiver = state.transfers.begin(request);
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    r.core.transfer = Transfer::Gathering { id: receiver, state: Gathering::new(wanted) };
    let header = Header::ClearToSend { request: sender.0, receive: receiver.0, why, length: wanted };
    routing::control(pml, state, from, &header);
}

/// Unpacks a fragment that has arrived. `receiver` may be any number.
pub(crate) unsafe fn received(state: &mut State, receiver: TransferId, from: *const u8, length: usize) {
    let Some(request) = state.transfers.get(receiver) else { return };
    // SAFETY: P1: in `state.transfers`; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Gathering { id, state: gathering } = &mut r.core.transfer else { return };
    let (offset, length) = gathering.take(length as u64);
    let (id, is_complete) = (*id, gathering.is_complete());
    let moved = Bytes::Of { offset, length }.completed();
    if offset == 0 {
        // SAFETY: P1: the receive is not finished; P3.
        unsafe { watch::begins(r, moved) };
    }
    if r.core.extent.start.is_null() {
        // One convertor for all fragments: it continues where the last one ended. Without one the rest is only counted.
        if offset == 0 {
            // SAFETY: P2: the user's buffer may be written until the receive is finished.
            r.core.convertor = unsafe { Convertor::unpacking(&r.core.data) };
        }
        // SAFETY: `from` has at least `length` bytes, as `take` returns no more than the fragment has.
        let is_put = r.core.convertor.as_mut().is_some_and(|to| unsafe { to.unpack(from, length as usize) });
        if !is_put {
            r.core.convertor = None;
            note_not_put(r);
        }
    } else {
        // SAFETY: P2: the receive asked for no more bytes than it has room for; `from` has at least `length` bytes.
        unsafe { r.core.extent.start.add(offset as usize).copy_from_nonoverlapping(from, length as usize) };
    }
    if is_complete {
        state.transfers.end(id);
        // SAFETY: P1: the receive is not finished, and has all the data that it wants; P3.
        unsafe {
            watch::ends(r, if offset == 0 { Bytes::None.completed() } else { moved });
            flight::note(r, &Step::Copied);
            r.core.transfer = Transfer::None;
            r.core.convertor = None;
            finish(state, request);
        }
    } else if offset > 0 {
        // SAFETY: P1: the receive is not finished; P3.
        unsafe { watch::continues(r, moved) };
    }
}

/// Begins to send the copies for which a receiver has called [`ask`].
pub(crate) fn wanted(
    pml: &Pml,
    state: &mut State,
    (sender, receiver): (TransferId, TransferId),
    (asked, why): (u64, u32),
) {
    let Some(request) = state.transfers.get(sender) else { return };
    // SAFETY: P1: in `state.transfers`; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let length = r.core.extent.length as u64;
    if !matches!(r.core.transfer, Transfer::Announced { .. }) || !(1..=length).contains(&asked) {
        transmit::failed_for(state, &messages::asked_for(asked, length));
        return;
    }
    state.transfers.end(sender);
    // SAFETY: P1: the send is not finished.
    let counted = unsafe { flow::counted(r) };
    // SAFETY: P1: the send is not finished.
    unsafe { flight::note(r, &Step::Answered { number: sender, wants_copies: true }) };
    let sending = Transfer::Sending { state: Sending::new(asked, MOST), receiver, is_starved: false };
    let announced = std::mem::replace(&mut r.core.transfer, sending);
    if let Transfer::Announced { registered: Some(_), .. } = announced {
        let link = r.core.link;
        // SAFETY: P1: the send is not finished; P3.
        unsafe { watch::goes(r, |_| Some(passage::wanted(pml, state, link, why))) };
    }
    // SAFETY: R3: the receiver will not read the message.
    unsafe { rails::put_back(pml, r.core.link, announced) };
    // SAFETY: P1: a send whose transfer is `Sending`, and which is not in `state.starved`.
    unsafe { send(pml, state, request) };
    flow::answered(pml, state, counted);
}

/// Sends as many fragments as may be in flight. Without a free buffer the send waits for one, in [`State::starved`].
///
/// # Safety
/// P1: a send whose transfer is `Sending`, and which is not in `state.starved`.
unsafe fn send(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: the send is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    if let Some(to) = r.core.link.as_local() {
        // SAFETY: P1: its transfer is `Sending`, and it is not in `state.starved`.
        return unsafe { send_locally(pml, state, request, to) };
    }
    while let Transfer::Sending { state: sending, receiver, is_starved } = &mut r.core.transfer {
        let Some(offset) = sending.next_offset() else { return };
        let link = rails::route(pml, state, r.core.link);
        let Some(rail) = pml.rails().get(link.rail()) else { return };
        let Some(mut port) = rail.enter() else { return };
        let Some(buffer) = state.buffers[link.rail()].take_large(&mut port) else {
            drop(port);
            if state.buffers[link.rail()].has_large() {
                *is_starved = true;
                state.starved.push_back(request);
            } else {
                // SAFETY: P1: its transfer is `Sending`, and it is not in `state.starved`.
                unsafe { send_unregistered(pml, state, request, (link, rail)) };
            }
            return;
        };
        let header = Header::Fragment { receive: receiver.0, offset }.encode();
        let header = header.as_slice();
        let room = rail.receive_size - header.len();
        // SAFETY: P2; P3, R2: the buffer was just taken, so it is ours alone, and it is as long as a receive slot.
        let length = unsafe {
            let start = (*buffer.as_ptr()).start();
            start.copy_from_nonoverlapping(header.as_ptr(), header.len());
            pack(&mut r.core.convertor, (&r.core.data, r.core.extent), offset, (start.add(header.len()), room))
        };
        if length == 0 {
            // SAFETY: P3, R2: just taken from these buffers, and not sent.
            unsafe { state.buffers[link.rail()].give_back(buffer) };
            transmit::cannot_pack(state, r.core.extent.length);
            return;
        }
        let is_last = sending.sent(length as u64);
        // SAFETY: P3, R2: the buffer belongs to this port, has that many bytes, and is ours alone.
        let sent = unsafe { transmit::piece(&mut port, link, buffer, header.len() + length, request) };
        transmit::note(pml, rail, &mut port, link, sent);
        drop(port);
        // SAFETY: R2: the port refused the buffer, which is its own and ours alone, and has that many bytes.
        let is_refused =
            sent == Transmitted::Failed && !unsafe { goes_on(pml, state, link, buffer, header.len() + length) };
        if is_refused {
            transmit::failed(state);
            return;
        }
        // SAFETY: P1: the send is not finished; P3.
        unsafe { watch::piece_sent(r, (offset, length), is_last) };
    }
}

/// Sends fragments from ordinary memory, one at a time, because the port can register no buffer.
///
/// # Safety
/// P1: a send whose transfer is `Sending`, and which is not in `state.starved`.
#[cold]
unsafe fn send_unregistered(pml: &Pml, state: &mut State, request: NonNull<Request>, (link, rail): (Link, &Rail)) {
    // SAFETY: P1: the send is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Sending { state: sending, receiver, .. } = &mut r.core.transfer else { return };
    let Some(offset) = sending.next_offset().filter(|_| !sending.is_under_way()) else { return };
    let header = Header::Fragment { receive: receiver.0, offset }.encode();
    let header = header.as_slice();
    let mut bytes = vec![0; rail.copy_size];
    bytes[..header.len()].copy_from_slice(header);
    let room = &mut bytes[header.len()..];
    let room = (room.as_mut_ptr(), room.len());
    // SAFETY: P2; `room` is our own memory.
    let length = unsafe { pack(&mut r.core.convertor, (&r.core.data, r.core.extent), offset, room) };
    if length == 0 {
        transmit::cannot_pack(state, r.core.extent.length);
        return;
    }
    let is_last = sending.sent(length as u64);
    if !moving::queue(pml, link, (bytes.into(), (header.len() + length) as u32), token::sent(request)) {
        transmit::failed(state);
        return;
    }
    // SAFETY: P1: the send is not finished; P3.
    unsafe { watch::piece_sent(r, (offset, length), is_last) };
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
///
/// # Safety
/// P1: a send whose transfer is `Sending`, and which is not in `state.starved`.
unsafe fn send_locally(pml: &Pml, state: &mut State, request: NonNull<Request>, to: u32) {
    // SAFETY: P1: the send is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Some(shared) = pml.shared_memory() else { return };
    let room = shared.room();
    while let Transfer::Sending { state: sending, receiver, .. } = &mut r.core.transfer {
        let Some(offset) = sending.next_offset() else { return };
        let header = Header::Fragment { receive: receiver.0, offset };
        let (length, payload) = if r.core.extent.start.is_null() {
            let mut bytes = vec![0; room.min(r.core.extent.length - offset as usize)];
            let place = (bytes.as_mut_ptr(), bytes.len());
            // SAFETY: P2; `place` is our own memory.
            let length = unsafe { pack(&mut r.core.convertor, (&r.core.data, r.core.extent), offset, place) };
            bytes.truncate(length);
            (length, Payload::Packed(bytes))
        } else {
            let length = (r.core.extent.length - offset as usize).min(room);
            // SAFETY: P2: within the message, which has more than `offset` bytes.
            let start = unsafe { r.core.extent.start.add(offset as usize) };
            (length, Payload::InPlace(Extent { start, length }))
        };
        if length == 0 {
            transmit::cannot_pack(state, r.core.extent.length);
            return;
        }
        let is_last = sending.sent(length as u64);
        let is_done = state.backlog.send(shared, to, &header, payload, Then::Piece(request)) && sending.done();
        // SAFETY: P1: the send is not finished; P3.
        unsafe { watch::piece_sent(r, (offset, length), is_last) };
        if is_done {
            r.core.transfer = Transfer::None;
            r.core.convertor = None;
            // SAFETY: P1: all is sent, and no fragment waits.
            return unsafe { finish(state, request) };
        }
    }
}

/// Packs up to `room` bytes from `offset` on, where the last fragment ended. Returns their number.
///
/// # Safety
/// P2: the data of a send, which has more than `offset` bytes. `to` may be written for `room` bytes.
unsafe fn pack(
    convertor: &mut Option<Convertor>,
    (data, Extent { start, length: total }): (&Data, Extent),
    offset: u64,
    (to, room): (*mut u8, usize),
) -> usize {
    if start.is_null() {
        if convertor.is_none() {
            // SAFETY: P2: the data may be read until the send is finished.
            *convertor = unsafe { Convertor::packing(data) };
        }
        // SAFETY: `to` may be written for `room` bytes, as this function requires.
        return convertor.as_mut().map_or(0, |convertor| unsafe { convertor.pack(to, room) });
    }
    let length = (total - offset as usize).min(room);
    // SAFETY: P2: within the message; `to` may be written for `room` bytes.
    unsafe { to.copy_from_nonoverlapping(start.add(offset as usize), length) };
    length
}

/// Sends more fragments after one has been sent; first those of the sends that wait for a buffer.
pub(crate) unsafe fn piece_done(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: a send with a fragment in flight is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Sending { state: sending, is_starved, .. } = &mut r.core.transfer else { return };
    if sending.done() {
        r.core.transfer = Transfer::None;
        r.core.convertor = None;
        // SAFETY: P1: all is sent, so no fragment is in flight or waits for a buffer.
        unsafe { finish(state, request) };
    } else if state.starved.is_empty() {
        // SAFETY: P1: its transfer is `Sending`, and `state.starved` is empty.
        unsafe { send(pml, state, request) };
    } else if !*is_starved && sending.next_offset().is_some() {
        *is_starved = true;
        state.starved.push_back(request);
    }
    feed_starved(pml, state);
}

/// Continues the sends that wait for a buffer, each once, while any port has a free one.
pub(crate) fn feed_starved(pml: &Pml, state: &mut State) {
    for _ in 0..state.starved.len() {
        if !state.buffers.iter().any(SendBuffers::has_free_large) {
            return;
        }
        let Some(request) = state.starved.pop_front() else { return };
        // SAFETY: P1: it was in `state.starved`, so its transfer is `Sending`; it is not there any more; P3.
        unsafe {
            if let Transfer::Sending { is_starved, .. } = &mut (*request.as_ptr()).core.transfer {
                *is_starved = false;
            }
            send(pml, state, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pml::request::{Mode, Owner, Role};
    use ibex_ffi::openmpi::sys;

    const LENGTH: usize = 100;

    /// Makes a request of a blocking call for `LENGTH` bytes; `start` is null for data with gaps.
    fn request(role: Role, start: *mut u8, transfer: Transfer) -> Box<Request> {
        let mut request = Box::new(Request::unused());
        (request.core.role, request.shell.owner, request.core.transfer) = (role, Owner::Call, transfer);
        request.core.extent = Extent { start, length: LENGTH };
        request
    }

    #[test]
    fn who_asks_for_what_a_message_does_not_have_ends_the_job_with_that_reason() {
        let mut bytes = [0; LENGTH];
        for asked in [0, LENGTH as u64 + 1, u64::MAX] {
            let pml = Pml::of_no_rails(false);
            let mut state = pml.enter().expect("nobody is inside");
            let announced = Transfer::Announced { registered: None, others: Vec::new(), counted: false };
            let mut send = request(Role::Send(Mode::Standard), bytes.as_mut_ptr(), announced);
            let sender = state.transfers.begin(NonNull::from(&mut *send));
            wanted(&pml, &mut state, (sender, TransferId(7)), (asked, 0));
            assert!(state.has_failed);
            assert!(matches!(send.core.transfer, Transfer::Announced { .. }), "nothing is sent");
        }
    }

    #[test]
    fn a_receive_whose_bytes_cannot_be_put_ends_with_an_error_and_no_byte_is_put_elsewhere() {
        let pml = Pml::of_no_rails(false);
        let mut state = pml.enter().expect("nobody is inside");
        let mut gathering = Gathering::new(LENGTH as u64);
        // The first fragment, for which Open MPI had no convertor.
        gathering.take(40);
        let mut receive = request(Role::Receive, std::ptr::null_mut(), Transfer::None);
        // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
        let mut comm: sys::ompi_communicator_t = unsafe { std::mem::zeroed() };
        receive.base().req_mpi_object.comm = &raw mut comm;
        let receiver = state.transfers.begin(NonNull::from(&mut *receive));
        receive.core.transfer = Transfer::Gathering { id: receiver, state: gathering };
        let piece = [1; LENGTH];
        // SAFETY: P1: the receive lives until the end of the test; `piece` has 40 bytes.
        unsafe { received(&mut state, receiver, piece.as_ptr(), 40) };
        assert!(!receive.is_finished());
        // SAFETY: P1: the receive lives until the end of the test; `piece` has 40 bytes.
        unsafe { received(&mut state, receiver, piece.as_ptr(), 40) };
        assert!(receive.is_finished());
        assert_eq!(receive.base().req_status.MPI_ERROR, sys::MPI_ERR_INTERN as i32);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends one copied fragment of a long message: from a send buffer, from ordinary memory, or by shared memory. The
//! protocol is `engine::messenger::rendezvous::fragments`.
//!
//! Called by `host`. Grade: pending. Threads: the one that has entered the PML. Tests: below, `pml/tests.rs`, and
//! `pt2pt_datatypes.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::header::Header;
use engine::messenger::host::{Bytes, Data, Handed};
use engine::messenger::link::Link;
use engine::messenger::transfer_id::TransferId;

use super::buffer::SendBuffer;
use super::datatype::Extent;
use super::handle::Handle;
use super::instance::{Pml, Rail, State};
use super::local::{Payload, Then};
use super::request::Transfer;
use super::transmit::{self, Transmitted};
use super::{moving, rails, token, watch};

/// Sends the fragment that begins at `offset`, where the last one ended.
pub(crate) fn send(pml: &Pml, state: &mut State, request: Handle, receiver: TransferId, offset: u64) -> Handed {
    let header = Header::Fragment { receive: receiver.0, offset };
    let home = state.requests.core(request).link;
    if let Some(to) = home.as_local() {
        return locally(pml, state, request, to, &header);
    }
    let header = header.encode();
    let header = header.as_slice();
    let link = rails::route(pml, state, home);
    let Some(rail) = pml.rails().get(link.rail()) else { return Handed::Nothing };
    let Some(mut port) = rail.enter() else { return Handed::Nothing };
    let Some(buffer) = state.buffers[link.rail()].take_large(&mut port) else {
        drop(port);
        if state.buffers[link.rail()].has_large() {
            return Handed::NoBuffer;
        }
        return unregistered(pml, state, request, (link, rail), (offset, header));
    };
    // SAFETY: P3, R1, R2: the buffer was just taken, so it is ours alone, and it is as long as a receive slot.
    let bytes = unsafe { std::slice::from_raw_parts_mut((*buffer.as_ptr()).start(), rail.receive_size) };
    let (before, data) = bytes.split_at_mut(header.len());
    before.copy_from_slice(header);
    let core = state.requests.core(request);
    let (length, all) = (core.data.take_at(offset, data), core.data.length());
    if length == 0 {
        // SAFETY: P3, R2: just taken from these buffers, and not sent.
        unsafe { state.buffers[link.rail()].give_back(buffer) };
        return cannot_pack(state, all);
    }
    if offset == 0 && watch::is_watched(state, request) {
        drop(port);
        begins(state, request, (offset, length));
        port = rail.enter().expect("no callback is called with the port entered");
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
        return Handed::Nothing;
    }
    Handed::Waits(length)
}

/// Raises the event that the transfer begins, if it does so with this fragment. Call with no port entered.
fn begins(state: &mut State, request: Handle, (offset, length): (u64, usize)) {
    if offset == 0 {
        watch::begins(state, request, Bytes::Of { offset, length: length as u64 }.posted());
    }
}

fn cannot_pack(state: &mut State, length: usize) -> Handed {
    transmit::cannot_pack(state, length);
    Handed::Nothing
}

/// Sends a fragment from ordinary memory, one at a time, because the port can register no buffer.
#[cold]
fn unregistered(
    pml: &Pml,
    state: &mut State,
    request: Handle,
    (link, rail): (Link, &Rail),
    (offset, header): (u64, &[u8]),
) -> Handed {
    let core = state.requests.core(request);
    if matches!(&core.transfer, Transfer::Sending(sending) if sending.is_under_way()) {
        return Handed::Nothing;
    }
    let mut bytes = vec![0; rail.copy_size];
    bytes[..header.len()].copy_from_slice(header);
    let (length, all) = (core.data.take_at(offset, &mut bytes[header.len()..]), core.data.length());
    if length == 0 {
        return cannot_pack(state, all);
    }
    begins(state, request, (offset, length));
    if !moving::queue(pml, link, (bytes.into(), (header.len() + length) as u32), token::sent(request)) {
        transmit::failed(state);
        return Handed::Nothing;
    }
    Handed::Waits(length)
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
fn locally(pml: &Pml, state: &mut State, request: Handle, to: u32, header: &Header) -> Handed {
    let (Some(shared), &Header::Fragment { offset, .. }) = (pml.shared_memory(), header) else {
        return Handed::Nothing;
    };
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
        return cannot_pack(state, all);
    }
    begins(state, request, (offset, length));
    let has_gone = state.backlog.send(shared, to, header, payload, Then::Piece(request));
    if has_gone { Handed::Sent(length) } else { Handed::Waits(length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pml::request::{Mode, Owner, Role};
    use engine::messenger::rendezvous::fragments;

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
            fragments::wanted(&*pml, &mut *state, (sender, TransferId(7)), (asked, 0));
            assert!(state.has_failed);
            assert!(matches!(state.requests.core(send).transfer, Transfer::Announced { .. }), "nothing is sent");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs and posts the copied fragments of a long message: in a send buffer, in ordinary memory, or by shared memory.
//! The protocol is `engine::messenger::rendezvous::fragments`.
//!
//! Called by `ports`. Grade: pending. Threads: the one that has entered the PML. Tests: `pml/tests.rs`, and
//! `pt2pt_datatypes.c` in `hw-tests/mpi`.

use std::ptr::NonNull;
use std::sync::Arc;

use engine::messenger::header::Header;
use engine::messenger::host::{Data, NotPacked, Posted};
use engine::messenger::request::transfer_id::TransferId;
use engine::messenger::route::Route;

use super::buffer::SendBuffer;
use super::local::{Payload, Then};
use super::transmit::{self, Transmitted};
use super::{failover, rails, token};
use crate::pml::datatype::Extent;
use crate::pml::instance::{Pml, Rail, State};
use crate::pml::request::{Handle, Transfer};

/// A packed fragment with its header.
pub(crate) enum Fragment {
    /// The first bytes of a send buffer, as many as the number says, of this route's port.
    Buffered(Route, NonNull<SendBuffer>, usize),
    /// In ordinary memory, for this route.
    Unregistered(Route, Vec<u8>),
    /// For a process of this host.
    Local(u32, Header, Payload),
}

type Packed = Result<(Fragment, u64), NotPacked>;

/// Packs the fragment that begins at `offset`, where the last one ended.
pub(crate) fn pack(pml: &Pml, state: &mut State, request: Handle, (receiver, offset): (TransferId, u64)) -> Packed {
    let header = Header::Fragment { receive: receiver.0, offset };
    let home = state.requests.core(request).route;
    if let Some(to) = home.as_local() {
        return pack_locally(pml, state, request, to, (header, offset));
    }
    let header = header.encode();
    let header = header.as_slice();
    let route = rails::home(pml, state, home);
    let rail = pml.rails().get(route.rail()).ok_or(NotPacked::Failed)?;
    let mut port = rail.enter().ok_or(NotPacked::Failed)?;
    let buffers = &mut state.buffers[route.rail()];
    let Some(buffer) = buffers.take_large(&mut port) else {
        if buffers.has_large() {
            return Err(NotPacked::NoBuffer);
        }
        return pack_unregistered(state, request, (route, rail), (header, offset));
    };
    // SAFETY: P3, R1, R2: the buffer was just taken, so it is ours alone, and it is as long as a receive slot.
    let bytes = unsafe { std::slice::from_raw_parts_mut((*buffer.as_ptr()).start(), rail.receive_size) };
    let (before, data) = bytes.split_at_mut(header.len());
    before.copy_from_slice(header);
    let core = state.requests.core(request);
    let length = core.data.take_at(offset, data);
    if length == 0 {
        // SAFETY: P3, R2: just taken from these buffers, and not sent.
        unsafe { buffers.give_back(buffer) };
        return cannot_pack(state, request);
    }
    Ok((Fragment::Buffered(route, buffer, header.len() + length), length as u64))
}

fn cannot_pack(state: &mut State, request: Handle) -> Packed {
    let length = state.requests.core(request).data.length();
    transmit::cannot_pack(state, length);
    Err(NotPacked::Failed)
}

/// [`pack`], if the port can register no buffer.
#[cold]
fn pack_unregistered(
    state: &mut State,
    request: Handle,
    (route, rail): (Route, &Rail),
    (header, offset): (&[u8], u64),
) -> Packed {
    let core = state.requests.core(request);
    if matches!(&core.transfer, Transfer::Sending(sending) if sending.is_under_way()) {
        return Err(NotPacked::OneInFlight);
    }
    let mut bytes = vec![0; rail.copy_size];
    bytes[..header.len()].copy_from_slice(header);
    let length = core.data.take_at(offset, &mut bytes[header.len()..]);
    if length == 0 {
        return cannot_pack(state, request);
    }
    bytes.truncate(header.len() + length);
    Ok((Fragment::Unregistered(route, bytes), length as u64))
}

/// [`pack`] by shared memory, which takes contiguous data where it is.
fn pack_locally(pml: &Pml, state: &mut State, request: Handle, to: u32, (header, offset): (Header, u64)) -> Packed {
    let shared = pml.shared_memory().ok_or(NotPacked::Failed)?;
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
        return cannot_pack(state, request);
    }
    Ok((Fragment::Local(to, header, payload), length as u64))
}

/// Gives a fragment to its port. By shared memory, it is in flight only while it waits for room.
pub(crate) fn post(pml: &Pml, state: &mut State, request: Handle, fragment: Fragment) -> Posted {
    let is_in_flight = match fragment {
        Fragment::Buffered(route, buffer, length) => {
            // SAFETY: R2: `pack` took the buffer, which nobody has used since.
            unsafe { post_buffer(pml, state, request, route, (buffer, length)) }
        }
        Fragment::Unregistered(route, bytes) => {
            let length = bytes.len() as u32;
            failover::queue(pml, route, (Arc::from(bytes), length), token::sent(request))
        }
        Fragment::Local(to, header, payload) => {
            let Some(shared) = pml.shared_memory() else { return Posted::Failed };
            if state.backlog.send(shared, to, &header, payload, Then::Fragment(request)) {
                return Posted::Sent;
            }
            true
        }
    };
    if is_in_flight { Posted::InFlight } else { Posted::Failed }
}

/// Posts the first `length` bytes of a buffer of this route's port; if that has failed, sends them by another one.
/// Returns false if no port takes them.
///
/// # Safety
/// P3, R2: the buffer belongs to this port, has that many bytes, and is ours alone.
unsafe fn post_buffer(
    pml: &Pml,
    state: &mut State,
    request: Handle,
    route: Route,
    (buffer, length): (NonNull<SendBuffer>, usize),
) -> bool {
    let Some(rail) = pml.rails().get(route.rail()) else { return false };
    let Some(mut port) = rail.enter() else { return false };
    // SAFETY: P3, R2: by this function's contract.
    let transmitted = unsafe { transmit::fragment(&mut port, route, buffer, length, request) };
    transmit::note(pml, rail, &mut port, route, transmitted);
    drop(port);
    if transmitted != Transmitted::Failed {
        return true;
    }
    if !failover::fails_over(pml, state, route) {
        return false;
    }
    let home = rails::home(pml, state, route);
    // SAFETY: R2: the failed port refused the buffer, which is its own and ours alone, and has that many bytes.
    unsafe { failover::send_buffer_again(pml, state, (route, home), buffer, length as u32) }
}

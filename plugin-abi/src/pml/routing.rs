// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends messages to a peer: by shared memory (`backlog`), or by the port that is the peer's home now. If that port
//! fails, sends by another one.
//!
//! Called by `protocol` and by all modules that answer a peer. Grade: hot for [`message`], else pending. Threads: the
//! one that has entered the PML. Tests: `rail_down.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::header::Header;
use engine::messenger::link::Link;

use super::backlog::{Payload, Then};
use super::datatype::{self, Data, Extent};
use super::instance::{Pml, State};
use super::request::Request;
use super::transmit::{self, Transmitted};
use super::{moving, rails};

/// Sends a message without data. Its completion is not reported.
pub(crate) fn control(pml: &Pml, state: &mut State, link: Link, header: &Header) -> Transmitted {
    if let Some(to) = link.as_local() {
        let Some(shared) = pml.shared_memory() else { return transmit::failed(state) };
        let nothing = Payload::InPlace(Extent::EMPTY);
        let has_gone = state.backlog.send(shared, to, header, nothing, Then::Nothing);
        return if has_gone { Transmitted::Posted } else { Transmitted::Waits };
    }
    let header = header.encode();
    loop {
        let link = rails::route(pml, state, link);
        let transmitted = transmit::control_by(pml, link, header.as_slice());
        if transmitted != Transmitted::Failed {
            return transmitted;
        }
        if !moving::goes_on(pml, state, link) {
            return transmit::failed(state);
        }
    }
}

/// Sends header and data, together no longer than the rail's eager limit. `request` is finished when the message has
/// waited and has been sent.
///
/// # Safety
/// `extent` describes `data`, which may be read during the call; by shared memory, P2: until its send is finished.
pub(crate) unsafe fn message(
    pml: &Pml,
    state: &mut State,
    link: Link,
    header: &Header,
    (data, extent): (&Data, Extent),
    request: Option<NonNull<Request>>,
) -> Transmitted {
    if let Some(to) = link.as_local() {
        // SAFETY: P2: by shared memory the data may be read until the send is finished.
        return unsafe { locally(pml, state, to, header, (data, extent), request) };
    }
    let header = header.encode();
    loop {
        let link = rails::route(pml, state, link);
        // SAFETY: P2: the data may be read during the call.
        let transmitted = unsafe { transmit::message_by(pml, state, link, header.as_slice(), (data, extent), request) };
        if transmitted != Transmitted::Failed || !moving::goes_on(pml, state, link) {
            return transmitted;
        }
    }
}

/// [`message`] by shared memory. Contiguous data that has to wait is not copied.
///
/// # Safety
/// P2: `extent` describes `data`, which may be read until the send is finished.
#[inline(never)]
unsafe fn locally(
    pml: &Pml,
    state: &mut State,
    to: u32,
    header: &Header,
    (data, extent): (&Data, Extent),
    request: Option<NonNull<Request>>,
) -> Transmitted {
    let payload = if extent.start.is_null() {
        let mut bytes = vec![0; extent.length];
        // SAFETY: P2; `bytes` is as long as the message.
        if !unsafe { datatype::take(data, extent, bytes.as_mut_ptr()) } {
            return transmit::cannot_pack(state, extent.length);
        }
        Payload::Packed(bytes)
    } else {
        Payload::InPlace(extent)
    };
    let then = request.map_or(Then::Nothing, Then::Finish);
    let Some(shared) = pml.shared_memory() else { return transmit::failed(state) };
    if state.backlog.send(shared, to, header, payload, then) { Transmitted::Posted } else { Transmitted::Waits }
}

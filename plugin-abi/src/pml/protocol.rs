// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the protocol of a send that has a request, and begins it: eager, synchronous, announced or pending.
//!
//! Called by `send`, and by `flow` for sends that were pending. Grade: hot for a copied message, else pending.
//! Threads: the one that has entered the PML, and no port. Tests: `pt2pt_modes.c` and others in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::flow_control::{self, Way};
use engine::messenger::header::{Header, Match, Memory};
use engine::messenger::host::{Bytes, Data};
use engine::messenger::link::Link;
use engine::messenger::oneself;
use engine::messenger::passage::Reason;
use engine::messenger::rendezvous::Step;
use ibex_ffi::openmpi::sys;

use super::datatype::Extent;
use super::handle::Handle;
use super::instance::{Pml, Rail, State};
use super::request::{Mode, Role, Transfer};
use super::transmit::{self, Transmitted};
use super::{finish, flight, flow, passage, rails, routing, watch};

/// Begins a send, which is filled in, by `link`.
pub(crate) fn begin(pml: &Pml, state: &mut State, request: Handle, link: Link) {
    if link == Link::ONESELF {
        return oneself::send(pml, state, request);
    }
    let link = rails::route(pml, state, link);
    let core = state.requests.core(request);
    core.link = link;
    let peer = core.peer;
    let communicator = state.communicator(request);
    // If they differ, the link is marked or the peer has moved: `flow::way` stores the link anew.
    let is_noted = communicator.link(peer) == rails::in_communicator(pml, link);
    let is_free = state.messenger.flow.outgoing.is_free() && is_noted;
    let way = if is_free { Way::Free } else { flow::way(pml, state, communicator, request) };
    if way == Way::Pends {
        return flow_control::pend(pml, state, communicator.context, request);
    }
    go(pml, state, request, way);
}

/// Sends a message in the way that flow control has chosen. Returns false if it finds no room: then it pends.
pub(crate) fn go(pml: &Pml, state: &mut State, request: Handle, way: Way) -> bool {
    let (communicator, core) = (state.communicator(request), state.requests.core(request));
    let of = Match { context: communicator.context, rank: communicator.rank, tag: core.tag };
    let (link, length) = (core.link, core.data.length());
    let is_synchronous = core.role == Role::Send(Mode::Synchronous);
    let Some(eager_limit) = transmit::eager_limit(pml, link) else { return true };
    let is_long = length > eager_limit;
    if is_long || way != Way::Free {
        // A window bounds the announcements to a peer that holds this process back, so they may wait at the port.
        if way == Way::Free && !has_room(pml, state, link) {
            flow::found_no_room(pml, state, communicator, request);
            return false;
        }
        announce(pml, state, request, (of, is_long, way == Way::Announced { counted: true }));
        return true;
    }
    watch::begins(state, request, Bytes::All.posted());
    let sender = is_synchronous.then(|| state.messenger.transfers.begin(request));
    let header = sender.map_or(Header::Eager(of), |sender| Header::Synchronous(of, sender.0));
    // The receiver's answer finishes a synchronous send.
    match (routing::message(pml, state, link, &header, request, !is_synchronous), sender) {
        (Transmitted::NoRoom, sender) => {
            if let Some(sender) = sender {
                state.messenger.transfers.end(sender);
            }
            flow::found_no_room(pml, state, communicator, request);
            return false;
        }
        (Transmitted::Failed, _) => _ = transmit::failed(state),
        (Transmitted::Waits, None) => {}
        (Transmitted::Posted | Transmitted::Waits, sender) => {
            let how = |state: &mut State| Some(passage::sent(pml, state, request));
            watch::ends_by(state, request, Bytes::None.posted(), how);
            if let Some(sender) = sender {
                flight::note(state, request, &Step::Announced(sender));
                let announced = Transfer::Announced { registered: None, others: Vec::new(), counted: false };
                state.requests.core(request).transfer = announced;
            } else {
                finish::finish(state, request);
            }
        }
    }
    true
}

fn has_room(pml: &Pml, state: &State, link: Link) -> bool {
    if let Some(to) = link.as_local() {
        return !state.backlog.waits_for(to);
    }
    pml.rails().get(link.rail()).and_then(Rail::enter).is_some_and(|port| port.has_room(link.to()))
}

/// Announces a message, and registers its memory if it is long.
#[inline(never)]
fn announce(pml: &Pml, state: &mut State, request: Handle, (of, is_long, counted): (Match, bool, bool)) {
    let sender = state.messenger.transfers.begin(request);
    flight::note(state, request, &Step::Announced(sender));
    let core = state.requests.core(request);
    let (link, extent) = (core.link, core.data.extent());
    let rail = pml.rails().get(link.rail());
    let Extent { start, length } = extent;
    let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
    let address = start.expose_provenance() as u64;
    let registered = NonNull::new(start).filter(|_| is_long).zip(rail).and_then(|(start, rail)| {
        // SAFETY: P2, M3: the memory may be read until the send is finished, and its registration ends before.
        unsafe { rail.port().memory().register(start.as_ptr().cast(), length, access) }
    });
    let why = match (is_long, start.is_null()) {
        (false, _) => Reason::HeldBack,
        (true, true) => Reason::Gaps,
        (true, false) => Reason::NotRegistered,
    };
    let memory = match registered {
        Some(registered) => Memory { key: registered.rkey(), address, length: length as u64 },
        // A receiver that reads by shared memory needs no key. The address is 0 for data with gaps.
        None if rail.is_none() && is_long => Memory { key: 0, address, length: length as u64 },
        None => Memory { key: why.code(), address: 0, length: length as u64 },
    };
    let others = match registered {
        // SAFETY: P2, M3: the memory may be read until the send is finished, and its registrations end before.
        Some(_) => unsafe { rails::register(pml, state, link, extent) },
        None => Vec::new(),
    };
    let rails = 1 + others.len();
    // Raises no begin event: it comes with the first copy or, if the receiver reads, with the receiver's answer.
    watch::goes(state, request, |_| Some(passage::announced(pml, link, (memory, why), rails)));
    match registered {
        Some(registered) if pml.has_several() => {
            let registered = std::iter::once((link.rail(), registered)).chain(others.iter().copied());
            rails::announce(pml, state, link, (of, sender, memory), registered);
        }
        _ => _ = routing::control(pml, state, link, &Header::Announce(of, sender.0, memory)),
    }
    state.requests.core(request).transfer = Transfer::Announced { registered, others, counted };
}

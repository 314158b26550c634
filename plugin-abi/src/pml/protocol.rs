// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the protocol of a send that has a request, and begins it: eager, synchronous, announced or pending.
//!
//! Called by `send`, and by `flow` for sends that were pending. Grade: hot for a copied message, else pending.
//! Threads: the one that has entered the PML, and no port. Tests: `pt2pt_modes.c` and others in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::flow_control::Way;
use engine::messenger::header::{Header, Match, Memory};
use engine::messenger::link::Link;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::datatype::Extent;
use super::flight::Step;
use super::instance::{Pml, Rail, State};
use super::passage::{self, Reason};
use super::request::{Mode, Request, Role, Transfer};
use super::transfers::Bytes;
use super::transmit::{self, Transmitted};
use super::{finish, flight, flow, oneself, rails, routing, watch};

/// Begins a send by `link`.
pub(crate) unsafe fn begin(pml: &Pml, state: &mut State, request: NonNull<Request>, link: Link) {
    if link == Link::ONESELF {
        // SAFETY: P1: filled in, not begun, and only the caller has it.
        return unsafe { oneself::send(pml, state, request) };
    }
    // SAFETY: P1: only the caller has the request; P3.
    let r = unsafe { &mut *request.as_ptr() };
    r.core.link = rails::route(pml, state, link);
    // SAFETY: P1: not finished, so its communicator lives; P4: a call of MPI has it, so it is still the PML's.
    let communicator = unsafe { Communicator::of(r.comm()) };
    // If not, the link is marked or the peer has moved: `flow::way` stores the link anew.
    let is_noted = communicator.link(r.core.peer) == rails::in_communicator(pml, r.core.link);
    let is_free = state.flow.outgoing.is_free() && is_noted;
    let way = if is_free { Way::Free } else { flow::way(pml, state, communicator, r) };
    if way == Way::Pends {
        return flow::pend(pml, state, communicator.context, request);
    }
    // SAFETY: P1: filled in, not begun, and only the caller has it.
    unsafe { go(pml, state, request, way) };
}

/// Sends a message in the way that flow control has chosen. Returns false if it finds no room: then it pends.
pub(crate) unsafe fn go(pml: &Pml, state: &mut State, request: NonNull<Request>, way: Way) -> bool {
    // SAFETY: P1: only the caller has the request; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let link = r.core.link;
    // SAFETY: P1: not finished, so its communicator lives; the PML still has it, as this function requires.
    let communicator = unsafe { Communicator::of(r.comm()) };
    let of = Match { context: communicator.context, rank: communicator.rank, tag: r.core.tag };
    let Some(eager_limit) = transmit::eager_limit(pml, link) else { return true };
    let is_long = r.core.extent.length > eager_limit;
    if is_long || way != Way::Free {
        // A window bounds the announcements to a peer that holds back, which may therefore wait for the port.
        if way == Way::Free && !has_room(pml, state, link) {
            flow::found_no_room(pml, state, communicator, request);
            return false;
        }
        // SAFETY: P1: filled in, not begun, and only the caller has it.
        unsafe { announce(pml, state, request, (of, is_long, way == Way::Announced { counted: true })) };
        return true;
    }
    let (data, extent) = (r.core.data, r.core.extent);
    // SAFETY: P1: not finished; P3. Its data is handed to the port below.
    unsafe { watch::begins(r, Bytes::All.posted()) };
    let sender = (r.core.role == Role::Send(Mode::Synchronous)).then(|| state.transfers.begin(request));
    let header = sender.map_or(Header::Eager(of), |sender| Header::Synchronous(of, sender.0));
    // The receiver's answer finishes a synchronous send.
    let finishes = if sender.is_some() { None } else { Some(request) };
    // SAFETY: P2: the data may be read until the send is finished.
    match (unsafe { routing::message(pml, state, link, &header, (&data, extent), finishes) }, sender) {
        (Transmitted::NoRoom, sender) => {
            if let Some(sender) = sender {
                state.transfers.end(sender);
            }
            flow::found_no_room(pml, state, communicator, request);
            return false;
        }
        (Transmitted::Failed, _) => _ = transmit::failed(state),
        (Transmitted::Waits, None) => {}
        (Transmitted::Posted | Transmitted::Waits, sender) => {
            // SAFETY: P1: the send is not finished; P3.
            let r = unsafe { &mut *request.as_ptr() };
            // SAFETY: P1: the adapter or the port has the whole message, and nothing else refers to the request.
            unsafe {
                watch::ends_by(r, Bytes::None.posted(), |r| Some(passage::sent(pml, state, r)));
                if let Some(sender) = sender {
                    flight::note(r, &Step::Announced(sender));
                    r.core.transfer = Transfer::Announced { registered: None, others: Vec::new(), counted: false };
                } else {
                    finish::finish(state, request);
                }
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
unsafe fn announce(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    (of, is_long, counted): (Match, bool, bool),
) {
    let sender = state.transfers.begin(request);
    // SAFETY: P1: only the caller has the request; P3.
    let r = unsafe { &mut *request.as_ptr() };
    // SAFETY: P1: the send is not finished.
    unsafe { flight::note(r, &Step::Announced(sender)) };
    let rail = pml.rails().get(r.core.link.rail());
    let Extent { start, length } = r.core.extent;
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
        // By shared memory the receiver reads without a key. The address is 0 for data with gaps.
        None if rail.is_none() && is_long => Memory { key: 0, address, length: length as u64 },
        None => Memory { key: passage::code(why), address: 0, length: length as u64 },
    };
    let others = match registered {
        // SAFETY: P2, M3: the memory may be read until the send is finished, and its registrations end before.
        Some(_) => unsafe { rails::register(pml, state, r.core.link, r.core.extent) },
        None => Vec::new(),
    };
    let (link, rails) = (r.core.link, 1 + others.len());
    // No transfer begins yet: copies begin with the first, and the receiver's answer is the first sign of a read.
    // SAFETY: P1: not finished; P3.
    unsafe { watch::goes(r, |_| Some(passage::announced(pml, link, (memory, why), rails))) };
    match registered {
        Some(registered) if pml.has_several() => {
            let registered = std::iter::once((link.rail(), registered)).chain(others.iter().copied());
            rails::announce(pml, state, link, (of, sender, memory), registered);
        }
        _ => _ = routing::control(pml, state, link, &Header::Announce(of, sender.0, memory)),
    }
    r.core.transfer = Transfer::Announced { registered, others, counted };
}

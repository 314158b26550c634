// SPDX-License-Identifier: MIT OR Apache-2.0
//! By which protocol a message goes that has a request, and the beginning of each.
//!
//! At once, synchronous, announced, or not yet, as flow control has it (`flow`). Called by `send`, and by `resume` for
//! what pended. Grade: hot for a copied message, else pending. Threads: who has entered the PML, and no port. Tests:
//! `pt2pt_modes.c` and others in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::protocol::flow_control::Way;
use engine::protocol::header::{Header, Match, Memory};
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::datatype::Extent;
use super::flight::Step;
use super::instance::{Pml, Rail, State};
use super::link::Link;
use super::passage::{self, Reason};
use super::request::{Mode, Request, Role, Transfer};
use super::transfers::Bytes;
use super::transmit::{self, Transmitted};
use super::{finish, flight, flow, oneself, rails, routing, striped, watch};

#[inline(always)]
fn match_of(communicator: &Communicator, tag: i32) -> Match {
    Match { context: communicator.context, rank: communicator.rank, tag }
}

/// Begins a send to a peer that is found.
///
/// # Safety
/// P1: a send that is filled in, and the caller's alone until now.
pub(crate) unsafe fn begin(pml: &Pml, state: &mut State, request: NonNull<Request>, link: Link) {
    if link == Link::ONESELF {
        // SAFETY: P1: filled in, and the caller's alone.
        return unsafe { oneself::send(pml, state, request) };
    }
    // SAFETY: P1: the caller's alone; P3.
    let r = unsafe { &mut *request.as_ptr() };
    r.link = rails::route(pml, state, link);
    // SAFETY: P1: not finished, so its communicator lives; MPI's call has it, so it is the PML's still (P4).
    let communicator = unsafe { Communicator::of(r.comm()) };
    // A link that is marked is unmarked by the first message that goes freely again, one that has moved noted.
    let is_noted = communicator.link(r.peer) == rails::in_communicator(pml, r.link);
    let is_free = state.flow.outgoing.is_free() && is_noted;
    let way = if is_free { Way::Free } else { flow::way(pml, state, communicator, r) };
    // SAFETY: P1: filled in, and the caller's alone.
    unsafe { go(pml, state, request, way) };
}

/// Sends a message in the way that flow control has for it, or has it pend.
///
/// # Safety
/// P1: a send that is filled in, and the caller's alone until now; it knows its link; its communicator is the PML's.
pub(crate) unsafe fn go(pml: &Pml, state: &mut State, request: NonNull<Request>, way: Way) {
    // SAFETY: P1: the caller's alone; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let link = r.link;
    // SAFETY: P1: not finished, so its communicator lives; it is the PML's.
    let of = match_of(unsafe { Communicator::of(r.comm()) }, r.tag);
    let Some(eager_limit) = transmit::eager_limit(pml, link) else { return };
    let is_synchronous = r.role == Role::Send(Mode::Synchronous);
    let is_long = r.extent.length > eager_limit;
    if way == Way::Pends {
        return flow::pend(pml, state, link, of.context, request);
    }
    match way {
        // SAFETY: P1: filled in, and the caller's alone.
        Way::Announced { counted } => unsafe {
            return announce(pml, state, request, (of, is_long, counted), Reason::HeldBack);
        },
        // Nobody hears of a synchronous one that waits for the port, so that it must not.
        // SAFETY: P1: filled in, and the caller's alone.
        Way::Free if is_long || is_synchronous && !has_room(pml, state, link) => unsafe {
            return announce(pml, state, request, (of, is_long, false), Reason::Synchronous);
        },
        Way::Free | Way::Pends => {}
    }
    let (data, extent) = (r.data, r.extent);
    let data = (&data, extent);
    // SAFETY: P1: not finished; P3. Its bytes are handed on here.
    unsafe { watch::begins(r, Bytes::All.posted()) };
    let transmitted = if is_synchronous {
        let sender = state.transfers.begin(request);
        // SAFETY: P1: not finished.
        unsafe { flight::note(r, &Step::Announced(sender)) };
        r.transfer = Transfer::Announced { registered: None, others: Vec::new(), counted: false };
        let header = Header::Synchronous(of, sender.0);
        // SAFETY: P2, until the send is finished. The receiver's answer finishes it.
        unsafe { routing::message(pml, state, link, &header, data, None) }
    } else {
        // SAFETY: P2, until the send is finished.
        unsafe { routing::message(pml, state, link, &Header::Eager(of), data, Some(request)) }
    };
    if transmitted == Transmitted::Posted || transmitted == Transmitted::Waits && is_synchronous {
        let waits = transmitted == Transmitted::Waits;
        // SAFETY: P1: not finished; P3.
        unsafe {
            watch::ends_by(&mut *request.as_ptr(), Bytes::None.posted(), |r| Some(passage::sent(pml, state, r, waits)));
        };
    }
    match transmitted {
        // SAFETY: P1: all of it is with the adapter, and nothing names the request.
        Transmitted::Posted if !is_synchronous => unsafe { finish::finish(state, request) },
        Transmitted::Waits if !is_synchronous => flow::waits(pml, state, link, extent.length),
        Transmitted::Posted | Transmitted::Waits => {}
        Transmitted::Failed => _ = transmit::failed(state),
    }
}

/// Whether a message can go by this link now.
fn has_room(pml: &Pml, state: &State, link: Link) -> bool {
    if let Some(to) = link.as_local() {
        return !state.backlog.waits_for(to);
    }
    pml.rails().get(link.rail()).and_then(Rail::enter).is_some_and(|port| port.has_room(link.to()))
}

/// Announces a message, with the place where it can be read if it is long and its memory can be registered. A short one
/// is quicker sent as a copy; `why` it is announced is said then.
///
/// # Safety
/// P1: a send that is filled in, and the caller's alone until now; it knows its link.
#[inline(never)]
unsafe fn announce(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    (of, is_long, counted): (Match, bool, bool),
    why: Reason,
) {
    let sender = state.transfers.begin(request);
    // SAFETY: P1: not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    // SAFETY: P1: not finished.
    unsafe { flight::note(r, &Step::Announced(sender)) };
    let rail = pml.rails().get(r.link.rail());
    let Extent { start, length } = r.extent;
    let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
    let address = start.expose_provenance() as u64;
    let registered = NonNull::new(start).filter(|_| is_long).zip(rail).and_then(|(start, rail)| {
        // SAFETY: P2, until the send is finished; so M3.
        unsafe { rail.port().memory().register(start.as_ptr().cast(), length, access) }
    });
    let why = match (is_long, start.is_null()) {
        (false, _) => why,
        (true, true) => Reason::Gaps,
        (true, false) => Reason::NotRegistered,
    };
    let memory = match registered {
        Some(registered) => Memory { key: registered.rkey(), address, length: length as u64 },
        // By shared memory it is read without a key. With gaps the address is 0.
        None if rail.is_none() && is_long => Memory { key: 0, address, length: length as u64 },
        None => Memory { key: passage::code(why), address: 0, length: length as u64 },
    };
    let others = match registered {
        // SAFETY: P2, until the send is finished; so M3.
        Some(_) => unsafe { striped::register(pml, state, r.link, r.extent) },
        None => Vec::new(),
    };
    let link = r.link;
    if memory.address != 0 {
        // SAFETY: P1: not finished; P3. From here on it may be read.
        unsafe { watch::begins_by(r, Bytes::None.posted(), |_| passage::announced(pml, link, (memory, why))) };
    } else {
        // SAFETY: P1: not finished; P3. Copies of it are sent.
        unsafe { watch::goes(r, |_| passage::announced(pml, link, (memory, why))) };
    }
    match registered {
        Some(registered) if pml.has_several() => {
            let registered = std::iter::once((link.rail(), registered)).chain(others.iter().copied());
            striped::announce(pml, state, link, (of, sender, memory), registered);
        }
        _ => _ = routing::control(pml, state, link, &Header::Announce(of, sender.0, memory)),
    }
    r.transfer = Transfer::Announced { registered, others, counted };
}

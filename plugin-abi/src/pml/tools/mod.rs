// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the PML gives events to tools (`engine::messenger::host::Tools`): to the listeners of a communicator
//! (`runtime/listeners`), with the specification of PERUSE. The engine (`engine::messenger::events`) decides which
//! events there are. `listening` opens and closes the fast paths when tools start or stop listening.
//!
//! An event is raised where it happens, with the PML entered, so a callback may not call MPI (PERUSE 5.1.2). Grade: hot
//! for a watched message. Threads: the one that has entered the PML. Tests: `pml/tests/send_events.rs`, and
//! `hw-tests/tools/peruse_requests.c`.

use std::ffi::c_int;
use std::ptr::null_mut;

use engine::flight::{Kind, NO_PORT, NOBODY, record};
use engine::messenger::events;
use engine::messenger::host::{Data, Tools};
use engine::messenger::path_taken::{PathTaken, lookup};
use engine::messenger::route::{Account, Route};
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::request::{Call, Handle, Owner, Request, Role};
use crate::runtime::listeners::{Event, Listeners, ProtocolSpec, Spec};
use crate::runtime::watch::numbers;

pub(super) mod listening;

/// `PERUSE_SEND`, `PERUSE_RECV`
pub(crate) const SEND: c_int = 0;
pub(crate) const RECEIVE: c_int = 1;

impl Tools for State {
    type Listeners = &'static Listeners;
    type Spec = Spec;

    #[inline(always)]
    fn listeners(&mut self, of: &'static Communicator) -> Option<&'static Listeners> {
        of.comm.listeners(self)
    }

    #[inline(always)]
    fn listeners_of(&mut self, request: Handle) -> Option<&'static Listeners> {
        self.requests.get(request).listeners()
    }

    /// A blocking call that began before a tool listened has not noted its arguments.
    #[inline(always)]
    fn is_silent(&mut self, request: Handle) -> bool {
        self.requests.get(request).shell.owner == Owner::Call
    }

    #[inline(always)]
    fn wants(listeners: &'static Listeners, event: Event) -> bool {
        listeners.wants(event)
    }

    #[inline(always)]
    fn numbers(&mut self, count: u64) -> u64 {
        numbers(count)
    }

    fn introduce(&mut self, request: Handle) {
        let request = self.requests.get(request);
        let operation = if request.core.role == Role::Receive { RECEIVE } else { SEND };
        request.spec = spec(&request.call(), operation, request.core.data.length());
    }

    #[inline(always)]
    fn spec(&mut self, of: &'static Communicator, (peer, tag): (i32, i32), length: usize) -> Spec {
        Spec {
            comm: of.comm.raw(),
            buf: null_mut(),
            count: saturated(length),
            // SAFETY: takes the address of an object that Open MPI never frees.
            datatype: unsafe { sys::ibex_byte() },
            peer,
            tag,
            operation: RECEIVE,
            context: of.context,
            bytes: length as u64,
            stamp: 0,
        }
    }

    fn of_spec(spec: &Spec) -> ((i32, i32), usize) {
        ((spec.peer, spec.tag), spec.bytes as usize)
    }

    #[inline(always)]
    fn raise(&mut self, listeners: &'static Listeners, event: Event, id: u64, request: Handle) {
        listeners.raise(event, id, &mut self.requests.get(request).spec);
    }

    #[inline(always)]
    fn raise_of_message(&mut self, listeners: &'static Listeners, event: Event, id: u64, spec: &mut Spec) {
        listeners.raise(event, id, spec);
    }

    fn raise_path(
        &mut self,
        to: &'static Listeners,
        request: Handle,
        (message, length): (u64, usize),
        path: PathTaken,
    ) {
        let request = self.requests.get(request);
        let spec = Spec { bytes: length as u64, ..request.spec };
        to.raise_protocol(request.core.watched.id, &mut ProtocolSpec { spec, message, path });
    }

    fn raise_path_of_message(&mut self, to: &'static Listeners, id: u64, spec: &Spec, path: PathTaken) {
        to.raise_protocol(id, &mut ProtocolSpec { spec: *spec, message: 0, path });
    }

    fn rank_in_job(&mut self, of: &'static Communicator, rank: i32) -> u32 {
        of.comm.rank_in_job(rank)
    }

    fn route_to(&mut self, pml: &Pml, of: &'static Communicator, rank: i32) -> Option<Route> {
        lookup::route_to(pml, self, of, rank)
    }

    fn record_flow(&mut self, pml: &Pml, held_back: Option<Account>) {
        let name = held_back.and_then(|Account(route)| pml.rails().get(route.rail())?.enter()?.peer_name(route.to()));
        let kind = if held_back.is_some() { Kind::SenderHeldBack } else { Kind::SendersLetGo };
        let kept = self.messenger.flow.kept.bytes();
        record((kind, 0), NO_PORT, name.map_or(NOBODY, |name| name.rank), [kept, 0, 0, 0]);
    }
}

fn saturated(count: usize) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Returns the specification of a request of `length` bytes; `operation`: [`SEND`] or [`RECEIVE`].
#[inline(always)]
pub(crate) fn spec(call: &Call, operation: c_int, length: usize) -> Spec {
    let Call { data, peer, tag, comm } = *call;
    let (buf, count, datatype) = (data.buffer(), saturated(data.count()), data.datatype().raw());
    let (context, bytes) = (comm.context(), length as u64);
    Spec { comm: comm.raw(), buf, count, datatype, peer, tag, operation, context, bytes, stamp: 0 }
}

/// Gives a request its number for tools, and its specification.
#[inline(always)]
pub(crate) fn introduce(request: &mut Request, id: u64, spec: Spec) {
    request.core.watched.renew(id);
    request.spec = spec;
}

/// Raises the events of a request that MPI frees. If it is complete and not persistent, its wait ends here.
#[inline(always)]
pub(crate) fn freed(state: &mut State, request: Handle, is_complete: bool) {
    if state.listeners_of(request).is_some() {
        if is_complete && !state.requests.get(request).base().req_persistent {
            events::raise(state, request, Event::Notify);
        }
        events::raise(state, request, Event::Free);
    }
}

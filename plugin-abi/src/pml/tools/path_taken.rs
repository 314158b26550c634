// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out the path of a message (`engine::messenger::path_taken`): its port and queue pair, and the data from which
//! protocol and reason follow.
//!
//! Computed only while a tool asks for it ([`super::watch`]). Called by `tools`, `send`, `receive` and `reads`.
//! Grade: pending. Threads: the one that has entered the PML, and no port. Tests: `hw-tests/tools/mpi_t_protocols.c`.

use engine::messenger::header::{EAGER_SIZE, Header, Match};
use engine::messenger::host::Data;
use engine::messenger::host::Process as _;
use engine::messenger::matching::Envelope;
use engine::messenger::path_taken::{PathTaken, Protocol, Reason, at_once, not_read};
use engine::messenger::rails::routes;
use engine::messenger::receive::arrived::{Arrived, Body};
use engine::messenger::route::Route;

use crate::pml::communicator::Communicator;
use crate::pml::instance::{Pml, Rail, State, pml};
use crate::pml::ports::rails;
use crate::pml::request::{Handle, Mode, Request, Role};
use crate::runtime::listeners::{Listeners, ProtocolSpec, Spec};
use crate::runtime::modex;

/// Returns the path of a message by this route, which uses `rails` ports in all.
pub(crate) fn by(pml: &Pml, route: Route, (protocol, reason): (Protocol, Reason), rails: usize) -> PathTaken {
    if route.as_local().is_some() {
        return PathTaken::SHARED_MEMORY;
    }
    let Some(rail) = pml.rails().get(route.rail()) else { return PathTaken::without_port(protocol, reason) };
    let queue_pair = rail.enter().and_then(|port| port.queue_pair(route.to())).unwrap_or_default();
    PathTaken { protocol, reason, port: u32::from(rail.port().index()), queue_pair, rails: rails as u32 }
}

/// Returns the length of the longest message inside a work request of a rail, header included, bytes.
fn inline_of(rail: Option<&Rail>) -> usize {
    rail.map_or(0, |rail| rail.port().attributes().max_inline as usize)
}

/// Raises the protocol event of a message that the only port sent without a request.
#[cold]
#[inline(never)]
pub(crate) fn tell_at_once(listeners: &Listeners, id: u64, spec: &Spec, route: Route) {
    let Some(pml) = pml() else { return };
    let how = at_once((EAGER_SIZE, spec.bytes as usize), false, inline_of(pml.rails().get(route.rail())));
    let mut told = ProtocolSpec { spec: *spec, message: 0, path: by(pml, route, how, 1) };
    listeners.tell_protocol(id, &mut told);
}

/// Returns the path of a send whose message is sent whole.
pub(crate) fn sent(pml: &Pml, state: &mut State, send: Handle) -> PathTaken {
    let send = state.requests.get(send);
    let (header, route) = (header_of(send), send.core.route);
    let (length, has_gaps) = (send.core.data.length(), !send.core.data.is_contiguous());
    let route = routes::home(pml, state, route);
    let inline = inline_of(pml.rails().get(route.rail()));
    by(pml, route, at_once((header, length), has_gaps, inline), 1)
}

/// Returns the length of the header of a message that is sent whole.
fn header_of(request: &Request) -> usize {
    if request.core.role != Role::Send(Mode::Synchronous) {
        return EAGER_SIZE;
    }
    // It has listeners, so it is the PML's.
    let communicator = request.comm().part();
    synchronous(communicator.context, communicator.rank, request.core.tag)
}

/// Returns the length of the header of a synchronous message.
fn synchronous(context: u32, rank: i32, tag: i32) -> usize {
    let of = Match { context, rank, tag };
    Header::Synchronous(of, 0).encode().as_slice().len()
}

/// Returns the path of a whole message that has matched, by its lengths alone, because the message does not say
/// whether its sender copied it. `from` may be unknown.
pub(crate) fn came_whole(
    pml: &Pml,
    state: &mut State,
    (communicator, envelope): (&Communicator, Envelope),
    from: Route,
    (header, length): (usize, usize),
) -> PathTaken {
    let Some(from) = sender(pml, state, communicator, envelope, from) else {
        let how = at_once((header, length), false, inline_of(pml.rails().first()));
        return PathTaken { rails: 1, ..PathTaken::without_port(how.0, how.1) };
    };
    if from == Route::LOOPBACK {
        return PathTaken::LOOPBACK;
    }
    let how = at_once((header, length), false, inline_of(pml.rails().get(from.rail())));
    by(pml, from, how, 1)
}

/// Returns the path of a message that has matched; `None` if the receiver may read it.
pub(crate) fn came(
    pml: &Pml,
    state: &mut State,
    of: (&Communicator, Envelope),
    message: &Arrived,
    receive: Handle,
) -> Option<PathTaken> {
    let from = message.from;
    let memory = match &message.body {
        Body::Short(..) | Body::Whole(_) => {
            return Some(came_whole(pml, state, of, from, (EAGER_SIZE, message.length())));
        }
        Body::Synchronous(..) => {
            let (communicator, envelope) = of;
            let header = synchronous(communicator.context, envelope.source(), envelope.tag());
            return Some(came_whole(pml, state, of, from, (header, message.length())));
        }
        Body::ReadyToSend(_, memory) | Body::ReadyToSendKeyed(_, memory, _) => memory,
    };
    if from == Route::LOOPBACK {
        return Some(PathTaken::LOOPBACK);
    }
    if from.as_local().is_some() {
        return Some(PathTaken::SHARED_MEMORY);
    }
    let data = &state.requests.core(receive).data;
    let (room, has_gaps) = (data.length(), !data.is_contiguous());
    Some(by(pml, from, not_read(memory, room, has_gaps)?, 1))
}

/// Returns the route to the sender of a message; looks the sender's rank up if it has no route yet.
fn sender(pml: &Pml, state: &mut State, communicator: &Communicator, envelope: Envelope, from: Route) -> Option<Route> {
    if from != Route::UNKNOWN {
        return Some(from);
    }
    let route = communicator.route(envelope.source());
    if route != Route::UNKNOWN {
        return Some(route.unmarked());
    }
    let known = rails::known(state, communicator.comm, envelope.source());
    if known.is_some() || pml.is_multi_rail() {
        return known;
    }
    let name = modex::from_openmpi(communicator.comm.process(envelope.source())?.name());
    let route = *rails::routes_to(pml, name).ok()?.first()?;
    state.messenger.rails.known.insert(name, route);
    Some(route)
}

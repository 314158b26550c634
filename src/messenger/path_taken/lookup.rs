// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out the path of a message: its port and queue pair, and the data from which protocol and reason follow.
//!
//! Called by `messenger/events` while a tool asks for it. Grade: pending. Threads: the one that has entered the
//! messenger, and no port. Tests: `simulation/src/world/paths.rs`, and `mpi_t_protocols.c` in `hw-tests/tools`.

use super::{PathTaken, Protocol, Reason, at_once, not_read};
use crate::messenger::header::{EAGER_SIZE, Header, Match, WireEnvelope};
use crate::messenger::host::{Data, Host, PeerOf, PortHost, Process, Rail};
use crate::messenger::receive::arrived::{Arrived, Body};
use crate::messenger::request::Transfer;
use crate::messenger::route::Route;

/// Returns the path of a message by this route, which uses `rails` ports in all.
pub fn by<P: Process>(process: &P, route: Route, (protocol, reason): (Protocol, Reason), rails: usize) -> PathTaken {
    if route.as_local().is_some() {
        return PathTaken::SHARED_MEMORY;
    }
    let Some(rail) = process.rail(route.rail()) else { return PathTaken::without_port(protocol, reason) };
    let queue_pair = process.enter_port(route.rail()).and_then(|port| port.queue_pair(route.to())).unwrap_or_default();
    PathTaken { protocol, reason, port: rail.port.into(), queue_pair, rails: rails as u32 }
}

/// Returns the path of an eager message of `length` bytes whose data has no gaps, by this route.
pub fn eager<P: Process>(process: &P, route: Route, length: usize) -> PathTaken {
    whole(process, route, (EAGER_SIZE, length), false)
}

/// Returns the path of a message that is sent whole by this route.
fn whole<P: Process>(process: &P, route: Route, lengths: (usize, usize), has_gaps: bool) -> PathTaken {
    by(process, route, at_once(lengths, has_gaps, longest_inline(process.rail(route.rail()))), 1)
}

fn longest_inline(rail: Option<&Rail>) -> usize {
    rail.map_or(0, |rail| rail.max_inline)
}

/// Returns the path of a send whose message is sent whole.
pub fn sent<H: Host>(process: &H::Process, host: &mut H, send: H::Handle) -> PathTaken {
    let of = host.communicator(send);
    let (context, rank, core) = (host.number(of), host.rank(of), host.core(send));
    let of = Match { context, envelope: H::Envelope::new(rank, core.tag) };
    let header = header_length(of, !core.role.ends_when_sent());
    let (length, has_gaps, route) = (core.data.length(), !core.data.is_contiguous(), core.route);
    let route = host.home(process, route);
    whole(process, route, (header, length), has_gaps)
}

/// Returns the path of a receive that reads its message.
pub fn read<H: Host>(process: &H::Process, host: &mut H, receive: H::Handle) -> Option<PathTaken> {
    let Transfer::Reading(reads) = &host.core(receive).transfer else { return None };
    let mut rails = reads.stripes.rails();
    let count = rails.len();
    Some(by(process, rails.next()?.route, (Protocol::Read, Reason::Size), count))
}

/// Returns the path of a whole message of `length` bytes that has matched, by the lengths of its header and of its data
/// alone, because the message does not say whether its sender copied it. `is_answered`: the sender waits for its match
/// or delivery, which lengthens the header. `from` may be unknown.
pub fn came_whole<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: (H::Communicator, H::Envelope),
    from: Route,
    (length, is_answered): (usize, bool),
) -> PathTaken {
    let lengths = (header_length(Match { context: host.number(of.0), envelope: of.1 }, is_answered), length);
    let Some(from) = sender(process, host, of, from) else {
        let (protocol, reason) = at_once(lengths, false, longest_inline(process.rail(0)));
        return PathTaken { rails: 1, ..PathTaken::without_port(protocol, reason) };
    };
    if from == Route::LOOPBACK {
        return PathTaken::LOOPBACK;
    }
    whole(process, from, lengths, false)
}

/// Returns the length of the header of a whole message. `is_answered`: its sender waits for its match or delivery.
fn header_length<E: WireEnvelope>(of: Match<E>, is_answered: bool) -> usize {
    let header = if is_answered { Header::Synchronous(of, 0) } else { Header::Eager(of) };
    header.encode().len()
}

/// Returns the path of a message that has matched; `None` if the receiver may read it.
pub fn came<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: (H::Communicator, H::Envelope),
    message: &Arrived,
    receive: H::Handle,
) -> Option<PathTaken> {
    let from = message.from;
    let memory = match &message.body {
        Body::Short(..) | Body::Whole(_) | Body::Delivered(_) | Body::Synchronous(..) => {
            let is_answered = matches!(message.body, Body::Delivered(_) | Body::Synchronous(..));
            return Some(came_whole(process, host, of, from, (message.length(), is_answered)));
        }
        Body::ReadyToSend(_, memory) | Body::ReadyToSendKeyed(_, memory, _) => memory,
    };
    if from == Route::LOOPBACK {
        return Some(PathTaken::LOOPBACK);
    }
    if from.as_local().is_some() {
        return Some(PathTaken::SHARED_MEMORY);
    }
    let data = &host.core(receive).data;
    let (room, has_gaps) = (data.length(), !data.is_contiguous());
    Some(by(process, from, not_read(memory, room, has_gaps)?, 1))
}

/// Returns the route to a rank of a communicator, for a host with ports; looks its process up if it has no route yet.
pub fn route_to<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    of: H::Communicator,
    rank: PeerOf<H>,
) -> Option<Route> {
    let known = host.known_route(of, rank);
    if known.is_some() || process.is_multi_rail() {
        return known;
    }
    let name = host.name_of(of, rank)?;
    let route = *host.routes_to(process, name).first()?;
    host.messenger().rails.known.insert(name, route);
    Some(route)
}

/// Returns the route to the sender of a message.
fn sender<H: Host>(
    process: &H::Process,
    host: &mut H,
    (of, envelope): (H::Communicator, H::Envelope),
    from: Route,
) -> Option<Route> {
    if from != Route::UNKNOWN {
        return Some(from);
    }
    host.route_to(process, of, envelope.source())
}

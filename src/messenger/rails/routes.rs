// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routes to a peer with several rails: which one its messages use now (its home), which one names its account in
//! flow control, and which ones read a long message. With one rail, a route stays as it is.
//!
//! A sender announces a long message with the keys of several ports; the receiver reads by those of its ports that are
//! connected to one of them ([`readable_by`]), and its other ports begin to connect, for the next message. Called by
//! `rails`, `transmit` and `failover`, and by the host. Grade: hot for [`note`] and [`home`], pending for long
//! messages, else setup. Threads: the one that has entered the messenger, and no port; for [`note`], a port. Tests:
//! those of the hosts.

use super::peer::Peer;
use crate::messenger::header::PortKey;
use crate::messenger::host::{Host, PortHost, Process};
use crate::messenger::route::{Account, Route};
use crate::peer::PeerName;
use crate::transport::Port;
use crate::transport::adapter::Adapter;

/// Returns the route that messages to the peer of `route` use now.
#[inline]
pub fn home<H: PortHost>(process: &H::Process, host: &mut H, route: Route) -> Route {
    if !process.is_multi_rail() || route.as_local().is_some() {
        return route;
    }
    peer_of(process, host, route).map_or(route, |peer| host.messenger().rails.multi_rail.peers[peer].home)
}

/// Returns flow control's account of the peer of `route`: the first of its routes, which never changes.
pub(super) fn account<H: PortHost>(process: &H::Process, host: &mut H, route: Route) -> Account {
    if !process.is_multi_rail() || route.as_local().is_some() {
        return Account(route);
    }
    peer_of(process, host, route).map_or(Account(route), |peer| host.messenger().rails.multi_rail.peers[peer].account())
}

/// Returns the routes that communicators may have stored for a peer.
pub(super) fn of_account<H: PortHost>(process: &H::Process, host: &mut H, Account(route): Account) -> Vec<Route> {
    let is_by_port = process.is_multi_rail() && route.as_local().is_none();
    let peer = if is_by_port { peer_of(process, host, route) } else { None };
    peer.map_or_else(
        || vec![route],
        |peer| {
            let routes = host.messenger().rails.multi_rail.peers[peer].routes.iter();
            routes.map(|route| route.as_multi_rail()).collect()
        },
    )
}

/// Returns the form in which communicators store this route.
#[inline]
pub fn stored<P: Process>(process: &P, route: Route) -> Route {
    if process.is_multi_rail() && route.as_local().is_none() { route.as_multi_rail() } else { route }
}

/// Returns the index of the peer of a rail's route; `None` if the peer is gone, or the route is not a rail's.
pub(super) fn peer_of<H: PortHost>(process: &H::Process, host: &mut H, route: Route) -> Option<usize> {
    // A faulty process of this machine may name any sender.
    process.rail(route.rail())?;
    let known = host.messenger().rails.multi_rail.peer_of(route);
    known.or_else(|| look_up(process, host, route))
}

#[cold]
fn look_up<H: PortHost>(process: &H::Process, host: &mut H, route: Route) -> Option<usize> {
    let port = process.enter_port(route.rail())?;
    let name = port.peer_name(route.to()).filter(|_| !port.has_gone(route.to()))?;
    drop(port);
    let multi_rail = &mut host.messenger().rails.multi_rail;
    if let Some(peer) = multi_rail.by_name.get(&name).copied() {
        multi_rail.set_peer(route, peer);
        return Some(peer);
    }
    let mut routes = host.routes_to(process, name);
    if routes.is_empty() {
        return None;
    }
    if !routes.contains(&route) {
        routes.push(route);
    }
    Some(add(process, host, name, routes))
}

/// Adds a peer that these routes, at least one, lead to. Returns its index.
pub fn add<H: PortHost>(process: &H::Process, host: &mut H, name: PeerName, routes: Vec<Route>) -> usize {
    if let Some(known) = host.messenger().rails.multi_rail.by_name.get(&name) {
        return *known;
    }
    let peer = Peer::new(routes, [host.me(), name.rank], |route| is_usable(process, route));
    let home = peer.home;
    if let Some(mut port) = process.enter_port(home.rail()) {
        port.sent(home.to()).is_home = true;
    }
    host.messenger().rails.multi_rail.add(name, peer)
}

/// Whether messages can use this route now ([`Port::is_usable`]).
pub(super) fn is_usable<P: Process>(process: &P, route: Route) -> bool {
    process.enter_port(route.rail()).is_some_and(|port| port.is_usable(route.to()))
}

/// Forgets and returns the routes to a process that shares no communicator with this one any more. The records of
/// several rails stay, because the process may come back.
pub fn part<H: Host>(process: &H::Process, host: &mut H, name: PeerName) -> Vec<Route> {
    let messenger = host.messenger();
    let known = messenger.rails.known.remove(&name);
    let routes = match (messenger.rails.multi_rail.by_name.get(&name), known) {
        (Some(peer), _) => messenger.rails.multi_rail.peers[*peer].routes.to_vec(),
        (None, Some(route)) => vec![route],
        // This process may have got messages from it, and sent none.
        (None, None) => (0..process.rail_count()).filter_map(|rail| of_sender(process, rail, name)).collect(),
    };
    if let Some(account) = routes.first() {
        let stored: Vec<Route> = routes.iter().flat_map(|route| [*route, route.as_multi_rail()]).collect();
        messenger.flow.forget(Account(*account), &stored);
    }
    routes
}

fn of_sender<P: Process>(process: &P, rail: usize, name: PeerName) -> Option<Route> {
    Some(Route::new(rail, process.enter_port(rail)?.endpoint(name)?))
}

/// Removes all records of a process that has gone. Returns the routes that led to it.
pub fn remove<H: Host>(process: &H::Process, host: &mut H, name: PeerName) -> Vec<Route> {
    let routes = part(process, host, name);
    host.messenger().rails.multi_rail.remove(name);
    routes
}

/// Counts a message that was given to a port of several. `is_posted`: the adapter has it.
pub fn note<A: Adapter>(port: &mut Port<A>, route: Route, is_posted: bool) {
    let sent = port.sent(route.to());
    sent.count = sent.count.wrapping_add(1);
    if is_posted {
        port.note_message(route.to());
    }
}

/// Shortest message that several ports read, bytes: two reads of the least length.
pub const SHORTEST: usize = 64 << 10;

/// Returns the routes by which this process can read a message now, with the sender's keys; for a message shorter than
/// [`SHORTEST`] only one, preferably the route of the announcement.
pub(super) fn readable_by<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    from: Route,
    keys: &[PortKey],
    wanted: u64,
) -> Vec<(Route, u32)> {
    let Some(peer) = peer_of(process, host, from) else { return Vec::new() };
    let routes = host.messenger().rails.multi_rail.peers[peer].routes.iter().copied();
    let mut routes: Vec<(Route, u32)> = routes
        .filter_map(|route| {
            let mut port = process.enter_port(route.rail())?;
            let remote = u32::from(port.partner(route.to())?);
            let key = keys.iter().find(|key| key.port == remote)?.key;
            // The port that announced the message is connected, or is about to be.
            let is_connected = route.rail() == from.rail() || port.is_ready(route.to());
            (is_connected && port.is_usable(route.to())).then_some((route, key))
        })
        .collect();
    if wanted < SHORTEST as u64 {
        routes.sort_by_key(|(route, _)| route.rail() != from.rail());
        routes.truncate(1);
    }
    routes
}

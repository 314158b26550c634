// SPDX-License-Identifier: MIT OR Apache-2.0
//! The route to a peer, from its rank in a communicator ([`route`]). With several ports: which of them reach the peer,
//! and which read a long message; `engine::messenger::rails` chooses the one that its messages use, their home.
//!
//! With one port, the PML uses only [`route`], [`routes_to`], [`part`], and functions such as [`home`] that test for
//! it. A sender announces a long message with the keys of several ports; the receiver reads by those of its ports that
//! are connected to one of them ([`readable_by`]), and its other ports begin to connect, for the next message. Grade:
//! hot for [`note`] and [`home`], pending for long messages, else setup. Threads: the one that has entered the PML; for
//! [`note`], a port; [`route`]: any, with nothing entered. Tests: `pml/tests.rs`, and `rail_down.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::header::PortKey;
use engine::messenger::host::Exposed;
use engine::messenger::path_taken::Reason;
use engine::messenger::rails::Peer;
use engine::messenger::route::{Account, Route};
use engine::peer::PeerName;
use engine::select::address;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use crate::pml::communicator::Comm;
use crate::pml::component;
use crate::pml::datatype::Extent;
use crate::pml::instance::{Pml, Rail, State};
use crate::pml::request::Handle;
use crate::runtime::device::Port;
use crate::runtime::memory::Registered;
use crate::runtime::variables::now;
use crate::runtime::{messages, modex};

/// Returns the route to a rank, and stores it; `None` if no port of this process reaches it.
#[inline]
pub(crate) fn route(pml: &Pml, comm: Comm, rank: i32) -> Option<Route> {
    let communicator = comm.part();
    let route = communicator.route(rank);
    if route != Route::UNKNOWN {
        return Some(route.unmarked());
    }
    let route = find(pml, comm, rank)?;
    pml.enter()?.messenger.flow.holders.note(route, communicator.context, rank);
    communicator.set_found(rank, route);
    Some(route)
}

/// Returns the route to a rank if its process was looked up before, or shared memory reaches it.
pub(crate) fn known(state: &State, comm: Comm, rank: i32) -> Option<Route> {
    let process = comm.process(rank)?;
    state.peers.get(&modex::from_openmpi(process.name())).copied()
}

#[cold]
#[inline(never)]
fn find(pml: &Pml, comm: Comm, rank: i32) -> Option<Route> {
    let process = comm.process(rank)?;
    let peer = modex::from_openmpi(process.name());
    if let Some(route) = pml.enter()?.peers.get(&peer) {
        return Some(*route);
    }
    if Process::me().is_some_and(|me| me.name() == process.name()) {
        pml.enter()?.peers.insert(peer, Route::LOOPBACK);
        return Some(Route::LOOPBACK);
    }
    if !component::is_same(process) {
        return None;
    }
    let route = routes_to(pml, peer);
    match route {
        Ok(routes) => {
            if now::verbosity() > 0 {
                let places = routes.iter().filter_map(|route| Some(pml.rails().get(route.rail())?.port().place()));
                let places: Vec<String> = places.map(ToString::to_string).collect();
                messages::verbose(&format!("rank {} is reached by {}", peer.rank, places.join(", ")));
            }
            let mut state = pml.enter()?;
            let route = if pml.is_multi_rail() {
                let peer = add(pml, &mut state, peer, routes);
                state.multi_rail.peers[peer].home.as_multi_rail()
            } else {
                routes[0]
            };
            state.peers.insert(peer, route);
            Some(route)
        }
        Err(why) => {
            messages::no_way(peer, &process.host(), &why);
            None
        }
    }
}

/// Returns the route that messages to the peer of `route` use now.
#[inline]
pub(crate) fn home(pml: &Pml, state: &mut State, route: Route) -> Route {
    if !pml.is_multi_rail() || route.as_local().is_some() {
        return route;
    }
    of(pml, state, route).map_or(route, |peer| state.multi_rail.peers[peer].home)
}

/// Returns flow control's account of the peer of `route`: the first of its routes, which never changes.
pub(crate) fn account(pml: &Pml, state: &mut State, route: Route) -> Account {
    if !pml.is_multi_rail() || route.as_local().is_some() {
        return Account(route);
    }
    of(pml, state, route).map_or(Account(route), |peer| state.multi_rail.peers[peer].account())
}

/// Returns the routes that communicators may have stored for a peer.
pub(crate) fn in_communicators(pml: &Pml, state: &mut State, Account(route): Account) -> Vec<Route> {
    let peer = if pml.is_multi_rail() && route.as_local().is_none() { of(pml, state, route) } else { None };
    peer.map_or_else(
        || vec![route],
        |peer| state.multi_rail.peers[peer].routes.iter().map(|route| route.as_multi_rail()).collect(),
    )
}

/// Returns the form in which communicators store this route.
#[inline]
pub(crate) fn in_communicator(pml: &Pml, route: Route) -> Route {
    if pml.is_multi_rail() && route.as_local().is_none() { route.as_multi_rail() } else { route }
}

/// Returns the index of the peer of a rail's route; `None` if the peer is gone, or the route is not a rail's.
pub(crate) fn of(pml: &Pml, state: &mut State, route: Route) -> Option<usize> {
    // A faulty process of this host may name any sender.
    pml.rails().get(route.rail())?;
    state.multi_rail.peer_of(route).or_else(|| look_up(pml, state, route))
}

#[cold]
fn look_up(pml: &Pml, state: &mut State, route: Route) -> Option<usize> {
    let port = pml.rails().get(route.rail())?.enter()?;
    let name = port.peer_name(route.to()).filter(|_| !port.has_gone(route.to()))?;
    drop(port);
    if let Some(peer) = state.multi_rail.by_name.get(&name).copied() {
        state.multi_rail.set_peer(route, peer);
        return Some(peer);
    }
    let mut routes = routes_to(pml, name).ok()?;
    if !routes.contains(&route) {
        routes.push(route);
    }
    Some(add(pml, state, name, routes))
}

/// Returns the routes to a process, at least one, in the order of rails; or the reason for their absence.
pub(crate) fn routes_to(pml: &Pml, peer: PeerName) -> Result<Vec<Route>, String> {
    let ports = match modex::ports_of(peer) {
        Some(Ok(ports)) => ports,
        Some(Err(error)) => return Err(error.to_string()),
        None => return Err("it published no ibex port: it runs without ibex, or found none".to_owned()),
    };
    let addresses: Vec<_> = ports.iter().map(|entry| entry.address).collect();
    let pairs = address::pair(&modex::published(), &addresses);
    let routes = pml.rails().iter().enumerate().filter_map(|(index, rail)| {
        let remote = pairs.get(usize::from(rail.port().index())).copied().flatten()?;
        Some(Route::new(index, rail.enter()?.peer(peer, remote as u8)))
    });
    let routes: Vec<Route> = routes.collect();
    if routes.is_empty() {
        return Err("none of its ports is on the network of one of this process'".to_owned());
    }
    Ok(routes)
}

/// Adds a peer that these routes (at least one) lead to. Returns its index.
fn add(pml: &Pml, state: &mut State, name: PeerName, routes: Vec<Route>) -> usize {
    let me = Process::me().map_or(0, |me| modex::from_openmpi(me.name()).rank);
    let known = state.multi_rail.by_name.get(&name).copied();
    known.unwrap_or_else(|| add_new(pml, state, (me, name), routes))
}

/// [`add`] for a peer that is not known, by the process of rank `me`.
pub(crate) fn add_new(pml: &Pml, state: &mut State, (me, name): (u32, PeerName), routes: Vec<Route>) -> usize {
    let peer = Peer::new(routes, [me, name.rank], |route| is_usable(pml, route));
    let home = peer.home;
    if let Some(rail) = pml.rails().get(home.rail())
        && let Some(mut port) = rail.enter()
    {
        rail.sent(&mut port, home.to()).is_home = true;
    }
    state.multi_rail.add(name, peer)
}

/// Whether messages can use this route now: its port is up, and the connection is there or may still be made.
pub(crate) fn is_usable(pml: &Pml, route: Route) -> bool {
    let port = pml.rails().get(route.rail()).and_then(Rail::enter);
    port.is_some_and(|port| !port.is_down() && has_not_failed(&port, route))
}

pub(crate) fn has_not_failed(port: &Port, route: Route) -> bool {
    port.failure(route.to()).is_none() && !port.is_forgotten(route.to())
}

/// Forgets and returns the routes to a process that shares no communicator with this one any more.
pub(crate) fn part(state: &mut State, name: PeerName) -> Vec<Route> {
    let known = state.peers.remove(&name);
    let routes = match state.multi_rail.by_name.get(&name) {
        Some(peer) => state.multi_rail.peers[*peer].routes.to_vec(),
        None => known.into_iter().collect(),
    };
    if let Some(account) = routes.first() {
        let in_communicators: Vec<Route> = routes.iter().flat_map(|route| [*route, route.as_multi_rail()]).collect();
        state.messenger.flow.forget(Account(*account), &in_communicators);
    }
    routes
}

/// Removes all records of a process that has gone. Returns the routes that led to it.
pub(crate) fn remove(state: &mut State, name: PeerName) -> Vec<Route> {
    let routes = part(state, name);
    state.multi_rail.remove(name);
    routes
}

/// Counts a message that was given to the port of a rail. `is_posted`: the adapter has it.
pub(crate) fn note(rail: &Rail, port: &mut Port, route: Route, is_posted: bool) {
    let sent = rail.sent(port, route.to());
    sent.count = sent.count.wrapping_add(1);
    if is_posted {
        port.note_message(route.to());
    }
}

/// Shortest message that several ports read, bytes: two reads of the least length.
pub(crate) const SHORTEST: usize = 64 << 10;

/// Returns the routes by which this process can read a message now, with the sender's keys; for a message shorter than
/// [`SHORTEST`] only one, preferably the route of the announcement.
pub(crate) fn readable_by(
    pml: &Pml,
    state: &mut State,
    from: Route,
    keys: &[PortKey],
    wanted: u64,
) -> Vec<(Route, u32)> {
    let Some(peer) = of(pml, state, from) else { return Vec::new() };
    let routes = state.multi_rail.peers[peer].routes.iter().copied();
    let mut routes: Vec<(Route, u32)> = routes
        .filter_map(|route| {
            let mut port = pml.rails().get(route.rail())?.enter()?;
            let remote = u32::from(port.partner(route.to())?);
            let key = keys.iter().find(|key| key.port == remote)?.key;
            let is_usable = !port.is_down() && has_not_failed(&port, route);
            // The port that announced the message is connected, or is about to be.
            (is_usable && (route.rail() == from.rail() || port.is_ready(route.to()))).then_some((route, key))
        })
        .collect();
    if wanted < SHORTEST as u64 {
        routes.sort_by_key(|(route, _)| route.rail() != from.rail());
        routes.truncate(1);
    }
    routes
}

/// Registers a message with the other ports that reach its receiver, if it is long enough to be read by several.
///
/// # Safety
/// P2, M3: the data of a send, whose registrations the engine ends before the send is finished.
unsafe fn register(pml: &Pml, state: &mut State, home: Route, extent: Extent) -> Vec<(usize, Registered)> {
    if !pml.is_multi_rail() || extent.length < SHORTEST {
        return Vec::new();
    }
    let Some(peer) = of(pml, state, home) else { return Vec::new() };
    let routes = state.multi_rail.peers[peer].routes.iter().filter(|route| route.rail() != home.rail());
    let registered = routes.filter(|route| is_usable(pml, **route)).filter_map(|route| {
        let rail = pml.rails().get(route.rail())?;
        let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
        // SAFETY: P2, M3: mapped until the send is finished, and the engine ends the registration before.
        let registered = unsafe { rail.port().memory().register(extent.start.cast(), extent.length, access) };
        Some((route.rail(), registered?))
    });
    registered.collect()
}

/// Lets the receiver of a long message read its data by the port of the send's route, and by others if it is long
/// enough. A key travels with the number of its port, because `routing` may send the announcement by another port.
pub(crate) fn expose(pml: &Pml, state: &mut State, send: Handle) -> Result<Exposed<Registered>, Reason> {
    let core = state.requests.core(send);
    let (route, extent) = (core.route, core.data.extent());
    let start = NonNull::new(extent.start).ok_or(Reason::Gaps)?.as_ptr();
    let address = start.expose_provenance() as u64;
    let Some(rail) = pml.rails().get(route.rail()) else {
        // A process of this host reads without a key.
        return Ok(Exposed { address, ..Exposed::default() });
    };
    let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
    // SAFETY: P2, M3: the memory may be read until the send is finished, and its registration ends before.
    let registered = unsafe { rail.port().memory().register(start.cast(), extent.length, access) };
    let registered = registered.ok_or(Reason::NotRegistered)?;
    // SAFETY: P2, M3: the memory may be read until the send is finished, and its registrations end before.
    let others = unsafe { register(pml, state, route, extent) };
    let key = |(rail, registered): (usize, Registered)| {
        let rail = pml.rails().get(rail)?;
        Some(PortKey { port: u32::from(rail.port().index()), key: registered.rkey() })
    };
    let all = std::iter::once((route.rail(), registered)).chain(others.iter().copied());
    let keys = if pml.is_multi_rail() { all.filter_map(key).collect() } else { Vec::new() };
    Ok(Exposed { address, key: registered.rkey(), registered: Some(registered), others, keys })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routes to other processes: from a rank in a communicator ([`route`]), or from the name of a process
//! ([`routes_to`]); and what else the messenger asks about peers (`engine::messenger::host::Peers`).
//!
//! Grade: setup. Threads: the one that has entered the PML, and no port; [`route`]: any, with nothing entered. Tests:
//! `pml/tests.rs`, and `rail_down.c` in `hw-tests/mpi`.

use engine::messenger::host::{Peers, Process as _};
use engine::messenger::rails::routes;
use engine::messenger::route::Route;
use engine::peer::PeerName;
use engine::select::address;
use engine::transport::{Cause, Failure};
use ibex_ffi::openmpi::process::Process;

use crate::pml::communicator::{Comm, Communicator};
use crate::pml::component;
use crate::pml::instance::{Pml, State};
use crate::runtime::variables::now;
use crate::runtime::{failures, messages, modex, poller};

/// Returns the route to a rank, and stores it; `None` if no port of this process reaches it.
#[inline]
pub(crate) fn route(pml: &Pml, comm: Comm, rank: i32) -> Option<Route> {
    let communicator = comm.part();
    let route = communicator.routes.route(rank);
    if route != Route::UNKNOWN {
        return Some(route.unmarked());
    }
    let route = find(pml, comm, rank)?;
    pml.enter()?.messenger.flow.holders.note(route, communicator.context, rank);
    communicator.routes.set_found(rank, route);
    Some(route)
}

#[cold]
#[inline(never)]
fn find(pml: &Pml, comm: Comm, rank: i32) -> Option<Route> {
    let process = comm.process(rank)?;
    let peer = modex::from_openmpi(process.name());
    if let Some(route) = pml.enter()?.messenger.rails.known.get(&peer) {
        return Some(*route);
    }
    if Process::me().is_some_and(|me| me.name() == process.name()) {
        pml.enter()?.messenger.rails.known.insert(peer, Route::LOOPBACK);
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
                let peer = routes::add(pml, &mut *state, peer, routes);
                state.messenger.rails.multi_rail.peers[peer].home.as_multi_rail()
            } else {
                routes[0]
            };
            state.messenger.rails.known.insert(peer, route);
            Some(route)
        }
        Err(why) => {
            messages::no_way(peer, &process.host(), &why);
            None
        }
    }
}

/// Returns the routes to a process, at least one, in the order of rails; or the reason for their absence.
fn routes_to(pml: &Pml, peer: PeerName) -> Result<Vec<Route>, String> {
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

impl Peers for State {
    fn me(&self) -> u32 {
        self.rank
    }

    fn name_of(&mut self, of: &'static Communicator, rank: i32) -> Option<PeerName> {
        Some(modex::from_openmpi(of.comm.process(rank)?.name()))
    }

    fn routes_to(&mut self, pml: &Pml, peer: PeerName) -> Vec<Route> {
        routes_to(pml, peer).unwrap_or_default()
    }

    /// The BTL diverts peers, and informs the user, if it has ever had a port.
    fn link_changed(&mut self, pml: &Pml, rail: usize, is_up: bool) {
        if poller::has_btl() {
            return;
        }
        let rail = &pml.rails()[rail];
        let Some(mut port) = rail.enter() else { return };
        if is_up {
            port.undivert(|_| true);
            messages::rail_back(rail.port().place());
        } else {
            port.divert_all(|_| false);
            messages::rail_down(rail.port().place());
        }
    }

    /// The BTL informs the user of a connection that cannot be made.
    fn gives_up(&mut self, pml: &Pml, rail: usize, failure: &Failure, other: usize) {
        if poller::has_btl() && matches!(failure.cause, Cause::Connect(_)) {
            return;
        }
        if let Some(mut port) = pml.rails()[rail].enter() {
            failures::tell_but(&mut port, &failure.to_string());
        }
        messages::rail_unusable(failure, pml.rails()[other].port().place());
    }

    fn has_turn(&mut self) {
        self.has_more = true;
    }
}

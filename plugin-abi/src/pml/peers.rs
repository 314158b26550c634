// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other processes, and how they are reached: the routes by ports, from a rank in a communicator ([`route`]), or
//! from the name of a process ([`routes_to`]); and the processes of this host, by shared memory
//! (`runtime/ports/shared_memory.rs`).
//!
//! Called by the messenger (`engine::messenger::host`), `context`, `send` and `progress`; by Open MPI's shared-memory
//! BTL with each message, from this PML's polls or from Open MPI's progress. Grade: hot for shared memory, else
//! setup. Threads: the one that has entered the PML, and no port; [`route`]: any, with nothing entered. Tests:
//! `pml/tests`, `rail_down.c` in `hw-tests/mpi`, and `hw-tests/tests/device/local.rs`.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use engine::messenger::header::{Header, MAX_SIZE};
use engine::messenger::host::{self, Payload, Peers, Process as _};
use engine::messenger::rails::{backlog, routes};
use engine::messenger::receive::{self, search};
use engine::messenger::rendezvous::single_copy;
use engine::messenger::route::Route;
use engine::peer::PeerName;
use engine::select::address;
use engine::transport::{Cause, Failure};
use ibex_ffi::openmpi::process::{Name, Process};
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::InlineSpan;

use super::communicator::{Comm, Communicator};
use super::instance::{Pml, State, pml};
use super::request::{Handle, Request};
use crate::runtime::guard::fence;
use crate::runtime::shared_memory::{EAGER, OTHER, Receives, SharedMemory};
use crate::runtime::variables::now;
use crate::runtime::{failures, messages, modex, poller, shared_memory};

// ---- ports ----------------------------------------------------------------------------------------------------------

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
    if is_me(process) {
        pml.enter()?.messenger.rails.known.insert(peer, Route::LOOPBACK);
        return Some(Route::LOOPBACK);
    }
    if !is_same(process) {
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

/// Approximate number of polls of a busy port between two checks of its connections.
const BETWEEN_LOOKS: u32 = 256;

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
        if poller::has_btl() && matches!(failure.cause, Cause::Connect { .. }) {
            return;
        }
        if let Some(mut port) = pml.rails()[rail].enter() {
            failures::print_reasons_except(&mut port, &failure.to_string());
        }
        messages::rail_unusable(failure, pml.rails()[other].port().place());
    }

    fn has_turn(&mut self) {
        self.has_more = true;
    }

    #[cold]
    fn is_busy(&mut self) {
        self.has_more |= self.busy.polled(BETWEEN_LOOKS);
    }
}

/// Whether a process is this one.
fn is_me(process: Process) -> bool {
    Process::me().is_some_and(|me| me.name() == process.name())
}

/// Whether a process has selected this PML; prints a message if not.
pub(crate) fn is_same(process: Process) -> bool {
    let peer = modex::from_openmpi(process.name());
    if is_me(process) || modex::has_pml(peer) {
        return true;
    }
    messages::other_pml(peer, &process.host());
    false
}

/// Prints a message if rank 0 has selected another PML: Open MPI compares every host with rank 0, but names no remedy.
pub(crate) fn say_of_rank_0() {
    let rank_0 = Process::me().and_then(|me| Process::of(Name { rank: 0, ..me.name() }));
    rank_0.map(is_same);
}

// ---- shared memory --------------------------------------------------------------------------------------------------

/// Adds the processes that shared memory reaches. Called once, with all processes of the host, in order of rank.
pub(crate) unsafe fn add_local(pml: &Pml, procs: &[*mut sys::ompi_proc_t]) {
    if pml.shared_memory().is_some() {
        return;
    }
    // SAFETY: M4: live processes; Open MPI opens the BTLs before a PML adds processes.
    let Some((shared, reached)) = (unsafe { SharedMemory::open::<Pml>(procs) }) else { return };
    let Some(mut state) = pml.enter() else { return };
    for (place, name) in &reached {
        let peer = modex::from_openmpi(*name);
        state.messenger.rails.known.insert(peer, Route::local(*place));
        if now::verbosity() > 0 {
            messages::verbose(&format!("rank {} is reached by shared memory", peer.rank));
        }
    }
    drop(state);
    if !reached.is_empty() {
        pml.use_shared_memory(shared);
    }
}

impl Receives for Pml {
    #[inline(always)]
    fn received(btl: *mut sys::mca_btl_base_module_t, tag: u8, bytes: &[u8]) {
        let Some(pml) = pml() else { return };
        // A BTL for a network may not deliver messages with these tags.
        if pml.shared_memory().is_some_and(|shared| shared.is(btl)) {
            // Without `leave`, which could enter the BTL from its own callback; the next progress does that.
            pml.state.with(|state| deal(pml, state, tag, bytes));
        }
    }
}

#[inline(always)]
fn deal(pml: &Pml, state: &mut State, tag: u8, bytes: &[u8]) {
    if tag == EAGER {
        if !search::is_taken(state, bytes, |_| None, None) {
            receive::handle(pml, state, bytes, || Some(Route::UNKNOWN));
        }
        return;
    }
    // The sender's place.
    let Some((place, bytes)) = bytes.split_first_chunk() else { return };
    let place = u32::from_le_bytes(*place);
    if !pml.shared_memory().is_some_and(|shared| shared.reaches(place)) {
        return;
    }
    receive::handle(pml, state, bytes, || Some(Route::local(place)));
}

/// Receives messages from processes of this host, and sends those that wait. Returns the number of both.
#[inline]
pub(crate) fn poll_shared_memory(pml: &Pml, state: &mut State, shared: &SharedMemory) -> usize {
    let count = pml.state.within(state, || shared.progress());
    if state.messenger.rails.backlog.is_empty() { count } else { count + backlog::send_waiting(pml, state) }
}

/// Removes processes that were added.
pub(crate) unsafe fn remove_local(pml: &Pml, procs: &[*mut sys::ompi_proc_t]) {
    if pml.shared_memory().is_some() {
        // SAFETY: M4: live processes that were added.
        unsafe { shared_memory::remove(procs) };
    }
}

impl host::SharedMemory for State {
    fn room(&self, pml: &Pml) -> Option<usize> {
        pml.shared_memory().map(SharedMemory::room)
    }

    fn send_locally(&mut self, pml: &Pml, to: u32, header: &Header, payload: &Payload<Handle>) -> bool {
        let Some(shared) = pml.shared_memory() else { return false };
        let part;
        let data = match payload {
            Payload::Nothing => InlineSpan::EMPTY,
            Payload::Packed(bytes) => (&bytes[..]).into(),
            Payload::Part(send, offset, length) => {
                part = self.requests.core(*send).data.extent().part(*offset, *length);
                part.span()
            }
        };
        let (tag, bytes, length) = head(shared, header);
        shared.send(to, tag, &bytes[..length], data)
    }

    fn hold_up(&mut self, pml: &Pml, to: u32, waits: bool) {
        if let Some(shared) = pml.shared_memory() {
            shared.hold_up(to, waits);
        }
    }
}

/// Has the BTL copy `wanted` bytes at `address` of another process of this host to a receive. It calls [`copied`],
/// mostly within this call. Returns false if it cannot.
pub(crate) fn copy(pml: &Pml, state: &mut State, receive: Handle, route: Route, (address, wanted): (u64, u64)) -> bool {
    let (Some(shared), Some(from)) = (pml.shared_memory(), route.as_local()) else { return false };
    let (to, data) = (state.requests.core(receive).data.extent().start, receive.pointer().as_ptr().cast());
    // SAFETY: P2: the BTL writes the memory until it calls `copied`, and the receive is finished only there.
    pml.state.within(state, || unsafe { shared.get(from, (to, wanted as usize), address, Some(copied), data) })
}

/// Returns the tag of a message, the bytes that stand before its data, and their number.
fn head(shared: &SharedMemory, header: &Header) -> (u8, [u8; size_of::<u32>() + MAX_SIZE], usize) {
    let encoded = header.encode();
    let mut bytes = [0; size_of::<u32>() + MAX_SIZE];
    let is_eager = matches!(header, Header::Eager(_));
    let before = if is_eager { 0 } else { size_of::<u32>() };
    let length = before + encoded.as_slice().len();
    bytes[..before].copy_from_slice(&shared.me.to_le_bytes()[..before]);
    bytes[before..length].copy_from_slice(encoded.as_slice());
    (if is_eager { EAGER } else { OTHER }, bytes, length)
}

/// `mca_btl_base_rdma_completion_fn_t`: the BTL has copied the bytes, or has failed to.
unsafe extern "C" fn copied(
    _btl: *mut sys::mca_btl_base_module_t,
    _endpoint: *mut sys::mca_btl_base_endpoint_t,
    _to: *mut c_void,
    _handle: *mut sys::mca_btl_base_registration_handle_t,
    _context: *mut c_void,
    data: *mut c_void,
    status: c_int,
) {
    fence("the end of a copy", (), || {
        let (Some(pml), Some(receive)) = (pml(), NonNull::new(data.cast::<Request>())) else { return };
        // SAFETY: P1: `data` is the receive that `copy` gave the BTL, which calls this once.
        let receive = unsafe { Handle::new(receive) };
        pml.state.with(|state| single_copy::done(pml, state, receive, status == sys::OPAL_SUCCESS));
    });
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated process: its PML, the routes to the others, and its communicators, which are made of zeroes and the few
//! fields that the PML reads. Called by `world.rs`. Threads: the test's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use engine::messenger::host::Process as _;
use engine::messenger::rails::routes;
use engine::messenger::receive::search;
use engine::messenger::route::Route;
use engine::peer::PeerName;
use engine::transport::Completion;
use ibex_ffi::openmpi::{release, sys};

use super::super::communicator::{Comm, Communicator};
use super::super::instance::{OF_TEST, Pml, Rail, Settings};
use super::super::progress;
use super::{libmpi, shared_memory};
use crate::runtime::device::fabric::{Fabric, Sizes};
use crate::runtime::frame::Frame;

/// Sizes of a port, small enough that histories reach each bound.
pub(super) const SIZES: Sizes =
    Sizes { inline: 64, bounce: EAGER as u32, receive: 320, slots: 16, bounces: 64, depth: 8 };

/// Longest eager message, header included, bytes.
pub(super) const EAGER: usize = 256;

#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) processes: usize,
    /// Number of processes per host, which reach each other by shared memory; 1: none do.
    pub(super) per_host: usize,
    pub(super) rails: usize,
    /// Longest RDMA read, bytes.
    pub(super) read_size: u32,
    /// Bytes of unexpected messages beyond which a receiver holds their senders back.
    pub(super) unexpected_memory: u64,
}

pub(super) struct Process {
    pub(super) pml: NonNull<Pml>,
    /// Its communicators, by their numbers; a process makes one when it first uses it.
    pub(super) communicators: RefCell<BTreeMap<usize, NonNull<sys::ompi_communicator_t>>>,
}

const fn name(rank: usize) -> PeerName {
    PeerName { job: 1, rank: rank as u32 }
}

/// Acts for the BTL: diverts the messages of a port whose link went down, and ends that when it is up again.
pub(super) fn divert(port: u8, frame: &Frame) {
    let rails = OF_TEST.get().map_or(&[][..], Pml::rails);
    let Some(rail) = rails.iter().find(|rail| rail.port().index() == port) else { return };
    for completion in frame.batch.completions() {
        if let Completion::LinkChanged { is_up } = completion {
            let mut port = rail.enter().expect("nobody is inside");
            if *is_up {
                port.undivert(|_| true);
            } else {
                port.divert_all(|_| false);
            }
        }
    }
}

pub(super) fn process(fabric: &Fabric, rank: usize, shape: Shape) -> Process {
    let rails = (0..shape.rails).map(|rail| {
        let port = Arc::new(fabric.open(name(rank), 100_000 * (rail as u32 + 1), SIZES));
        Rail::new(&port, EAGER, shape.read_size)
    });
    let settings = Settings {
        rank: rank as u32,
        eager_limit: EAGER,
        read_size: shape.read_size,
        unexpected_memory: shape.unexpected_memory,
        threads: false,
    };
    let pml = Pml::new(rails.collect(), &settings);
    let is_near = |peer| peer / shape.per_host == rank / shape.per_host && peer != rank;
    let route = |peer| if is_near(peer) { Route::local(peer as u32) } else { route(&pml, rank, peer) };
    let routes: Vec<Route> = (0..shape.processes).map(route).collect();
    if (0..shape.processes).any(is_near) {
        pml.use_shared_memory(shared_memory::of(rank, shape.processes, is_near));
    }
    let mut state = pml.enter().expect("nobody is inside");
    state.messenger.rails.known.extend(routes.iter().enumerate().map(|(peer, route)| (name(peer), *route)));
    drop(state);
    Process { pml: NonNull::from(Box::leak(pml)), communicators: RefCell::default() }
}

/// Returns the route by which process `rank` reaches a peer.
fn route(pml: &Pml, rank: usize, peer: usize) -> Route {
    if peer == rank {
        return Route::LOOPBACK;
    }
    let endpoint = |(index, rail): (usize, &Rail)| {
        let mut port = rail.enter().expect("nobody is inside");
        Route::new(index, port.peer(name(peer), index as u8))
    };
    let routes: Vec<Route> = pml.rails().iter().enumerate().map(endpoint).collect();
    if !pml.is_multi_rail() {
        return routes[0];
    }
    let mut state = pml.enter().expect("nobody is inside");
    let peer = routes::add(pml, &mut *state, name(peer), routes);
    state.messenger.rails.multi_rail.peers[peer].home.as_multi_rail()
}

/// Adds a communicator, as `pml_add_comm` does.
pub(super) fn communicator(pml: &Pml, rank: usize, number: usize, size: usize) -> NonNull<sys::ompi_communicator_t> {
    let mut comm = Box::new(release::blank_communicator(number as u32));
    comm.c_my_rank = rank as i32;
    let raw = NonNull::from(Box::leak(comm));
    // SAFETY: leaked; only this function has it.
    let comm = unsafe {
        *libmpi::references(raw.as_ptr()) = 1;
        Comm::new(raw.as_ptr())
    };
    comm.set_part(Box::leak(Communicator::new(comm, pml.rails()[0].entry(), size)));
    let (added, context) = (comm.part(), comm.context());
    let mut state = pml.enter().expect("nobody is inside");
    let kept = state.messenger.contexts.add(context, added).expect("the number is new");
    search::deliver_early(pml, &mut *state, context, kept);
    progress::leave(pml, state);
    raw
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI's communicator ([`Comm`]), and the PML's part of it ([`Communicator`]): the route to each rank, and the
//! queues that the messenger searches (`engine::messenger::host::Communicators`).
//!
//! **Marks.** A route to a peer that holds this process back, or to which sends pend, is marked in the communicators
//! ([`Route::marked`]). The fast paths take no marked route, so each message asks flow control, and
//! `set_skips_flow_control` stores the route anew, marked or not. A look-up stores a route only if none is stored yet
//! (`RouteTable::set_found`). When a peer holds this process back, all its routes are marked, because a communicator
//! may still have an earlier home. An eager message by shared memory names only its sender's rank; the messenger looks
//! the process up (`known_route`) once the bound of unexpected messages is exceeded.
//!
//! Open MPI's communicator points to the PML's part (`c_pml_comm`) from `pml_add_comm` to `pml_del_comm`
//! (`module/context.rs`). Grade: hot. Threads: routes: any; the queues belong to the thread that has entered the PML.
//! Tests: `pml/tests`.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::NonNull;

use engine::messenger::header::EagerSender;
use engine::messenger::host::{Communicators, Peers};
use engine::messenger::matching::lengths::Lengths;
use engine::messenger::rails::routes;
use engine::messenger::receive::queues;
use engine::messenger::route::Route;
use engine::messenger::route::table::RouteTable;
use engine::peer::PeerName;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::{release, sys};

use super::instance::{Pml, State};
use super::request::{Core, Handle};
use crate::runtime::device::Port;
use crate::runtime::entry::Argument;
use crate::runtime::exclusive::{Entered, Exclusive};
use crate::runtime::libmpi;
use crate::runtime::listeners::Listeners;
use crate::runtime::variables::queues::HasQueues;

pub(crate) type Queues = queues::Queues<Handle>;

/// Open MPI's communicator: an argument of MPI, or of a request that is not finished, so it lives (M4, P1).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Comm(*mut sys::ompi_communicator_t);

// SAFETY: the same pointer.
unsafe impl Argument<*mut sys::ompi_communicator_t> for Comm {}

impl Comm {
    /// # Safety
    /// The communicator lives while the value is used.
    #[inline(always)]
    pub(crate) const unsafe fn new(raw: *mut sys::ompi_communicator_t) -> Self {
        Comm(raw)
    }

    #[inline(always)]
    pub(crate) fn raw(self) -> *mut sys::ompi_communicator_t {
        self.0
    }

    /// Returns the PML's part; `None` if this PML has not added the communicator, or has removed it.
    #[inline]
    pub(crate) fn if_added(self) -> Option<&'static Communicator> {
        // SAFETY: P1: null, or a leaked box, which changes only inside its cells, and stays until `pml_del_comm`.
        unsafe { (*self.0).c_pml_comm.cast::<c_void>().cast::<Communicator>().as_ref() }
    }

    /// Returns the PML's part of a communicator that was added and not removed: MPI calls, and requests that are not
    /// finished, have no other.
    #[inline(always)]
    pub(crate) fn part(self) -> &'static Communicator {
        // SAFETY: P1, M4: added, so a leaked box, which changes only inside its cells.
        unsafe { &*(*self.0).c_pml_comm.cast::<c_void>().cast::<Communicator>() }
    }

    /// Stores the PML's part, or null. Returns the former one.
    pub(super) fn set_part(self, part: *mut Communicator) -> Option<NonNull<Communicator>> {
        // SAFETY: M4: the communicator lives, and nobody else writes this field.
        let former = unsafe { std::mem::replace(&mut (*self.0).c_pml_comm, part.cast()) };
        NonNull::new(former.cast::<c_void>().cast())
    }

    /// Returns its context number.
    #[inline(always)]
    pub(crate) fn context(self) -> u32 {
        // SAFETY: P1, M4: it lives.
        unsafe { release::context(self.0) }
    }

    /// Returns the rank of this process.
    #[inline(always)]
    pub(crate) fn rank(self) -> i32 {
        // SAFETY: P1, M4: it lives.
        unsafe { (*self.0).c_my_rank }
    }

    /// Returns the number of ranks that messages may name: those of the remote group, if there is one.
    pub(crate) fn peers(self) -> usize {
        // SAFETY: M4: Open MPI has filled the communicator in.
        unsafe { sys::ibex_comm_peers(self.0) as usize }
    }

    pub(crate) fn is_inter(self) -> bool {
        // SAFETY: P1, M4: it lives.
        unsafe { libmpi::ibex_comm_is_inter(self.0) != 0 }
    }

    /// Returns the members of its group, or of its remote group, in the order of their ranks.
    pub(crate) fn members(self, is_remote: bool) -> impl ExactSizeIterator<Item = PeerName> {
        let which = is_remote.into();
        // SAFETY: P1, M4: it lives.
        let size = unsafe { sys::ibex_comm_members(self.0, which) };
        // SAFETY: P1, M4: it lives; the rank is below the size of the group.
        (0..size).map(move |rank| name(unsafe { libmpi::ibex_comm_member(self.0, which, rank) }))
    }

    /// Returns the process with a rank that messages may name. `None`: there is no such rank, which a faulty peer may
    /// name.
    pub(crate) fn process(self, rank: i32) -> Option<Process> {
        if !self.part().routes.has(rank) {
            return None;
        }
        // SAFETY: P1, M4: it lives, and has this rank.
        unsafe { Process::from_raw(libmpi::ibex_comm_peer(self.0, rank)) }
    }

    /// Returns the rank in its job of the process with this rank; `u32::MAX` if there is no such rank.
    pub(crate) fn rank_in_job(self, rank: i32) -> u32 {
        if !self.part().routes.has(rank) {
            return u32::MAX;
        }
        // SAFETY: P1, M4: it lives, and has this rank.
        name(unsafe { libmpi::ibex_comm_member(self.0, self.is_inter().into(), rank) }).rank
    }

    /// Returns the listeners to it. A borrow of the state proves that the PML is entered.
    #[inline(always)]
    pub(crate) fn listeners(self, _entered: &State) -> Option<&'static Listeners> {
        // SAFETY: P1, M4: it lives; P3.
        unsafe { Listeners::of(self.0) }
    }

    /// Releases a reference. Nothing is entered, because freeing a communicator may call the PML.
    pub(super) fn release(self) {
        // SAFETY: the caller has this reference, and releases it once.
        unsafe { libmpi::ibex_communicator_release(self.0) };
    }
}

fn name(of_member: u64) -> PeerName {
    PeerName { job: (of_member >> 32) as u32, rank: of_member as u32 }
}

pub(crate) struct Communicator {
    pub(crate) routes: RouteTable,
    queues: UnsafeCell<Queues>,
    lengths: Lengths,
    /// Port of the first rail, which a short message reaches by one load.
    first_port: NonNull<Exclusive<Port>>,
    /// Rank of this process.
    pub(crate) rank: i32,
    pub(crate) sender: EagerSender,
    pub(crate) context: u32,
    pub(crate) comm: Comm,
}

impl Communicator {
    /// Makes the part of a communicator with `peers` ranks.
    pub(crate) fn new(comm: Comm, first_port: NonNull<Exclusive<Port>>, peers: usize) -> Box<Self> {
        let (rank, context) = (comm.rank(), comm.context());
        Box::new(Communicator {
            routes: RouteTable::new(peers),
            queues: UnsafeCell::new(Queues::new()),
            lengths: Lengths::default(),
            first_port,
            rank,
            sender: EagerSender::new(context, rank),
            context,
            comm,
        })
    }

    /// Enters the port of the first rail, if that is the only rail and this unmarked route uses it.
    #[inline(always)]
    pub(crate) fn enter_first(&self, route: Route) -> Option<Entered<'_, Port>> {
        if !route.is_open_single_rail() {
            return None;
        }
        // SAFETY: the port is the PML's, which lives until Open MPI's last call.
        unsafe { self.first_port.as_ref() }.enter()
    }

    /// Returns the queues, for a thread that has entered the PML and has no `State` to lend.
    ///
    /// # Safety
    /// P3: nobody else has a reference to the queues while the result is used.
    #[allow(clippy::mut_from_ref, reason = "one thread at a time has entered the PML")]
    pub(crate) unsafe fn queues(&self) -> (&mut Queues, &Lengths) {
        // SAFETY: P3, as this function requires.
        (unsafe { &mut *self.queues.get() }, &self.lengths)
    }

    pub(crate) fn into_queues(self) -> Queues {
        self.queues.into_inner()
    }
}

impl HasQueues for Communicator {
    unsafe fn lengths<'comm>(comm: *mut sys::ompi_communicator_t) -> Option<&'comm Lengths> {
        // SAFETY: P1: it lives, as this function requires.
        unsafe { Comm::new(comm) }.if_added().map(|communicator| &communicator.lengths)
    }
}

impl Communicators for State {
    type Communicator = &'static Communicator;

    #[inline(always)]
    fn communicator(&mut self, request: Handle) -> &'static Communicator {
        // A call of MPI has it, or the messenger has asked `is_abandoned`, so it is still the PML's.
        self.requests.get(request).comm().part()
    }

    fn number(&mut self, of: &'static Communicator) -> u32 {
        of.context
    }

    fn rank(&mut self, of: &'static Communicator) -> i32 {
        of.rank
    }

    fn context(&mut self, request: Handle) -> u32 {
        self.requests.get(request).comm().context()
    }

    fn is_abandoned(&mut self, send: Handle) -> bool {
        // `MPI_Finalize` removes the PML's part.
        self.requests.get(send).comm().if_added().is_none()
    }

    fn known_route(&mut self, of: &'static Communicator, rank: i32) -> Option<Route> {
        match of.routes.route(rank) {
            Route::UNKNOWN => {
                let name = self.name_of(of, rank)?;
                self.messenger.rails.known.get(&name).copied()
            }
            route => Some(route.unmarked()),
        }
    }

    #[inline(always)]
    fn skips_flow_control(&mut self, pml: &Pml, send: Handle) -> bool {
        // Another route of the communicator has a mark, or is an earlier home of the peer.
        let &mut Core { route, peer, .. } = self.requests.core(send);
        self.communicator(send).routes.route(peer) == routes::stored(pml, route)
    }

    fn set_skips_flow_control(&mut self, pml: &Pml, send: Handle, skips: bool) {
        let &mut Core { route, peer, .. } = self.requests.core(send);
        let route = routes::stored(pml, route);
        self.communicator(send).routes.set(peer, if skips { route } else { route.marked() });
    }

    fn mark(&mut self, routes: &[Route]) {
        for (context, rank) in routes.iter().flat_map(|route| self.messenger.flow.holders.of(*route)) {
            let Some(communicator) = self.messenger.contexts.get(context) else { continue };
            // The communicator may have stored an earlier home of the peer.
            for route in routes {
                communicator.routes.mark(rank, *route);
            }
        }
    }

    fn queues(&mut self, of: &'static Communicator) -> (&mut Queues, &Lengths) {
        // SAFETY: P3: only the holder of the state uses the queues, and it is borrowed as long as they are.
        unsafe { of.queues() }
    }
}

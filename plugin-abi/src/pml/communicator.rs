// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML's part of a communicator: the route to each rank, posted receives and unexpected messages; the messenger
//! searches them (`engine::messenger::host::Communicators`).
//!
//! Open MPI's communicator points to it (`c_pml_comm`) from `pml_add_comm` to `pml_del_comm` (`context.rs`). Grade:
//! hot. Threads: routes are atomics, which the first thread that needs one stores; the queues belong to the thread that
//! has entered the PML. Tests: below.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use engine::messenger::header::EagerSender;
use engine::messenger::host::Communicators;
use engine::messenger::matching::lengths::{Lengths, Shown};
use engine::messenger::matching::{Envelope, Matching, Message, Pattern, ReceiveHandle, Searched};
use engine::messenger::receive::arrived::Arrived;
use engine::messenger::route::Route;
use ibex_ffi::openmpi::{release, sys};

use super::first_receive::{FirstReceive, Posted};
use super::instance::State;
use super::ports::rails;
use super::request::Handle;
use crate::runtime::device::Port;
use crate::runtime::exclusive::{Entered, Exclusive};

pub(crate) type Queues = Matching<Handle, Arrived>;

/// Name of the receive in the first slot, for [`Communicator::cancel`]. No receive in the queue has it.
const FIRST: u64 = u64::MAX;

pub(crate) struct Communicator {
    /// Route to each rank of the remote group.
    routes: Box<[AtomicU64]>,
    /// Routes that the fast path uses: `routes`, or `closed` while a tool listens to this communicator.
    short_cuts: AtomicPtr<AtomicU64>,
    closed: OnceLock<Box<[AtomicU64]>>,
    queues: UnsafeCell<Queues>,
    /// First receive slot: a receive that was posted while no other was. Messages are compared with it first.
    first: FirstReceive,
    /// Whether a tool listens to this communicator. `first` then holds a blocker, which matches no message, so that no
    /// poll delivers one in place.
    is_watched: AtomicBool,
    /// First receive slot while a tool listens.
    first_watched: FirstReceive,
    lengths: Lengths,
    /// Port of the first rail, which a short message reaches by one load.
    first_port: NonNull<Exclusive<Port>>,
    /// Rank of this process.
    pub(crate) rank: i32,
    pub(crate) sender: EagerSender,
    pub(crate) context: u32,
    pub(crate) comm: *mut sys::ompi_communicator_t,
}

fn unknown(peers: usize) -> Box<[AtomicU64]> {
    (0..peers).map(|_| AtomicU64::new(Route::UNKNOWN.bits())).collect()
}

impl Communicator {
    /// Makes the part of a communicator with `peers` ranks.
    pub(crate) fn new(first_port: NonNull<Exclusive<Port>>, peers: usize, rank: i32, context: u32) -> Box<Self> {
        let routes = unknown(peers);
        let queues = UnsafeCell::new(Matching::new());
        let communicator = Box::new(Communicator {
            short_cuts: AtomicPtr::default(),
            closed: OnceLock::new(),
            routes,
            queues,
            first: FirstReceive::empty(),
            is_watched: AtomicBool::new(false),
            first_watched: FirstReceive::empty(),
            lengths: Lengths::default(),
            first_port,
            rank,
            sender: EagerSender::new(context, rank),
            context,
            comm: null_mut(),
        });
        // Only now, because moving the box would invalidate the short cut's pointer into it.
        communicator.open_short_cut(true);
        communicator
    }

    /// Returns the PML's part of Open MPI's communicator.
    ///
    /// # Safety
    /// `pml_add_comm` was called for `comm`, and `pml_del_comm` was not.
    #[inline]
    pub(crate) unsafe fn of<'call>(comm: *mut sys::ompi_communicator_t) -> &'call Communicator {
        // SAFETY: P1: between these calls `c_pml_comm` is a leaked box, which changes only inside its cells.
        unsafe { &*(*comm).c_pml_comm.cast::<c_void>().cast::<Communicator>() }
    }

    /// [`Self::of`] for any live communicator; `None` if this PML has not added it, or has removed it.
    ///
    /// # Safety
    /// Open MPI's communicator lives. `pml_del_comm` is not called for it while the result is used.
    pub(crate) unsafe fn if_added<'call>(comm: *mut sys::ompi_communicator_t) -> Option<&'call Communicator> {
        // SAFETY: P1, P4: null, or a leaked box (see `of`), which stays until `pml_del_comm`.
        unsafe { (*comm).c_pml_comm.cast::<c_void>().cast::<Communicator>().as_ref() }
    }

    pub(crate) fn has(&self, rank: i32) -> bool {
        (rank as usize) < self.routes.len()
    }

    /// Returns the route to a rank; `UNKNOWN` for a rank outside the communicator.
    #[inline]
    pub(crate) fn route(&self, rank: i32) -> Route {
        // Acquire: the endpoint in the route was made before the route was stored.
        self.routes.get(rank as usize).map_or(Route::UNKNOWN, |route| Route::from_bits(route.load(Ordering::Acquire)))
    }

    /// [`Self::route`] for the fast path: `UNKNOWN` while a tool listens.
    #[inline(always)]
    pub(crate) fn short_cut(&self, rank: i32) -> Route {
        if rank as usize >= self.routes.len() {
            return Route::UNKNOWN;
        }
        // Acquire: the array was made before its address was stored.
        let routes = self.short_cuts.load(Ordering::Acquire);
        // SAFETY: both arrays have as many routes as `routes`, so `rank` is in bounds; they live as long as `self`.
        let route = unsafe { &*routes.add(rank as usize) };
        // Acquire: the endpoint in the route was made before the route was stored.
        Route::from_bits(route.load(Ordering::Acquire))
    }

    pub(crate) fn open_short_cut(&self, is_open: bool) {
        let routes = if is_open { &self.routes } else { self.closed.get_or_init(|| unknown(self.routes.len())) };
        self.short_cuts.store(routes.as_ptr().cast_mut(), Ordering::Release);
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

    pub(crate) fn set_route(&self, rank: i32, route: Route) {
        if let Some(place) = self.routes.get(rank as usize) {
            place.store(route.bits(), Ordering::Release);
        }
    }

    /// Stores the route to a rank that was looked up, unless another thread has stored, and perhaps marked, one.
    pub(crate) fn set_found(&self, rank: i32, route: Route) {
        if let Some(place) = self.routes.get(rank as usize) {
            let unknown = Route::UNKNOWN.bits();
            let _ = place.compare_exchange(unknown, route.bits(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Marks the route to a rank, if it is this one: short messages then take the slow path (`ports/flow.rs`).
    pub(crate) fn mark(&self, rank: i32, route: Route) {
        if let Some(place) = self.routes.get(rank as usize) {
            // If a thread is looking the rank up, the first message to it stores the mark (`set_skips_flow_control`).
            let _ = place.compare_exchange(route.bits(), route.marked().bits(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Returns the slot in use.
    #[inline(always)]
    fn place(&self) -> &FirstReceive {
        if self.is_watched() { &self.first_watched } else { &self.first }
    }

    /// Returns the queue lengths of a communicator, for any thread; `None` if it is not this PML's.
    ///
    /// # Safety
    /// A live communicator. `pml_del_comm` is not called for it while the result is used.
    pub(crate) unsafe fn shown_of<'call>(comm: *mut sys::ompi_communicator_t) -> Option<Shown<'call>> {
        // SAFETY: P1, P4: it lives. The box was stored before MPI's caller got the communicator, and only its atomics
        // are read here.
        let communicator = unsafe { Self::if_added(comm) }?;
        Some(Shown { lengths: &communicator.lengths, has_first: communicator.place().is_taken() })
    }
}

/// Queues, and the receive in the first slot, for the thread that has entered the PML (P3).
impl Communicators for State {
    type Communicator = &'static Communicator;

    #[inline(always)]
    fn communicator(&mut self, request: Handle) -> &'static Communicator {
        // SAFETY: P1: not finished, so its communicator lives. A call of MPI has it (P4), or the messenger has asked
        // `is_abandoned`, so it is still the PML's.
        unsafe { Communicator::of(self.requests.get(request).comm()) }
    }

    fn number(&mut self, of: &'static Communicator) -> u32 {
        of.context
    }

    fn rank(&mut self, of: &'static Communicator) -> i32 {
        of.rank
    }

    fn context(&mut self, request: Handle) -> u32 {
        // SAFETY: P1: the request is not finished, so Open MPI's communicator is alive, even if the PML's has gone.
        unsafe { release::context(self.requests.get(request).comm()) }
    }

    fn is_abandoned(&mut self, send: Handle) -> bool {
        // SAFETY: P1: the send is not finished, so Open MPI's communicator is alive. `MPI_Finalize` removes the PML's.
        unsafe { (*self.requests.get(send).comm()).c_pml_comm.is_null() }
    }

    fn known_route(&mut self, of: &'static Communicator, rank: i32) -> Option<Route> {
        // SAFETY: P1: `of` is alive, so Open MPI's communicator is.
        unsafe { rails::known(self, of.comm, rank) }
    }

    /// Returns the queues. They borrow the entered state, so nobody else has a reference to them.
    #[inline(always)]
    fn queues(&mut self, of: &'static Communicator) -> &mut Queues {
        // SAFETY: P3: only the holder of the state uses the queues, and it is borrowed as long as they are.
        unsafe { &mut *of.queues.get() }
    }

    /// Looks first at the receive in the slot, which is older than those in the queue. A poll that finds the blocker
    /// there takes no receive.
    #[inline(always)]
    fn take_posted<const TOLD: bool>(&mut self, of: &'static Communicator, envelope: Envelope) -> Option<Handle> {
        if TOLD && of.is_watched() {
            return of.first_watched.take_for(envelope).or_else(|| search_posted(self, of, envelope));
        }
        if let Some(request) = of.first.take_for(envelope) {
            return Some(request);
        }
        take_queued(self, of, envelope)
    }

    #[inline(always)]
    fn post<const TOLD: bool>(&mut self, of: &'static Communicator, pattern: Pattern, request: Handle) -> u64 {
        let slot = if TOLD { of.place() } else { &of.first };
        if !slot.is_taken() && self.queues(of).posted() == 0 {
            slot.set(Posted { pattern, request });
            FIRST
        } else {
            post_behind(self, of, pattern, request)
        }
    }

    fn has_posted(&mut self, of: &'static Communicator) -> bool {
        of.place().is_taken() || self.queues(of).posted() > 0
    }

    fn take_unexpected(&mut self, of: &'static Communicator, pattern: Pattern) -> Option<Message<Arrived>> {
        let queues = self.queues(of);
        let Searched { found, attempts } = queues.search_unexpected(pattern);
        of.lengths.searched(attempts);
        if let Some(found) = &found {
            of.lengths.removed(queues.unexpected(), found.message.length());
        }
        found
    }

    fn insert_unexpected(&mut self, of: &'static Communicator, envelope: Envelope, message: Arrived) {
        let (bytes, queues) = (message.length(), self.queues(of));
        let _ = queues.insert_unexpected(envelope, message);
        of.lengths.inserted(queues.unexpected(), bytes);
    }
}

#[inline(never)]
fn post_behind(state: &mut State, of: &'static Communicator, pattern: Pattern, request: Handle) -> u64 {
    let queues = state.queues(of);
    let name = queues.insert_posted(pattern, request).bits();
    // The receive in the first slot counts for the maximum.
    of.lengths.posted(queues.posted(), of.place().is_taken());
    name
}

#[inline(never)]
fn take_queued(state: &mut State, of: &'static Communicator, envelope: Envelope) -> Option<Handle> {
    if of.is_watched() { None } else { search_posted(state, of, envelope) }
}

#[inline(never)]
fn search_posted(state: &mut State, of: &'static Communicator, envelope: Envelope) -> Option<Handle> {
    let queues = state.queues(of);
    let Searched { found, attempts } = queues.search_posted(envelope);
    of.lengths.searched(attempts);
    if found.is_some() {
        of.lengths.posted(queues.posted(), false);
    }
    found
}

impl Communicator {
    /// Returns the numbers of posted receives and of unexpected messages.
    ///
    /// # Safety
    /// P3: this thread has entered the PML, and nobody has a reference to the queues. (A listener has no `State`.)
    #[inline]
    pub(crate) unsafe fn lengths(&self) -> [u32; 2] {
        // SAFETY: P3: nobody has another reference, as this function requires.
        let queues = unsafe { &*self.queues.get() };
        [queues.posted() + u32::from(self.place().is_taken()), queues.unexpected()]
    }

    /// Counts a message of `bytes` that a matched probe has taken out.
    pub(crate) fn has_taken(&'static self, entered: &mut State, bytes: usize) {
        self.lengths.removed(entered.queues(self).unexpected(), bytes);
    }

    /// Whether a tool listens to this communicator and the receive in the slot matches this message.
    #[inline(always)]
    pub(crate) fn is_for_first_watched(&self, _entered: &mut State, envelope: Envelope) -> bool {
        self.is_watched() && self.first_watched.takes(envelope)
    }

    /// Moves the receive in the first slot when a tool starts or stops listening, and sets or removes the blocker.
    ///
    /// # Safety
    /// P3: this thread has entered the PML. (The code that changes listeners has no `State` to lend.)
    pub(crate) unsafe fn set_watched(&self, is_watched: bool) {
        if self.is_watched() == is_watched {
            return;
        }
        let (from, to) = if is_watched {
            (self.first.block(), &self.first_watched)
        } else {
            (self.first_watched.take(), &self.first)
        };
        to.clear();
        if let Some(posted) = from {
            to.set(posted);
        }
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }

    /// Takes a posted receive out; returns false if a message has matched it. `name`: the last one that `post` returned
    /// for this request. Compares the request as well: `post` is not called for a receive that a message matches at
    /// once, so the name may be an old one, which another receive has by now.
    pub(crate) fn cancel(&'static self, entered: &mut State, name: u64, request: Handle) -> bool {
        if name != FIRST {
            let queues = entered.queues(self);
            let is_taken = queues.cancel(ReceiveHandle::from_bits(name), request);
            self.lengths.posted(queues.posted(), false);
            return is_taken;
        }
        self.place().take_if(|posted| posted.request == request).is_some()
    }

    pub(crate) fn into_queues(self) -> Queues {
        self.queues.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pml::instance::Pml;
    use engine::connect::Random;
    use engine::messenger::matching::{ANY_SOURCE, ANY_TAG};
    use engine::transport::EndpointId;

    /// A handle that leads to no request; the queues do not follow handles.
    fn request(number: usize) -> Handle {
        // SAFETY: P1: nobody asks for the request of this name.
        unsafe { Handle::new(NonNull::without_provenance((number * 0x1000).try_into().expect("not 0"))) }
    }

    fn communicator() -> &'static Communicator {
        Box::leak(Communicator::new(NonNull::dangling(), 2, 0, 3))
    }

    /// A communicator with its own PML.
    struct Only {
        pml: Box<Pml>,
        comm: &'static Communicator,
    }

    impl Only {
        fn new() -> Self {
            Only { pml: Pml::of_no_rails(false), comm: communicator() }
        }

        fn state(&self) -> Entered<'_, State> {
            self.pml.enter().expect("nobody is inside")
        }

        fn post(&self, pattern: Pattern, number: usize) -> u64 {
            self.state().post::<false>(self.comm, pattern, request(number))
        }

        fn taken(&self, source: i32, tag: i32) -> Option<Handle> {
            self.state().take_posted::<false>(self.comm, Envelope::new(source, tag))
        }

        fn taken_watched(&self, source: i32, tag: i32) -> Option<Handle> {
            self.state().take_posted::<true>(self.comm, Envelope::new(source, tag))
        }

        fn is_for_first_watched(&self) -> bool {
            self.comm.is_for_first_watched(&mut self.state(), Envelope::new(0, 7))
        }

        fn cancels(&self, name: u64, number: usize) -> bool {
            self.comm.cancel(&mut self.state(), name, request(number))
        }

        fn watch(&self, is_watched: bool) {
            // SAFETY: P3: the test's only thread uses the communicator.
            unsafe { self.comm.set_watched(is_watched) };
        }

        fn lengths(&self) -> [u32; 2] {
            // SAFETY: P3: the test's only thread uses the communicator.
            unsafe { self.comm.lengths() }
        }
    }

    #[test]
    fn messages_go_to_receives_in_posting_order_whether_the_receives_are_queued_or_not() {
        let comm = Only::new();
        let any = Pattern::new(ANY_SOURCE, ANY_TAG);
        comm.post(Pattern::new(0, 7), 1);
        comm.post(any, 2);
        comm.post(Pattern::new(0, 7), 3);
        assert_eq!(comm.taken(1, 7), Some(request(2)));
        assert_eq!(comm.taken(0, 7), Some(request(1)));
        // The slot is free, but a younger receive must not be put there.
        comm.post(any, 4);
        assert_eq!(comm.taken(0, 7), Some(request(3)));
        assert_eq!(comm.taken(0, 7), Some(request(4)));
        assert_eq!(comm.taken(0, 7), None);
    }

    #[test]
    fn the_fast_path_finds_no_receive_while_a_tool_listens_and_receives_keep_their_order() {
        let comm = Only::new();
        let slowly = |source, tag| comm.taken_watched(source, tag);
        let any = Pattern::new(ANY_SOURCE, ANY_TAG);
        let first = comm.post(Pattern::new(0, 7), 1);
        comm.watch(true);
        comm.watch(true);
        let second = comm.post(any, 2);
        comm.post(any, 3);
        assert_eq!(comm.taken(0, 7), None);
        assert_eq!([slowly(1, 7), slowly(0, 7)], [Some(request(2)), Some(request(1))]);
        assert!(!comm.cancels(first, 1) && !comm.cancels(second, 2));
        comm.watch(false);
        assert_eq!([comm.taken(0, 7), comm.taken(0, 7)], [Some(request(3)), None]);
        // A receive moves back to the first slot when the tool stops listening, and can be cancelled before and after.
        let name = comm.post(any, 4);
        comm.watch(true);
        comm.watch(false);
        comm.post(any, 5);
        assert_eq!([comm.taken(0, 7), comm.taken(0, 7)], [Some(request(4)), Some(request(5))]);
        assert!(!comm.cancels(name, 4));
        let name = comm.post(any, 6);
        comm.watch(true);
        assert!(comm.cancels(name, 6));
        assert_eq!(slowly(0, 7), None);
        // The first receive that is posted while a tool listens is in no queue either; those after it are.
        let posted = |number| comm.state().post::<true>(comm.comm, any, request(number));
        assert_eq!([posted(7), posted(8)].map(|name| name == FIRST), [true, false]);
        assert_eq!((comm.lengths(), comm.is_for_first_watched()), ([2, 0], true));
        comm.watch(false);
        assert_eq!(comm.lengths(), [2, 0]);
        comm.watch(true);
        assert_eq!([slowly(0, 7), slowly(0, 7), slowly(0, 7)], [Some(request(7)), Some(request(8)), None]);
        assert!(!comm.is_for_first_watched());
    }

    #[test]
    fn a_rank_outside_the_communicator_has_no_route() {
        let comm = communicator();
        assert!(comm.has(0) && comm.has(1));
        for rank in [-1, 2, i32::MAX, i32::MIN] {
            assert!(!comm.has(rank), "{rank}");
            assert_eq!([comm.route(rank), comm.short_cut(rank)], [Route::UNKNOWN; 2], "{rank}");
        }
    }

    #[test]
    fn a_route_stays_marked_until_set_route_replaces_it() {
        let comm = communicator();
        let route = Route::new(0, EndpointId::from_index(7));
        comm.mark(0, route);
        assert_eq!(comm.route(0), Route::UNKNOWN);
        comm.set_found(0, route);
        comm.mark(0, route);
        assert_eq!([comm.route(0), comm.short_cut(0)], [route.marked(); 2]);
        assert!(comm.enter_first(comm.short_cut(0)).is_none());
        // Another thread, which looked the same rank up, stores its route later. Marking does not touch rank 1's route.
        comm.set_found(0, route);
        comm.set_found(1, route.as_multi_rail());
        comm.mark(1, route);
        comm.mark(99, route);
        assert_eq!([comm.route(0), comm.route(1)], [route.marked(), route.as_multi_rail()]);
        comm.mark(1, route.as_multi_rail());
        assert_eq!(comm.route(1), route.as_multi_rail().marked());
        comm.set_route(0, route);
        assert_eq!(comm.short_cut(0), route);
    }

    #[test]
    fn a_communicator_knows_whether_a_receive_is_posted_while_a_tool_listens() {
        let comm = Only::new();
        let waits = || comm.state().has_posted(comm.comm);
        comm.watch(true);
        assert!(!waits());
        comm.watch(false);
        comm.post(Pattern::new(0, 7), 1);
        assert!(waits());
        comm.watch(true);
        assert!(waits());
    }

    #[test]
    fn cancel_succeeds_once_and_never_after_a_match() {
        let comm = Only::new();
        let names = [1, 2].map(|number| comm.post(Pattern::new(1, number as i32), number));
        let cancel = |at: usize| comm.cancels(names[at], at + 1);
        assert_eq!([cancel(0), cancel(0), cancel(1), cancel(1)], [true, false, true, false]);
        let name = comm.post(Pattern::new(1, 1), 3);
        assert_eq!(comm.taken(1, 1), Some(request(3)));
        assert!(!comm.cancels(name, 3));
        comm.post(Pattern::new(1, 1), 4);
        assert!(!comm.cancels(name, 3), "another receive is in the slot now");
    }

    #[test]
    fn cancelling_a_request_never_takes_out_the_receive_of_another() {
        const REQUESTS: usize = 6;
        let any = Pattern::new(ANY_SOURCE, ANY_TAG);
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut below = |limit: usize| random.below(limit as u64) as usize;
            let comms = [Only::new(), Only::new()];
            // Posted receives of each communicator in order; communicator and last name of each request. A request
            // keeps its last name when a message matches its receive at once.
            let mut waiting: [Vec<usize>; 2] = Default::default();
            let mut of = [0; REQUESTS];
            let mut names = [0; REQUESTS];
            for _ in 0..200 {
                let (at, one) = (below(2), below(REQUESTS));
                match below(4) {
                    0 if waiting.iter().all(|requests| !requests.contains(&one)) => {
                        of[one] = at;
                        names[one] = comms[at].post(any, one + 1);
                        waiting[at].push(one);
                    }
                    1 if waiting.iter().all(|requests| !requests.contains(&one)) => of[one] = at,
                    2 => {
                        let expected = (!waiting[at].is_empty()).then(|| waiting[at].remove(0));
                        assert_eq!(comms[at].taken(0, 7), expected.map(|one| request(one + 1)), "seed {seed}");
                    }
                    _ => {
                        let place = waiting[of[one]].iter().position(|waits| *waits == one);
                        let is_cancelled = comms[of[one]].cancels(names[one], one + 1);
                        assert_eq!(is_cancelled, place.is_some(), "seed {seed}");
                        place.map(|place| waiting[of[one]].remove(place));
                    }
                }
            }
        }
    }
}

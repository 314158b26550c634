// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the PML keeps of a communicator: how each rank is reached, and what waits in it.
//!
//! Hangs at Open MPI's communicator (`c_pml_comm`) from `pml_add_comm` to `pml_del_comm` (`context.rs`). Grade: hot.
//! Threads: links are atomics, filled in by whoever needs one first; the queues belong to who has entered the PML.
//! Tests: below.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use engine::matching::{Envelope, Matching, Message, Pattern, ReceiveHandle, Searched};
use engine::protocol::header::EagerSender;
use engine::transport::Port;
use ibex_ffi::openmpi::sys;

use super::arrived::Arrived;
use super::first_receive::{FirstReceive, Posted};
use super::lengths::{Lengths, Shown};
use super::link::Link;
use super::request::Request;
use crate::runtime::exclusive::{Entered, Exclusive};

/// The queues of a communicator.
pub(crate) type Queues = Matching<NonNull<Request>, Arrived>;

/// The name of a receive that is in no queue, by which it is cancelled: of none that is.
const FIRST: u64 = u64::MAX;

/// A communicator.
pub(crate) struct Communicator {
    /// Of each rank of the remote group.
    links: Box<[AtomicU64]>,
    /// The links that the short cut goes by: these, or as many that are unknown while a tool listens to it.
    short_cuts: AtomicPtr<AtomicU64>,
    closed: OnceLock<Box<[AtomicU64]>>,
    queues: UnsafeCell<Queues>,
    /// The receive that was posted when none was, as long as nothing has come for it: the first that a message is
    /// compared with. Mostly it is the only one, and the queues need not be touched.
    first: FirstReceive,
    /// Whether a tool listens to it. Then something is at the first place that no message goes to, so that no short cut
    /// gets beyond it.
    is_watched: AtomicBool,
    /// What was at the first place before.
    aside: FirstReceive,
    lengths: Lengths,
    /// The port of the first rail, so that a short message need not look for it.
    first_port: NonNull<Exclusive<Port>>,
    /// This process' rank, as the others see it in what it sends.
    pub(crate) rank: i32,
    /// What the headers of its eager messages have in common.
    pub(crate) sender: EagerSender,
    pub(crate) context: u32,
    /// Open MPI's.
    pub(crate) comm: *mut sys::ompi_communicator_t,
}

/// Links to so many peers, none of which has been looked for.
fn unknown(peers: usize) -> Box<[AtomicU64]> {
    (0..peers).map(|_| AtomicU64::new(Link::UNKNOWN.bits())).collect()
}

impl Communicator {
    /// Of so many peers, none of which has been looked for.
    pub(crate) fn new(first_port: NonNull<Exclusive<Port>>, peers: usize, rank: i32, context: u32) -> Box<Self> {
        let links = unknown(peers);
        let queues = UnsafeCell::new(Matching::new());
        Box::new(Communicator {
            short_cuts: AtomicPtr::new(links.as_ptr().cast_mut()),
            closed: OnceLock::new(),
            links,
            queues,
            first: FirstReceive::empty(),
            is_watched: AtomicBool::new(false),
            aside: FirstReceive::empty(),
            lengths: Lengths::default(),
            first_port,
            rank,
            sender: EagerSender::new(context, rank),
            context,
            comm: null_mut(),
        })
    }

    /// The one that hangs at Open MPI's.
    ///
    /// # Safety
    /// `pml_add_comm` was called for it, and `pml_del_comm` was not.
    #[inline]
    pub(crate) unsafe fn of<'call>(comm: *mut sys::ompi_communicator_t) -> &'call Communicator {
        // SAFETY: `pml_add_comm` has put it there, a box that was leaked and is only changed inside cells, and
        // `pml_del_comm` has not taken it away.
        unsafe { &*(*comm).c_pml_comm.cast::<c_void>().cast::<Communicator>() }
    }

    /// Whether there is such a rank.
    pub(crate) fn has(&self, rank: i32) -> bool {
        (rank as usize) < self.links.len()
    }

    /// How a rank is reached, as far as it is known. Ranks that there are not are unknown for ever.
    #[inline]
    pub(crate) fn link(&self, rank: i32) -> Link {
        // Acquire: the endpoint that it names was made before.
        self.links.get(rank as usize).map_or(Link::UNKNOWN, |link| Link::from_bits(link.load(Ordering::Acquire)))
    }

    /// The same for the short cut: unknown while that is closed.
    #[inline(always)]
    pub(crate) fn short_cut(&self, rank: i32) -> Link {
        if rank as usize >= self.links.len() {
            return Link::UNKNOWN;
        }
        // Acquire: what it points to was made before.
        let links = self.short_cuts.load(Ordering::Acquire);
        // SAFETY: in bounds, as there are as many as `links`, and they live as long as this.
        let link = unsafe { &*links.add(rank as usize) };
        // Acquire: as above.
        Link::from_bits(link.load(Ordering::Acquire))
    }

    /// Opens or closes the short cut.
    pub(crate) fn open_short_cut(&self, is_open: bool) {
        let links = if is_open { &self.links } else { self.closed.get_or_init(|| unknown(self.links.len())) };
        self.short_cuts.store(links.as_ptr().cast_mut(), Ordering::Release);
    }

    /// The port by which a peer is reached, entered, if it is the first rail's; and how that is named.
    #[inline(always)]
    pub(crate) fn enter_first(&self, link: Link) -> Option<Entered<'_, Port>> {
        if !link.is_of_only() {
            return None;
        }
        // SAFETY: the port is the PML's, which does not end before Open MPI's last call.
        unsafe { self.first_port.as_ref() }.enter()
    }

    /// Notes how a rank is reached.
    pub(crate) fn set_link(&self, rank: i32, link: Link) {
        if let Some(place) = self.links.get(rank as usize) {
            place.store(link.bits(), Ordering::Release);
        }
    }

    /// Notes how a rank is reached that was looked for, if nobody has meanwhile, and perhaps marked it.
    pub(crate) fn set_found(&self, rank: i32, link: Link) {
        if let Some(place) = self.links.get(rank as usize) {
            let unknown = Link::UNKNOWN.bits();
            let _ = place.compare_exchange(unknown, link.bits(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Has short messages to a rank look for their way (`flow`), if this is how it is reached.
    pub(crate) fn mark(&self, rank: i32, link: Link) {
        if let Some(place) = self.links.get(rank as usize) {
            // One that is looked up meanwhile is marked when its first message finds the way.
            let _ = place.compare_exchange(link.bits(), link.marked().bits(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether a receive waits.
    ///
    /// # Safety
    /// P3: the caller has entered the PML, and has no other reference to the queues.
    pub(crate) unsafe fn has_posted(&self) -> bool {
        // SAFETY: P3.
        self.place().is_taken() || unsafe { self.queues() }.posted() > 0
    }

    /// How many receives wait, and how many messages are unexpected.
    ///
    /// # Safety
    /// P3: the caller has entered the PML, and has no other reference to the queues.
    pub(crate) unsafe fn lengths(&self) -> [u32; 2] {
        // SAFETY: P3.
        let queues = unsafe { self.queues() };
        [queues.posted() + u32::from(self.place().is_taken()), queues.unexpected()]
    }

    /// Whether a tool listens to it.
    fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Where a receive is that is in no queue.
    #[inline(always)]
    fn place(&self) -> &FirstReceive {
        if self.is_watched() { &self.aside } else { &self.first }
    }

    /// How long the queues of a communicator are and were; `None`: this face does not have it. Any thread.
    ///
    /// # Safety
    /// A live communicator, which `pml_del_comm` is not called for while what is returned is used.
    pub(crate) unsafe fn shown_of<'call>(comm: *mut sys::ompi_communicator_t) -> Option<Shown<'call>> {
        // SAFETY: a live communicator, for which `pml_del_comm` is not called meanwhile: its box was put there before
        // MPI's caller had it, and only atomics of that are read here.
        let communicator = unsafe { (*comm).c_pml_comm.cast::<c_void>().cast::<Communicator>().as_ref() }?;
        Some(Shown { lengths: &communicator.lengths, has_first: communicator.place().is_taken() })
    }

    /// Keeps a message that no receive was there for.
    ///
    /// # Safety
    /// P3: the caller has entered the PML, and has no other reference to the queues.
    pub(crate) unsafe fn insert_unexpected(&self, envelope: Envelope, message: Arrived) {
        let bytes = message.length();
        // SAFETY: P3.
        let queues = unsafe { self.queues() };
        let _ = queues.insert_unexpected(envelope, message);
        self.lengths.inserted(queues.unexpected(), bytes);
    }

    /// Takes out the first message that a receive takes.
    ///
    /// # Safety
    /// P3: the caller has entered the PML, and has no other reference to the queues.
    pub(crate) unsafe fn take_unexpected(&self, pattern: Pattern) -> Option<Message<Arrived>> {
        // SAFETY: P3.
        let queues = unsafe { self.queues() };
        let Searched { found, attempts } = queues.search_unexpected(pattern);
        self.lengths.searched(attempts);
        if let Some(found) = &found {
            self.lengths.removed(queues.unexpected(), found.message.length());
        }
        found
    }

    /// A matched probe has taken out a message of so many bytes.
    ///
    /// # Safety
    /// P3: the caller has entered the PML, and has no other reference to the queues.
    pub(crate) unsafe fn has_taken(&self, bytes: usize) {
        // SAFETY: P3.
        self.lengths.removed(unsafe { self.queues() }.unexpected(), bytes);
    }

    /// Its queues.
    ///
    /// # Safety
    /// P3: the caller has entered the PML, and has no other reference to them.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "what permits it is that the PML is entered once at a time")]
    pub(crate) unsafe fn queues(&self) -> &mut Queues {
        // SAFETY: P3: the caller has no other reference.
        unsafe { &mut *self.queues.get() }
    }

    /// Posts a receive for which nothing unexpected has come. Returns its name.
    ///
    /// # Safety
    /// P3: the caller has entered the PML.
    #[inline(always)]
    pub(crate) unsafe fn post(&self, pattern: Pattern, request: NonNull<Request>) -> u64 {
        // SAFETY: P3.
        if !self.first.is_taken() && unsafe { self.queues() }.posted() == 0 {
            self.first.set(Posted { pattern, request });
            FIRST
        } else {
            // SAFETY: P3.
            unsafe { self.post_behind(pattern, request) }
        }
    }

    /// [`Self::post`] of a communicator that a tool listens to.
    ///
    /// # Safety
    /// P3: the caller has entered the PML.
    #[inline(always)]
    pub(crate) unsafe fn post_watched(&self, pattern: Pattern, request: NonNull<Request>) -> u64 {
        // SAFETY: P3.
        if self.is_watched() && !self.aside.is_taken() && unsafe { self.queues() }.posted() == 0 {
            self.aside.set(Posted { pattern, request });
            FIRST
        } else {
            // SAFETY: P3.
            unsafe { self.post(pattern, request) }
        }
    }

    /// # Safety
    /// P3: the caller has entered the PML.
    #[inline(never)]
    unsafe fn post_behind(&self, pattern: Pattern, request: NonNull<Request>) -> u64 {
        // SAFETY: P3.
        let queues = unsafe { self.queues() };
        let name = queues.insert_posted(pattern, request).bits();
        // With the one in no queue, if there is one: the most have waited so.
        self.lengths.posted(queues.posted(), self.place().is_taken());
        name
    }

    /// Takes out the receive that a message goes to, if there is one: the first is older than those in the queue.
    ///
    /// # Safety
    /// P3: the caller has entered the PML.
    #[inline(always)]
    pub(crate) unsafe fn take_posted(&self, envelope: Envelope) -> Option<NonNull<Request>> {
        if let Some(request) = self.first.take_for(envelope) {
            return Some(request);
        }
        // SAFETY: P3.
        unsafe { self.take_queued(envelope) }
    }

    /// # Safety
    /// P3: the caller has entered the PML.
    #[inline(never)]
    unsafe fn take_queued(&self, envelope: Envelope) -> Option<NonNull<Request>> {
        if self.is_watched() {
            return None;
        }
        // SAFETY: P3.
        unsafe { self.search_posted(envelope) }
    }

    /// # Safety
    /// P3: the caller has entered the PML.
    #[inline(never)]
    unsafe fn search_posted(&self, envelope: Envelope) -> Option<NonNull<Request>> {
        // SAFETY: P3.
        let queues = unsafe { self.queues() };
        let Searched { found, attempts } = queues.search_posted(envelope);
        self.lengths.searched(attempts);
        if found.is_some() {
            self.lengths.posted(queues.posted(), false);
        }
        found
    }

    /// Whether a tool listens to it, and the receive that is in no queue takes this message.
    ///
    /// # Safety
    /// P3: the caller has entered the PML.
    #[inline(always)]
    pub(crate) unsafe fn is_for_first_watched(&self, envelope: Envelope) -> bool {
        self.is_watched() && self.aside.takes(envelope)
    }

    /// [`Self::take_posted`] of a communicator that a tool may be listening to.
    ///
    /// # Safety
    /// P3: the caller has entered the PML.
    #[inline(always)]
    pub(crate) unsafe fn take_posted_watched(&self, envelope: Envelope) -> Option<NonNull<Request>> {
        if !self.is_watched() {
            // SAFETY: P3.
            return unsafe { self.take_posted(envelope) };
        }
        if let Some(request) = self.aside.take_for(envelope) {
            return Some(request);
        }
        // SAFETY: P3.
        unsafe { self.search_posted(envelope) }
    }

    /// A tool begins or ceases to listen to it.
    ///
    /// # Safety
    /// P3: the caller has entered the PML.
    pub(crate) unsafe fn set_watched(&self, is_watched: bool) {
        if self.is_watched() == is_watched {
            return;
        }
        let (from, to) = if is_watched { (self.first.block(), &self.aside) } else { (self.aside.take(), &self.first) };
        to.clear();
        if let Some(posted) = from {
            to.set(posted);
        }
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }

    /// Takes a posted receive back. False: it has been matched. A request whose receive was matched at once has the name
    /// of one that it was before, perhaps in another communicator, where that name is another's by now: so the request
    /// is compared as well.
    ///
    /// # Safety
    /// P3: the caller has entered the PML; the name is the last that `post` gave this request.
    pub(crate) unsafe fn cancel(&self, name: u64, request: NonNull<Request>) -> bool {
        if name != FIRST {
            // SAFETY: P3.
            let queues = unsafe { self.queues() };
            let is_taken = queues.cancel(ReceiveHandle::from_bits(name), request);
            self.lengths.posted(queues.posted(), false);
            return is_taken;
        }
        self.place().take_if(|posted| posted.request == request).is_some()
    }

    /// What it was.
    pub(crate) fn into_queues(self) -> Queues {
        self.queues.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::connect::Random;
    use engine::matching::{ANY_SOURCE, ANY_TAG};
    use engine::transport::EndpointId;

    /// An address that is of no request.
    fn request(number: usize) -> NonNull<Request> {
        NonNull::without_provenance((number * 0x1000).try_into().expect("not 0"))
    }

    fn communicator() -> Box<Communicator> {
        Communicator::new(NonNull::dangling(), 2, 0, 3)
    }

    /// The calls, by one thread.
    fn post(comm: &Communicator, pattern: Pattern, number: usize) -> u64 {
        // SAFETY: P3: nobody else uses it.
        unsafe { comm.post(pattern, request(number)) }
    }

    fn taken(comm: &Communicator, source: i32, tag: i32) -> Option<NonNull<Request>> {
        // SAFETY: P3: nobody else uses it.
        unsafe { comm.take_posted(Envelope::new(source, tag)) }
    }

    #[test]
    fn messages_go_to_receives_in_posting_order_whether_they_are_queued_or_not() {
        let comm = communicator();
        let any = Pattern::new(ANY_SOURCE, ANY_TAG);
        post(&comm, Pattern::new(0, 7), 1);
        post(&comm, any, 2);
        post(&comm, Pattern::new(0, 7), 3);
        assert_eq!(taken(&comm, 1, 7), Some(request(2)));
        assert_eq!(taken(&comm, 0, 7), Some(request(1)));
        // The place is free, and a younger receive must not have it.
        post(&comm, any, 4);
        assert_eq!(taken(&comm, 0, 7), Some(request(3)));
        assert_eq!(taken(&comm, 0, 7), Some(request(4)));
        assert_eq!(taken(&comm, 0, 7), None);
    }

    #[test]
    fn while_a_tool_listens_no_short_cut_is_taken_and_the_order_is_kept() {
        let comm = communicator();
        // SAFETY: P3: nobody else uses it.
        let (watch, slowly) = (
            |on| unsafe { comm.set_watched(on) },
            |source, tag| unsafe { comm.take_posted_watched(Envelope::new(source, tag)) },
        );
        let any = Pattern::new(ANY_SOURCE, ANY_TAG);
        let first = post(&comm, Pattern::new(0, 7), 1);
        watch(true);
        watch(true);
        let second = post(&comm, any, 2);
        post(&comm, any, 3);
        assert_eq!(taken(&comm, 0, 7), None);
        assert_eq!([slowly(1, 7), slowly(0, 7)], [Some(request(2)), Some(request(1))]);
        // SAFETY: P3: nobody else uses it.
        let cancelled = |(name, number)| unsafe { comm.cancel(name, request(number)) };
        assert_eq!([(first, 1), (second, 2)].map(cancelled), [false, false]);
        watch(false);
        assert_eq!([taken(&comm, 0, 7), taken(&comm, 0, 7)], [Some(request(3)), None]);
        // One that waits is first again when nobody listens any more, and can be cancelled meanwhile.
        let name = post(&comm, any, 4);
        watch(true);
        watch(false);
        post(&comm, any, 5);
        assert_eq!([taken(&comm, 0, 7), taken(&comm, 0, 7)], [Some(request(4)), Some(request(5))]);
        // SAFETY: P3: nobody else uses it.
        assert!(!unsafe { comm.cancel(name, request(4)) });
        let name = post(&comm, any, 6);
        watch(true);
        // SAFETY: P3: nobody else uses it.
        assert!(unsafe { comm.cancel(name, request(6)) });
        assert_eq!(slowly(0, 7), None);
        // One that is posted while a tool listens and none waits is in no queue, too; those behind it are.
        // SAFETY: P3: nobody else uses it.
        let posted = |number| unsafe { comm.post_watched(any, request(number)) };
        assert_eq!([posted(7), posted(8)].map(|name| name == FIRST), [true, false]);
        // SAFETY: P3: nobody else uses it.
        let (lengths, is_for_first) = unsafe { (comm.lengths(), comm.is_for_first_watched(Envelope::new(0, 7))) };
        assert_eq!((lengths, is_for_first), ([2, 0], true));
        watch(false);
        // SAFETY: P3: nobody else uses it.
        assert_eq!(unsafe { comm.lengths() }, [2, 0]);
        watch(true);
        assert_eq!([slowly(0, 7), slowly(0, 7), slowly(0, 7)], [Some(request(7)), Some(request(8)), None]);
        // SAFETY: P3: nobody else uses it.
        assert!(!unsafe { comm.is_for_first_watched(Envelope::new(0, 7)) });
    }

    #[test]
    fn a_mark_stays_until_who_stores_a_link_takes_it_away() {
        let comm = communicator();
        let link = Link::new(0, EndpointId::from_index(7));
        comm.mark(0, link);
        assert_eq!(comm.link(0), Link::UNKNOWN);
        comm.set_found(0, link);
        comm.mark(0, link);
        assert_eq!([comm.link(0), comm.short_cut(0)], [link.marked(); 2]);
        assert!(comm.enter_first(comm.short_cut(0)).is_none());
        // Another thread has looked for the same rank, and comes later; another peer's is not touched.
        comm.set_found(0, link);
        comm.set_found(1, link.of_several());
        comm.mark(1, link);
        comm.mark(99, link);
        assert_eq!([comm.link(0), comm.link(1)], [link.marked(), link.of_several()]);
        comm.mark(1, link.of_several());
        assert_eq!(comm.link(1), link.of_several().marked());
        comm.set_link(0, link);
        assert_eq!(comm.short_cut(0), link);
    }

    #[test]
    fn whether_a_receive_waits_is_known_while_a_tool_listens() {
        let comm = communicator();
        // SAFETY: P3: nobody else uses it.
        let (waits, watch) = (|| unsafe { comm.has_posted() }, |on| unsafe { comm.set_watched(on) });
        watch(true);
        assert!(!waits());
        watch(false);
        post(&comm, Pattern::new(0, 7), 1);
        assert!(waits());
        watch(true);
        assert!(waits());
    }

    #[test]
    fn a_receive_is_cancelled_once_and_not_after_it_was_matched() {
        let comm = communicator();
        let names = [1, 2].map(|number| post(&comm, Pattern::new(1, number as i32), number));
        // SAFETY: P3: nobody else uses it.
        let cancel = |at: usize| unsafe { comm.cancel(names[at], request(at + 1)) };
        assert_eq!([cancel(0), cancel(0), cancel(1), cancel(1)], [true, false, true, false]);
        let name = post(&comm, Pattern::new(1, 1), 3);
        assert_eq!(taken(&comm, 1, 1), Some(request(3)));
        // SAFETY: P3: nobody else uses it.
        assert!(!unsafe { comm.cancel(name, request(3)) });
        post(&comm, Pattern::new(1, 1), 4);
        // SAFETY: P3: nobody else uses it. Another receive has the place now.
        assert!(!unsafe { comm.cancel(name, request(3)) });
    }

    #[test]
    fn a_receive_that_was_matched_at_once_cancels_no_other_whatever_its_request_was_before() {
        const REQUESTS: usize = 6;
        let any = Pattern::new(ANY_SOURCE, ANY_TAG);
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut below = |limit: usize| random.below(limit as u64) as usize;
            let comms = [communicator(), communicator()];
            // Of each communicator what waits, in order; of each request its communicator, and its name, which is left
            // as it was when the receive is matched at once.
            let mut waiting: [Vec<usize>; 2] = Default::default();
            let mut of = [0; REQUESTS];
            let mut names = [0; REQUESTS];
            for _ in 0..200 {
                let (at, one) = (below(2), below(REQUESTS));
                match below(4) {
                    0 if waiting.iter().all(|requests| !requests.contains(&one)) => {
                        of[one] = at;
                        names[one] = post(&comms[at], any, one + 1);
                        waiting[at].push(one);
                    }
                    1 if waiting.iter().all(|requests| !requests.contains(&one)) => of[one] = at,
                    2 => {
                        let expected = (!waiting[at].is_empty()).then(|| waiting[at].remove(0));
                        assert_eq!(taken(&comms[at], 0, 7), expected.map(|one| request(one + 1)), "seed {seed}");
                    }
                    _ => {
                        let place = waiting[of[one]].iter().position(|waits| *waits == one);
                        // SAFETY: P3: nobody else uses it.
                        let is_cancelled = unsafe { comms[of[one]].cancel(names[one], request(one + 1)) };
                        assert_eq!(is_cancelled, place.is_some(), "seed {seed}");
                        place.map(|place| waiting[of[one]].remove(place));
                    }
                }
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML of this process: its rails, and what one caller at a time may use.
//!
//! Made by `component` when Open MPI has it initialised, dropped when it is finalized. A caller enters it
//! ([`Pml::enter`]), then perhaps the port of a rail, always in this order and one port at a time. Nothing of Open
//! MPI's is called meanwhile that could call back: what is to be told waits on the chain of those finished (`finish`).
//! Grade: hot. Threads: with `MPI_THREAD_MULTIPLE` a lock for the process, below it none.

use std::cell::{Cell, UnsafeCell};
use std::collections::{HashMap, VecDeque};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use engine::matching::{Contexts, Envelope};
use engine::peer::PeerName;
use engine::protocol::transfers::Transfers;
use engine::transport::{EndpointId, Port};

use super::arrived::Arrived;
use super::backlog::Backlog;
use super::bounds::Flow;
use super::buffer::SendBuffers;
use super::communicator::Communicator;
use super::link::Link;
use super::parting::Foreign;
use super::rails::Quiet;
use super::request::{Request, RequestFunctions, Requests};
use super::several::{Sent, Several};
use super::shared_memory::SharedMemory;
use crate::runtime::exclusive::{Entered, Exclusive};
use crate::runtime::frame::{self, Frame, Frames};
use crate::runtime::idle::Busy;
use crate::runtime::operation_chain::OperationChain;
use crate::runtime::port::OpenPort;
use crate::runtime::token::Tag;

/// What the PML is made with.
pub(crate) struct Settings {
    /// The longest message that is sent at once, bytes, at the beginning.
    pub(crate) eager_limit: usize,
    /// The longest read of a message, bytes.
    pub(crate) read_size: u32,
    /// Bytes of unexpected messages, before their senders are held back.
    pub(crate) unexpected_memory: u64,
    /// Several threads may call at the same time.
    pub(crate) threads: bool,
    /// What Open MPI calls with a request.
    pub(crate) functions: RequestFunctions,
    /// What polls where there is not one rail alone.
    pub(crate) poll_more: PollMore,
}

/// Polls all there is to poll, by who has entered the PML. Returns how many events there were.
pub(crate) type PollMore = fn(&Pml, &mut State) -> usize;

/// A port that the PML uses.
pub(crate) struct Rail {
    port: Arc<OpenPort>,
    /// The port's, so that the way to it is one load.
    entry: NonNull<Exclusive<Port>>,
    /// What was polled last; released by the next poll.
    frame: UnsafeCell<Box<Frame>>,
    /// Bytes of a send buffer for a message, header and all: the most that the eager limit can be.
    pub(crate) copy_size: usize,
    /// The longest message, header and all, bytes.
    pub(crate) receive_size: usize,
    /// The longest read, bytes.
    pub(crate) read_limit: u32,
    /// Of each endpoint, where there are several rails; used by who has entered the port.
    sent: UnsafeCell<Vec<Sent>>,
}

/// The PML. Its state is first, wherever the compiler would put a field of that size: so it has the PML's address, and a
/// receive has none to work out and to keep.
#[repr(C)]
pub(crate) struct Pml {
    state: Exclusive<State>,
    rails: Box<[Rail]>,
    /// Whether there is one, and no shared memory to poll as well. Written while MPI is initialised.
    has_one_rail: Cell<bool>,
    /// That one, while no tool listens; else null.
    only_rail: AtomicPtr<Rail>,
    /// A [`PollMore`]: what polls where that is null.
    poll_more: AtomicPtr<()>,
    /// The way to processes of this host, if that is not a rail; else null.
    shared_memory: AtomicPtr<SharedMemory>,
    /// Several threads may call at the same time.
    has_threads: bool,
    /// The state, while who has entered it has the shared-memory BTL call back.
    within: AtomicPtr<State>,
}

// SAFETY: a rail's pointer is to what its `Arc` holds, which may be shared; its batch is used by who has entered the
// state, which is shared as `Exclusive` permits; the one cell is written by the one thread that initialises MPI, before
// others begin.
unsafe impl Sync for Pml {}
// SAFETY: a rail's pointer is to what its `Arc` holds, which may be shared; what the others lead to is the PML's own.
unsafe impl Send for Pml {}

/// What one caller at a time may use.
pub(crate) struct State {
    pub(crate) requests: Requests,
    pub(crate) contexts: Contexts<NonNull<Communicator>, (Envelope, Arrived)>,
    pub(crate) transfers: Transfers<NonNull<Request>>,
    pub(crate) flow: Flow,
    /// Of each rail.
    pub(crate) buffers: Vec<SendBuffers>,
    /// The peers that were looked up.
    pub(crate) peers: HashMap<PeerName, Link>,
    /// Where there are several rails.
    pub(crate) several: Several,
    /// Processes of other jobs.
    pub(crate) foreign: Foreign,
    /// Requests whose pieces wait for a buffer.
    pub(crate) starved: VecDeque<NonNull<Request>>,
    /// What waits to go by shared memory.
    pub(crate) backlog: Backlog,
    /// Whether the rails have reported anything of late.
    pub(crate) rails: Quiet,
    /// Requests that are finished and not told of, in order.
    pub(crate) finished: Chain,
    /// Frames with something for the BTL.
    pub(crate) for_btl: frame::Polled,
    pub(crate) frames: Frames,
    /// Operations of the BTL's that a poll has found done.
    pub(crate) operations: OperationChain,
    /// When a blocking call that never waits lets others go on.
    pub(crate) busy: Busy,
    /// The job is to be ended: a peer is lost, or it was said why.
    pub(crate) has_failed: bool,
    /// Something of the above is to be done once nothing is entered.
    pub(crate) has_more: bool,
}

// SAFETY: the pointers are to records of the PML's own, which move with it; P3.
unsafe impl Send for State {}

/// Requests that are finished and not told of, linked through themselves.
pub(crate) struct Chain {
    pub(crate) first: *mut Request,
    pub(crate) last: *mut Request,
}

impl Chain {
    pub(crate) const EMPTY: Chain = Chain { first: null_mut(), last: null_mut() };
}

/// The longest read, in bytes, asked of a software adapter: what several of them fill stays in the processor's cache.
/// Measured on soft-RoCE for the BTL: messages of 1 MiB come a third faster.
const SOFTWARE_READ_LIMIT: u32 = 32 << 10;

static PML: AtomicPtr<Pml> = AtomicPtr::new(null_mut());

/// The same as long as no tool listens to what becomes of messages.
static UNWATCHED: AtomicPtr<Pml> = AtomicPtr::new(null_mut());

/// The PML; `None` outside of its life.
#[inline]
pub(crate) fn pml() -> Option<&'static Pml> {
    // SAFETY: a leaked box, taken back after Open MPI's last call (`end`). Acquire: what it was made with.
    unsafe { PML.load(Ordering::Acquire).as_ref() }
}

/// The PML; `None` while a tool listens as well: so a short cut asks both with one question.
#[inline]
pub(crate) fn unwatched() -> Option<&'static Pml> {
    // SAFETY: a leaked box, taken back after Open MPI's last call (`end`). Acquire: what it was made with.
    unsafe { UNWATCHED.load(Ordering::Acquire).as_ref() }
}

/// Notes whether a tool listens.
pub(crate) fn set_watched(pml: &'static Pml, is_watched: bool) {
    let unwatched = if is_watched { null_mut() } else { std::ptr::from_ref(pml).cast_mut() };
    UNWATCHED.store(unwatched, Ordering::Release);
}

/// Begins its life.
pub(crate) fn begin(pml: Pml) {
    let pml = Box::into_raw(Box::new(pml));
    PML.store(pml, Ordering::Release);
    UNWATCHED.store(pml, Ordering::Release);
}

/// Ends its life.
///
/// # Safety
/// Open MPI's last call: nobody uses it any more.
pub(crate) unsafe fn end() {
    UNWATCHED.store(null_mut(), Ordering::Release);
    let pml = PML.swap(null_mut(), Ordering::AcqRel);
    if !pml.is_null() {
        // SAFETY: leaked by `begin`, and taken back once.
        drop(unsafe { Box::from_raw(pml) });
    }
}

impl Rail {
    /// Of an open port.
    pub(crate) fn new(port: &Arc<OpenPort>, eager_limit: usize, read_size: u32) -> Self {
        let attributes = port.attributes();
        let longest = attributes.max_message.min(u64::from(read_size)) as u32;
        Rail {
            entry: NonNull::from(port.exclusive()),
            frame: UnsafeCell::new(Frame::new()),
            sent: UnsafeCell::default(),
            copy_size: eager_limit.min(port.bounce_size()).min(port.receive_size()),
            receive_size: port.receive_size(),
            read_limit: if attributes.software { longest.min(SOFTWARE_READ_LIMIT) } else { longest },
            port: Arc::clone(port),
        }
    }

    /// The port, with its registrations.
    pub(crate) fn port(&self) -> &OpenPort {
        &self.port
    }

    /// What is entered, for who keeps its address.
    pub(crate) fn entry(&self) -> NonNull<Exclusive<Port>> {
        self.entry
    }

    /// What was polled last.
    ///
    /// # Safety
    /// P3: the caller has entered the PML, and has no other reference to it.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "what permits it is that the PML is entered once at a time")]
    pub(crate) unsafe fn frame(&self) -> &mut Box<Frame> {
        // SAFETY: P3: the caller has no other reference.
        unsafe { &mut *self.frame.get() }
    }

    /// What has been sent to an endpoint, where there are several rails, by who shows that he has entered this rail's port.
    ///
    /// # Panics
    /// It is another rail's port.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "what permits it is that the port is entered, and borrowed as long")]
    pub(crate) fn sent<'port>(&'port self, port: &'port mut Port, to: EndpointId) -> &'port mut Sent {
        let is_its_own = std::ptr::addr_eq(port, self.entry.as_ptr());
        assert!(is_its_own, "what was sent by a port is known to who has entered that one");
        // SAFETY: who has entered the port is alone, and has no other reference, as that would borrow the port.
        let all = unsafe { &mut *self.sent.get() };
        let at = to.index() as usize;
        if at >= all.len() {
            all.resize(at + 1, Sent::default());
        }
        &mut all[at]
    }

    /// Waits for other threads; `None`: this thread is inside already.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, Port>> {
        // SAFETY: the port's, which lives as long as this rail holds it.
        unsafe { self.entry.as_ref() }.enter()
    }

    /// Does not wait.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Entered<'_, Port>> {
        // SAFETY: the port's, which lives as long as this rail holds it.
        unsafe { self.entry.as_ref() }.try_enter()
    }
}

/// Buffers of each size that a port has at most: what finds none waits in ordinary memory, or for a piece to be done.
const MOST_BUFFERS: u32 = 256;

/// A message that moves to another port must fit there, too; and it must be known which have never reached the adapter.
fn make_alike(rails: &mut [Rail]) {
    let copy_size = rails.iter().map(|rail| rail.copy_size).min().unwrap_or_default();
    let receive_size = rails.iter().map(|rail| rail.receive_size).min().unwrap_or_default();
    for rail in rails {
        (rail.copy_size, rail.receive_size) = (copy_size, receive_size);
        if let Some(mut port) = rail.port.enter() {
            port.keep_unposted(Tag::PML.0);
        }
    }
}

impl Pml {
    /// Over these ports.
    pub(crate) fn new(mut rails: Vec<Rail>, settings: &Settings) -> Self {
        if rails.len() > 1 {
            make_alike(&mut rails);
        }
        let buffers = |rail: &Rail| SendBuffers::new(rail.copy_size, rail.receive_size, MOST_BUFFERS);
        let shown = rails.first().map(|rail| rail.port().counters()).unwrap_or_default();
        let state = State {
            flow: Flow::new(settings.unexpected_memory, shown),
            requests: Requests::new(settings.functions),
            contexts: Contexts::new(),
            transfers: Transfers::default(),
            buffers: rails.iter().map(buffers).collect(),
            peers: HashMap::new(),
            several: Several::new(rails.len()),
            foreign: Foreign::default(),
            starved: VecDeque::new(),
            backlog: Backlog::default(),
            rails: Quiet::default(),
            finished: Chain::EMPTY,
            for_btl: frame::Polled::default(),
            frames: Frames::default(),
            operations: OperationChain::EMPTY,
            busy: Busy::default(),
            has_failed: false,
            has_more: false,
        };
        // SAFETY: P4: without threads Open MPI has promised that one at a time calls (`enable_mpi_threads`).
        let state = if settings.threads { Exclusive::locked(state) } else { unsafe { Exclusive::unlocked(state) } };
        let rails = rails.into_boxed_slice();
        let is_alone = rails.len() == 1;
        let pml = Pml {
            rails,
            has_one_rail: Cell::new(is_alone),
            only_rail: AtomicPtr::default(),
            poll_more: AtomicPtr::default(),
            shared_memory: AtomicPtr::new(null_mut()),
            has_threads: settings.threads,
            within: AtomicPtr::new(null_mut()),
            state,
        };
        pml.poll_by(settings.poll_more, false);
        pml
    }

    /// Has this called to poll; and also where there is one rail alone, if `is_for_one`. Any thread.
    pub(crate) fn poll_by(&self, poll_more: PollMore, is_for_one: bool) {
        let is_passed_by = is_for_one || !self.has_one_rail();
        let only_rail = if is_passed_by { null_mut() } else { self.rails.as_ptr().cast_mut() };
        // Relaxed, here and where they are read: nothing else is read on the strength of it but what is there since
        // this was made.
        self.poll_more.store(poll_more as *mut (), Ordering::Relaxed);
        self.only_rail.store(only_rail, Ordering::Relaxed);
    }

    /// What polls where there is no [`Self::only_rail`].
    #[inline(always)]
    pub(crate) fn poll_more(&self) -> PollMore {
        // SAFETY: a function of this type, and no other: of `poll_by`.
        unsafe { std::mem::transmute::<*mut (), PollMore>(self.poll_more.load(Ordering::Relaxed)) }
    }

    /// From here on processes of this host are reached by shared memory. Once, while MPI is initialised: one thread.
    pub(crate) fn use_shared_memory(&self, shared: SharedMemory) {
        self.has_one_rail.set(false);
        self.only_rail.store(null_mut(), Ordering::Relaxed);
        self.shared_memory.store(Box::into_raw(Box::new(shared)), Ordering::Release);
    }

    /// The way to processes of this host, if that is not a rail.
    #[inline]
    pub(crate) fn shared_memory(&self) -> Option<&SharedMemory> {
        // SAFETY: a leaked box, taken back when this is dropped. Acquire: what it was made with.
        unsafe { self.shared_memory.load(Ordering::Acquire).as_ref() }
    }

    /// Calls what may have [`Self::with_state`] called on this thread, while the state is entered.
    #[inline]
    pub(crate) fn within<R>(&self, state: &mut State, call: impl FnOnce() -> R) -> R {
        // Relaxed: read by this thread, or by another that is told by the lock that it is none of its.
        let before = self.within.load(Ordering::Relaxed);
        self.within.store(state, Ordering::Relaxed);
        let result = call();
        self.within.store(before, Ordering::Relaxed);
        result
    }

    /// Has the state used by what is called back: by who has entered it ([`Self::within`]), or by Open MPI's progress.
    #[inline]
    pub(crate) fn with_state(&self, deal: impl FnOnce(&mut State)) {
        let within = self.within.load(Ordering::Relaxed);
        if !self.has_threads && !within.is_null() {
            // SAFETY: P3: without threads this is within the call in `within`, whose caller's reference is not used
            // meanwhile.
            return deal(unsafe { &mut *within });
        }
        // What is to be told waits for the next progress of the PML's: the BTL is not to be entered again from here.
        if let Some(mut state) = self.enter() {
            deal(&mut state);
        } else {
            // SAFETY: P3: this thread is inside, so it is its own call in `within`, whose caller's reference is not
            // used meanwhile.
            let state = unsafe { self.within.load(Ordering::Relaxed).as_mut() };
            // A message that is dropped is one that somebody waits for.
            deal(state.expect("the shared-memory BTL calls back only where it was called from `within`"));
        }
    }

    /// Whether one rail is all there is to poll.
    #[inline(always)]
    pub(crate) fn has_one_rail(&self) -> bool {
        self.has_one_rail.get()
    }

    /// The rail, where it is all there is to poll, and no tool asks when something was completed.
    #[inline(always)]
    pub(crate) fn only_rail(&self) -> Option<&Rail> {
        // SAFETY: in the box that this has, as long as it lives.
        unsafe { self.only_rail.load(Ordering::Relaxed).as_ref() }
    }

    /// Whether there are several rails.
    #[inline]
    pub(crate) fn has_several(&self) -> bool {
        self.rails.len() > 1
    }

    /// Whether several threads may call at the same time.
    pub(crate) fn has_threads(&self) -> bool {
        self.has_threads
    }

    /// Its rails.
    #[inline]
    pub(crate) fn rails(&self) -> &[Rail] {
        &self.rails
    }

    /// Waits for other threads; `None`: this thread is inside already.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, State>> {
        self.state.enter()
    }

    /// Does not wait.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Entered<'_, State>> {
        self.state.try_enter()
    }
}

impl Drop for Pml {
    fn drop(&mut self) {
        let shared = *self.shared_memory.get_mut();
        if !shared.is_null() {
            // SAFETY: leaked by `use_shared_memory`, once.
            drop(unsafe { Box::from_raw(shared) });
        }
    }
}

#[cfg(test)]
impl Pml {
    /// Without a port, for tests of what needs none.
    pub(crate) fn of_no_rails(threads: bool) -> Pml {
        let functions = RequestFunctions { start: None, free: None, cancel: None };
        let settings =
            Settings { eager_limit: 0, read_size: 0, unexpected_memory: 0, threads, functions, poll_more: |_, _| 0 };
        Pml::new(Vec::new(), &settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_back_has_the_state_of_the_call_it_came_from() {
        for threads in [false, true] {
            let pml = Pml::of_no_rails(threads);
            let mut state = pml.enter().expect("nobody is inside");
            let mut is_dealt_with = false;
            let place = std::ptr::from_mut(&mut *state);
            pml.within(&mut state, || pml.with_state(|state| is_dealt_with = std::ptr::eq(state, place)));
            assert!(is_dealt_with);
        }
    }

    #[test]
    #[should_panic(expected = "the shared-memory BTL calls back only where it was called from `within`")]
    fn a_message_that_nobody_can_take_is_not_dropped_silently() {
        let pml = Pml::of_no_rails(false);
        let _state = pml.enter().expect("nobody is inside");
        pml.with_state(|_| ());
    }
}

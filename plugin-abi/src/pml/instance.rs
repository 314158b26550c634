// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML of this process: its rails, and the state that one caller at a time may use.
//!
//! `component` makes it when Open MPI initialises the PML, and drops it at the end. ARCHITECTURE.md ("Rules") has the
//! order in which a caller enters the PML and ports. Grade: hot. Threads: with `MPI_THREAD_MULTIPLE` one lock for the
//! process, otherwise none. Tests: `pml/tests`.

use std::cell::{Cell, UnsafeCell};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use engine::messenger;
use engine::messenger::flow_control::state::{self, Flow};
use engine::messenger::host;
use engine::messenger::rails::poll_interval::PollInterval;
use engine::messenger::rails::{Rails, send_buffers};

use super::progress::poll_more;
use super::request::{Handle, Requests};
use crate::runtime::device::Port;
use crate::runtime::exclusive::{Entered, Exclusive};
use crate::runtime::frame::{self, Frame, Frames};
use crate::runtime::idle::Busy;
use crate::runtime::operation_chain::OperationChain;
use crate::runtime::port::OpenPort;
use crate::runtime::shared_memory::SharedMemory;
use crate::runtime::token::Tag;

pub(crate) struct Settings {
    /// Rank of this process in its job.
    pub(crate) rank: u32,
    /// Initial value of the eager limit, bytes.
    pub(crate) eager_limit: usize,
    /// Longest read of a message, bytes.
    pub(crate) read_size: u32,
    /// Bytes of unexpected messages before their senders are held back.
    pub(crate) unexpected_memory: u64,
    /// Whether several threads may call at the same time.
    pub(crate) threads: bool,
}

/// Function that polls shared memory and all rails. Returns the number of events.
pub(crate) type PollMore = fn(&Pml, &mut State) -> usize;

/// A port that the PML uses.
pub(crate) struct Rail {
    port: Arc<OpenPort>,
    /// The [`Port`] in `port`, reached by one load.
    entry: NonNull<Exclusive<Port>>,
    /// Frame of the last poll; the next poll releases its slots.
    frame: UnsafeCell<Box<Frame>>,
    pub(crate) properties: host::Rail,
}

/// The PML. `state` stands first, at the PML's own address, so a receive needs only one pointer.
#[repr(C)]
pub(crate) struct Pml {
    pub(super) state: Exclusive<State>,
    rails: Box<[Rail]>,
    /// Whether there is one rail and no shared memory. Written only while MPI is initialised.
    has_one_rail: Cell<bool>,
    /// That rail, while no tool watches completions; else null, and `poll_more` polls.
    only_rail: AtomicPtr<Rail>,
    /// A [`PollMore`].
    poll_more: AtomicPtr<()>,
    has_threads: bool,
    /// Shared memory of this host, if it reaches another process.
    shared_memory: OnceLock<SharedMemory>,
}

// SAFETY: a rail's pointer leads into its `Arc`, which may be shared. Its frame is used under P3. `Exclusive` guards
// the state. The cell is written by the thread that initialises MPI, before others exist.
unsafe impl Sync for Pml {}
// SAFETY: a rail's pointer leads into its `Arc`, which may be shared; the other pointers lead to the PML's own memory.
unsafe impl Send for Pml {}

/// The state of the PML, for the thread that has entered it.
pub(crate) struct State {
    pub(crate) requests: Requests,
    pub(crate) messenger: messenger::State<State>,
    /// Rank of this process in its job.
    pub(crate) rank: u32,
    pub(crate) poll_interval: PollInterval,
    pub(crate) finished: Chain,
    /// Frames with completions for the BTL.
    pub(crate) for_btl: frame::Polled,
    pub(crate) frames: Frames,
    /// Operations of the BTL that a poll has found complete.
    pub(crate) operations: OperationChain,
    /// Decides when a blocking call that never waits calls Open MPI's progress.
    pub(crate) busy: Busy,
    /// Whether the job must end.
    pub(crate) has_failed: bool,
    /// Whether [`super::progress::leave`] has work to do once nothing is entered.
    pub(crate) has_more: bool,
}

// SAFETY: the pointers lead to records of the PML, which are used only with this state (P3).
unsafe impl Send for State {}

/// Requests that are finished and wait for [`super::host::complete_finished`], linked by their `next`.
pub(crate) struct Chain {
    pub(crate) first: Option<Handle>,
    /// Meaningless without a first one.
    pub(crate) last: Option<Handle>,
}

impl Chain {
    pub(crate) const EMPTY: Chain = Chain { first: None, last: None };
}

static PML: AtomicPtr<Pml> = AtomicPtr::new(null_mut());

/// Equal to `PML` while no tool listens; else null.
static UNWATCHED: AtomicPtr<Pml> = AtomicPtr::new(null_mut());

#[cfg(test)]
thread_local! {
    /// The PML of the process that runs now, in a test with several processes.
    pub(crate) static OF_TEST: Cell<Option<&'static Pml>> = const { Cell::new(None) };
}

/// Returns the PML; `None` before it is initialised and after it has ended.
#[inline]
pub(crate) fn pml() -> Option<&'static Pml> {
    #[cfg(test)]
    if let Some(pml) = OF_TEST.get() {
        return Some(pml);
    }
    // SAFETY: a leaked box, freed after Open MPI's last call (`end`). Acquire pairs with the Release in `begin`.
    unsafe { PML.load(Ordering::Acquire).as_ref() }
}

/// [`pml`]; `None` also while a tool listens, so that a fast path tests for both at once.
#[inline]
pub(crate) fn unwatched() -> Option<&'static Pml> {
    #[cfg(test)]
    if let Some(pml) = OF_TEST.get() {
        return Some(pml);
    }
    // SAFETY: a leaked box, freed after Open MPI's last call (`end`). Acquire pairs with the Release stores.
    unsafe { UNWATCHED.load(Ordering::Acquire).as_ref() }
}

/// Notes whether a tool listens to any communicator.
pub(crate) fn set_watched(pml: &'static Pml, is_watched: bool) {
    let unwatched = if is_watched { null_mut() } else { std::ptr::from_ref(pml).cast_mut() };
    UNWATCHED.store(unwatched, Ordering::Release);
}

pub(crate) fn begin(pml: Box<Pml>) {
    let pml = Box::into_raw(pml);
    PML.store(pml, Ordering::Release);
    UNWATCHED.store(pml, Ordering::Release);
}

/// Removes and drops the PML of the process.
///
/// # Safety
/// This is Open MPI's last call; no reference from [`pml`] or [`unwatched`] is used any more.
pub(crate) unsafe fn end() {
    UNWATCHED.store(null_mut(), Ordering::Release);
    let pml = PML.swap(null_mut(), Ordering::AcqRel);
    if !pml.is_null() {
        // SAFETY: leaked by `begin`; the swap makes sure that it is taken back once.
        drop(unsafe { Box::from_raw(pml) });
    }
}

impl Rail {
    pub(crate) fn new(port: &Arc<OpenPort>, eager_limit: usize, read_size: u32) -> Self {
        let sizes = (eager_limit.min(port.bounce_size()), port.receive_size());
        let properties = host::Rail::new(port.index(), port.attributes(), sizes, read_size);
        Rail {
            entry: NonNull::from(port.exclusive()),
            frame: UnsafeCell::new(Frame::new()),
            properties,
            port: Arc::clone(port),
        }
    }

    pub(crate) fn port(&self) -> &OpenPort {
        &self.port
    }

    /// Returns the port that [`Self::enter`] enters; its address stays.
    pub(crate) fn entry(&self) -> NonNull<Exclusive<Port>> {
        self.entry
    }

    /// # Safety
    /// P3: the PML is entered. The caller has no other reference to the frame.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "one thread at a time has entered the PML")]
    pub(crate) unsafe fn frame(&self) -> &mut Box<Frame> {
        // SAFETY: P3; the caller has no other reference.
        unsafe { &mut *self.frame.get() }
    }

    /// Enters the port; waits for other threads. `None`: this thread has entered it already.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, Port>> {
        // SAFETY: `entry` points into `self.port`, which keeps the port alive.
        unsafe { self.entry.as_ref() }.enter()
    }

    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Entered<'_, Port>> {
        // SAFETY: `entry` points into `self.port`, which keeps the port alive.
        unsafe { self.entry.as_ref() }.try_enter()
    }
}

/// Unit tests exceed this number of send buffers.
const MOST_BUFFERS: u32 = if cfg!(test) { 4 } else { send_buffers::MOST };

/// Unit tests fill this window.
const WINDOW: u32 = if cfg!(test) { 8 } else { state::WINDOW };

impl Pml {
    pub(crate) fn new(mut rails: Vec<Rail>, settings: &Settings) -> Box<Self> {
        if rails.len() > 1 {
            host::Rail::make_alike(&mut rails.iter_mut().map(|rail| &mut rail.properties).collect::<Vec<_>>());
            for mut port in rails.iter().filter_map(Rail::enter) {
                port.keep_unposted(Tag::PML.0);
            }
        }
        let rails_state = Rails::new(rails.iter().map(|rail| &rail.properties), MOST_BUFFERS);
        let shown = rails.first().map(|rail| rail.port().counters()).unwrap_or_default();
        let state = State {
            messenger: messenger::State::new(Flow::new(settings.unexpected_memory, WINDOW, shown), rails_state),
            requests: Requests::new(),
            rank: settings.rank,
            poll_interval: PollInterval::default(),
            finished: Chain::EMPTY,
            for_btl: frame::Polled::default(),
            frames: Frames::default(),
            operations: OperationChain::EMPTY,
            busy: Busy::default(),
            has_failed: false,
            has_more: false,
        };
        // SAFETY: M4: without threads Open MPI promises that one thread at a time calls (`enable_mpi_threads`).
        let state = if settings.threads { Exclusive::locked(state) } else { unsafe { Exclusive::unlocked(state) } };
        let rails = rails.into_boxed_slice();
        let is_alone = rails.len() == 1;
        let pml = Box::new(Pml {
            rails,
            has_one_rail: Cell::new(is_alone),
            only_rail: AtomicPtr::default(),
            poll_more: AtomicPtr::default(),
            has_threads: settings.threads,
            shared_memory: OnceLock::new(),
            state,
        });
        // Only now, because moving the rails would invalidate pointers into them.
        pml.poll_by(poll_more::<false>, false);
        pml
    }

    /// Sets the function that polls. A process with one rail keeps its inlined poll unless `is_for_one`. Any thread.
    pub(crate) fn poll_by(&self, poll_more: PollMore, is_for_one: bool) {
        let is_passed_by = is_for_one || !self.has_one_rail();
        let only_rail = if is_passed_by { null_mut() } else { self.rails.as_ptr().cast_mut() };
        // Relaxed, here and at the loads: these pointers lead only to objects that are as old as the PML.
        self.poll_more.store(poll_more as *mut (), Ordering::Relaxed);
        self.only_rail.store(only_rail, Ordering::Relaxed);
    }

    /// Returns the function that polls where [`Self::only_rail`] is `None`.
    #[inline(always)]
    pub(crate) fn poll_more(&self) -> PollMore {
        // SAFETY: `poll_by` stores a `PollMore` there, and nothing else is stored.
        unsafe { std::mem::transmute::<*mut (), PollMore>(self.poll_more.load(Ordering::Relaxed)) }
    }

    /// Uses shared memory for processes of this host. Called once, while MPI is initialised by one thread.
    pub(crate) fn use_shared_memory(&self, shared: SharedMemory) {
        self.has_one_rail.set(false);
        self.only_rail.store(null_mut(), Ordering::Relaxed);
        self.shared_memory.set(shared).unwrap_or_else(|_| unreachable!("called once"));
    }

    #[inline]
    pub(crate) fn shared_memory(&self) -> Option<&SharedMemory> {
        self.shared_memory.get()
    }

    #[inline(always)]
    pub(crate) fn has_one_rail(&self) -> bool {
        self.has_one_rail.get()
    }

    #[inline(always)]
    pub(crate) fn only_rail(&self) -> Option<&Rail> {
        // SAFETY: points into `self.rails`, which lives as long as the PML.
        unsafe { self.only_rail.load(Ordering::Relaxed).as_ref() }
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.has_threads
    }

    #[inline]
    pub(crate) fn rails(&self) -> &[Rail] {
        &self.rails
    }

    /// Enters the PML; waits for other threads. `None`: this thread has entered it already.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, State>> {
        self.state.enter()
    }

    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Entered<'_, State>> {
        self.state.try_enter()
    }
}

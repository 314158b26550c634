// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML of this process: its rails, and what one caller at a time may use.
//!
//! Made by `component` when Open MPI has it initialised, dropped when it is finalized. A caller enters it ([`Pml::enter`]), then
//! perhaps the port of a rail, always in this order and one port at a time. Nothing of Open MPI's is called meanwhile that
//! could call back: what is to be told waits on the chain of those finished (`finish`). Grade: hot. Threads: with
//! `MPI_THREAD_MULTIPLE` a lock for the process, below it none.

use std::cell::UnsafeCell;
use std::collections::{HashMap, VecDeque};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use engine::matching::Contexts;
use engine::matching::Envelope;
use engine::peer::PeerName;
use engine::protocol::transfers::Transfers;
use engine::transport::{Batch, Port};

use super::arrived::Arrived;
use super::bounds::Flow;
use super::buffer::SendBuffers;
use super::communicator::Communicator;
use super::link::Link;
use super::request::{Request, RequestFunctions, Requests};
use crate::runtime::exclusive::{Entered, Exclusive};
use crate::runtime::port::OpenPort;

/// What the PML is made with.
pub(crate) struct Settings {
    /// The longest message that is sent at once, bytes.
    pub(crate) eager_limit: usize,
    /// Bytes of unexpected messages, before their senders are held back.
    pub(crate) unexpected_memory: u64,
    /// Several threads may call at the same time.
    pub(crate) threads: bool,
    /// What Open MPI calls with a request.
    pub(crate) functions: RequestFunctions,
}

/// A port that the PML uses.
pub(crate) struct Rail {
    port: Arc<OpenPort>,
    /// The port's, so that the way to it is one load.
    entry: NonNull<Exclusive<Port>>,
    /// What was polled last; released by the next poll.
    batch: UnsafeCell<Box<Batch>>,
    /// The longest message that is sent at once, bytes.
    pub(crate) eager_limit: usize,
    /// The longest message, header and all, bytes.
    pub(crate) receive_size: usize,
    /// The longest read, bytes.
    pub(crate) read_limit: u32,
}

/// The PML.
pub(crate) struct Pml {
    rails: Box<[Rail]>,
    /// The first of them, where it is the only one.
    only_rail: Option<NonNull<Rail>>,
    state: Exclusive<State>,
}

// SAFETY: a rail's pointer is to what its `Arc` holds, which may be shared; its batch is used by who has entered the state,
// which is shared as `Exclusive` permits.
unsafe impl Sync for Pml {}
// SAFETY: as above.
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
    /// Requests whose pieces wait for a buffer.
    pub(crate) starved: VecDeque<NonNull<Request>>,
    /// Requests that are finished and not told of, in order.
    pub(crate) finished: Chain,
    /// Batches with something for another face, and the rails that they were polled from.
    pub(crate) handed_on: Vec<(usize, Box<Batch>)>,
    /// A peer is lost, and the job is to be ended.
    pub(crate) has_failed: bool,
    /// Something of the above is to be done once nothing is entered.
    pub(crate) has_more: bool,
}

// SAFETY: the pointers are to records of the PML's own, which move with it; who has entered it uses them.
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

/// The longest read of any adapter, bytes: a work request says lengths up to 2^31.
const READ_LIMIT: u32 = 1 << 30;

static PML: AtomicPtr<Pml> = AtomicPtr::new(null_mut());

/// The PML; `None` outside of its life.
#[inline]
pub(crate) fn pml() -> Option<&'static Pml> {
    // SAFETY: a leaked box, taken back after Open MPI's last call (`end`). Acquire: what it was made with.
    unsafe { PML.load(Ordering::Acquire).as_ref() }
}

/// Begins its life.
pub(crate) fn begin(pml: Pml) {
    PML.store(Box::into_raw(Box::new(pml)), Ordering::Release);
}

/// Ends its life.
///
/// # Safety
/// Open MPI's last call: nobody uses it any more.
pub(crate) unsafe fn end() {
    let pml = PML.swap(null_mut(), Ordering::AcqRel);
    if !pml.is_null() {
        // SAFETY: leaked by `begin`, and taken back once.
        drop(unsafe { Box::from_raw(pml) });
    }
}

impl Rail {
    /// Of an open port.
    pub(crate) fn new(port: &Arc<OpenPort>, eager_limit: usize) -> Self {
        let attributes = port.attributes();
        let longest = attributes.max_message.min(u64::from(READ_LIMIT)) as u32;
        Rail {
            entry: NonNull::from(port.exclusive()),
            batch: UnsafeCell::default(),
            eager_limit: eager_limit.min(port.bounce_size()).min(port.receive_size()),
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
    /// The caller has entered the PML, and has no other reference to it.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "what permits it is that the PML is entered once at a time")]
    pub(crate) unsafe fn batch(&self) -> &mut Box<Batch> {
        // SAFETY: this function's rule.
        unsafe { &mut *self.batch.get() }
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
        // SAFETY: as above.
        unsafe { self.entry.as_ref() }.try_enter()
    }
}

/// Buffers of each size that a port has at most: what finds none waits in ordinary memory, or for a piece to be done.
const MOST_BUFFERS: u32 = 256;

impl Pml {
    /// Over these ports.
    pub(crate) fn new(rails: Vec<Rail>, settings: &Settings) -> Self {
        let buffers = |rail: &Rail| SendBuffers::new(rail.eager_limit, rail.receive_size, MOST_BUFFERS);
        let shown = rails.first().map(|rail| rail.port().counters()).unwrap_or_default();
        let state = State {
            flow: Flow::new(settings.unexpected_memory, shown),
            requests: Requests::new(settings.functions),
            contexts: Contexts::new(),
            transfers: Transfers::default(),
            buffers: rails.iter().map(buffers).collect(),
            peers: HashMap::new(),
            starved: VecDeque::new(),
            finished: Chain::EMPTY,
            handed_on: Vec::new(),
            has_failed: false,
            has_more: false,
        };
        // SAFETY: without threads Open MPI has promised that one at a time calls (`enable_mpi_threads`).
        let state = if settings.threads { Exclusive::locked(state) } else { unsafe { Exclusive::unlocked(state) } };
        let rails = rails.into_boxed_slice();
        let only_rail = if let [only] = &*rails { Some(NonNull::from(only)) } else { None };
        Pml { rails, only_rail, state }
    }

    /// The rail, where there is only one.
    #[inline(always)]
    pub(crate) fn only_rail(&self) -> Option<&Rail> {
        // SAFETY: in the box that this has, as long as it lives.
        self.only_rail.map(|rail| unsafe { rail.as_ref() })
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

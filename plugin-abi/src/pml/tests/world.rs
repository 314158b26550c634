// SPDX-License-Identifier: MIT OR Apache-2.0
//! A world of simulated processes: each has its own PML over ports of one fabric, and all share the communicators.
//!
//! This file makes Open MPI's objects (communicators, a datatype, requests) from zeroes and the few fields that the PML
//! reads. Requests are those of blocking calls, which one store finishes. So no test calls libmpi. Called by `tests.rs`
//! and `histories.rs`. Threads: the test's.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use engine::messenger::matching::{ANY_SOURCE, ANY_TAG, MessageHandle};
use engine::peer::PeerName;
use engine::transport::Completion;
use ibex_ffi::openmpi::{release, sys};

use super::super::communicator::Communicator;
use super::super::datatype::Data;
use super::super::instance::{OF_TEST, Pml, Rail, Settings};
use super::super::request::{Mode, Owner, RequestFunctions};
use super::super::several::Peer;
use super::super::watch::Probed;
use super::super::{peer, progress, receive, send};
use super::operation::{Bytes, EMPTY, GUARD, Operation};
use crate::runtime::device::fabric::{Fabric, Sizes};
use crate::runtime::frame::Frame;
use crate::runtime::listeners::Listeners;
use crate::runtime::poller::{self, Btl};
use engine::messenger::link::Link;

/// Sizes of a port, small enough that histories reach each bound.
pub(super) const SIZES: Sizes = Sizes { inline: 64, bounce: EAGER as u32, receive: 320, slots: 16, depth: 8 };

/// Longest eager message, header included, bytes.
pub(super) const EAGER: usize = 256;

#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) processes: usize,
    pub(super) communicators: usize,
    pub(super) rails: usize,
    /// Longest RDMA read, bytes.
    pub(super) read_size: u32,
    /// Bytes of unexpected messages beyond which a receiver holds their senders back.
    pub(super) unexpected_memory: u64,
}

struct Process {
    pml: NonNull<Pml>,
    communicators: Vec<NonNull<sys::ompi_communicator_t>>,
}

pub(super) struct World {
    pub(super) fabric: Fabric,
    processes: Vec<Process>,
    datatype: NonNull<sys::ompi_datatype_t>,
    /// Whether the next request is that of a watched call; alternates, unless `listened` is set.
    is_watched: Cell<bool>,
    /// Communicator with a listener.
    listened: Cell<Option<NonNull<sys::ompi_communicator_t>>>,
}

pub(super) struct Found {
    pub(super) source: i32,
    pub(super) tag: i32,
    pub(super) length: usize,
    /// Handle of the message, if the probe took it out.
    pub(super) handle: u64,
}

/// The communicator, source and tag of a receive or probe; `None`: any.
#[derive(Debug, Clone, Copy)]
pub(super) struct For {
    pub(super) comm: usize,
    pub(super) from: Option<usize>,
    pub(super) tag: Option<i32>,
}

impl For {
    fn ranks(&self) -> (i32, i32) {
        (self.from.map_or(ANY_SOURCE, |from| from as i32), self.tag.unwrap_or(ANY_TAG))
    }
}

const fn name(rank: usize) -> PeerName {
    PeerName { job: 1, rank: rank as u32 }
}

impl World {
    /// Makes a world without connections.
    pub(super) fn new(shape: Shape) -> Self {
        if shape.rails > 1 {
            poller::set_btl(Btl { deliver: divert, operations_done: |_| () });
        }
        let fabric = Fabric::default();
        // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
        let mut datatype: Box<sys::ompi_datatype_t> = Box::new(unsafe { std::mem::zeroed() });
        (datatype.super_.flags, datatype.super_.size) = (sys::OPAL_DATATYPE_FLAG_NO_GAPS as u16, 1);
        let datatype = NonNull::from(Box::leak(datatype));
        let processes = (0..shape.processes).map(|rank| process(&fabric, rank, shape)).collect();
        World { fabric, processes, datatype, is_watched: Cell::new(false), listened: Cell::new(None) }
    }

    /// Makes the test act as process `at` from now on.
    fn stand_for(&self, at: usize) -> &'static Pml {
        // SAFETY: `process` leaked the PML, and `drop` of the world resets `OF_TEST` before it frees the PML.
        let pml = unsafe { &*self.processes[at].pml.as_ptr() };
        OF_TEST.set(Some(pml));
        pml
    }

    fn comm(&self, at: usize, comm: usize) -> *mut sys::ompi_communicator_t {
        self.processes[at].communicators[comm].as_ptr()
    }

    /// Gives a communicator of process `at` these listeners, until [`Self::listen_no_more`].
    pub(super) fn listen(&self, at: usize, comm: usize, listeners: *const Listeners) {
        let comm = self.processes[at].communicators[comm];
        self.listened.set(Some(comm));
        // SAFETY: `communicator` leaked it, and the test has one thread.
        unsafe { (*comm.as_ptr()).c_peruse_handles = listeners.cast_mut().cast() };
    }

    pub(super) fn listen_no_more(&self) {
        if let Some(comm) = self.listened.take() {
            // SAFETY: as in `listen`.
            unsafe { (*comm.as_ptr()).c_peruse_handles = null_mut() };
        }
    }

    fn data(&self, bytes: &Bytes, count: usize) -> Data {
        Data { buffer: bytes.start().cast(), count, datatype: self.datatype.as_ptr() }
    }

    fn owner(&self) -> Owner {
        let is_watched = self.is_watched.replace(!self.is_watched.get());
        if is_watched || self.listened.get().is_some() { Owner::WatchedCall } else { Owner::Call }
    }

    /// Starts a send. `None`: it is finished already.
    pub(super) fn send(
        &self,
        from: usize,
        (to, comm, tag): (usize, usize, i32),
        mode: Mode,
        bytes: &[u8],
    ) -> Option<Operation> {
        let pml = self.stand_for(from);
        let operation = Operation::new(bytes.to_vec());
        let (data, comm) = (self.data(&operation.bytes, bytes.len()), self.comm(from, comm));
        let outgoing = send::Outgoing { data, to: to as i32, tag, comm };
        // SAFETY: P4: the world's communicator and datatype live; P2: the bytes live until the operation is dropped;
        // P1, P3: the request is new.
        unsafe {
            let extent = data.extent();
            if mode == Mode::Standard
                && (send::at_once::<false>(&outgoing, extent) || send::copied_at_once(&outgoing, extent))
            {
                (*operation.request.as_ptr()).set_finished(true);
                return None;
            }
            let link = peer::link(pml, comm, to as i32);
            let mut state = pml.enter().expect("nobody is inside");
            send::fill(operation.request, &outgoing, mode, self.owner());
            send::begin(pml, &mut state, operation.request, link);
            progress::leave(pml, state);
        }
        Some(operation)
    }

    /// Posts a receive with a buffer of `room` bytes.
    pub(super) fn receive(&self, at: usize, wanted: For, room: usize) -> Operation {
        let pml = self.stand_for(at);
        let operation = Operation::new(vec![EMPTY; room + GUARD]);
        let ((from, tag), data) = (wanted.ranks(), self.data(&operation.bytes, room));
        let described = receive::Wanted { data, from, tag, comm: self.comm(at, wanted.comm) };
        let mut state = pml.enter().expect("nobody is inside");
        // SAFETY: P4: the world's communicator and datatype live; P2: the bytes live until the operation is dropped;
        // P1, P3: the request is new.
        unsafe {
            receive::fill(operation.request, &described, self.owner());
            let pattern = receive::pattern(from, tag);
            if let receive::Posting::Waits(name) = receive::post_as(pml, &mut state, operation.request, pattern) {
                (*operation.request.as_ptr()).posted = name;
            }
        }
        progress::leave(pml, state);
        operation
    }

    /// Polls and probes once. `takes`: a matched probe, which takes the message out.
    pub(super) fn probe(&self, at: usize, wanted: For, takes: bool) -> Option<Found> {
        let pml = self.stand_for(at);
        let (from, tag) = wanted.ranks();
        let probed = Probed { from, tag, comm: self.comm(at, wanted.comm) };
        // SAFETY: P4: the world's communicator lives.
        let found = unsafe { probed.look(pml, takes) }?;
        let (source, tag) = (found.envelope.source(), found.envelope.tag());
        Some(Found { source, tag, length: found.length, handle: found.handle.unwrap_or_default() })
    }

    /// Receives the message that a matched probe took out, into a buffer of `room` bytes.
    pub(super) fn receive_probed(&self, at: usize, comm: usize, handle: u64, room: usize) -> Operation {
        let pml = self.stand_for(at);
        let operation = Operation::new(vec![EMPTY; room + GUARD]);
        let data = self.data(&operation.bytes, room);
        let described = receive::Wanted { data, from: ANY_SOURCE, tag: ANY_TAG, comm: self.comm(at, comm) };
        let mut state = pml.enter().expect("nobody is inside");
        // SAFETY: P4: the world's communicator and datatype live; P2: the bytes live until the operation is dropped;
        // P1, P3: the request is new.
        unsafe {
            receive::fill(operation.request, &described, Owner::WatchedCall);
            receive::take(pml, &mut state, operation.request, MessageHandle::from_bits(handle));
        }
        progress::leave(pml, state);
        operation
    }

    /// Cancels a receive. This finishes it if it has matched no message.
    pub(super) fn cancel(&self, at: usize, operation: &Operation) {
        let pml = self.stand_for(at);
        let mut state = pml.enter().expect("nobody is inside");
        // SAFETY: P1: the receive was posted, and its operation lives.
        unsafe { receive::cancel(&mut state, operation.request) };
        progress::leave(pml, state);
    }

    /// Polls once as process `at`. Returns the number of completions handled.
    pub(super) fn poll(&self, at: usize) -> usize {
        let pml = self.stand_for(at);
        let mut state = pml.enter().expect("nobody is inside");
        let count = progress::poll(pml, &mut state);
        progress::leave(pml, state);
        count
    }

    /// Polls as process `at` until its ports have noticed changes of their links.
    pub(super) fn notice(&self, at: usize) {
        (0..NOTICED).for_each(|_| _ = self.poll(at));
    }

    /// Moves all requests of the fabric and polls as every process, until nothing happens any more.
    ///
    /// # Panics
    /// If that takes more than [`MOST_ROUNDS`] rounds.
    pub(super) fn settle(&self) {
        let mut quiet = 0;
        for _ in 0..MOST_ROUNDS {
            let before = self.fabric.moved();
            for queue_pair in 0..self.fabric.queue_pairs() {
                while self.fabric.carry(queue_pair) {}
                while self.fabric.acknowledge(queue_pair) {}
            }
            let polled: usize = (0..self.processes.len()).map(|at| self.poll(at)).sum();
            quiet = if polled == 0 && self.fabric.moved() == before { quiet + 1 } else { 0 };
            if quiet == QUIET_ROUNDS {
                return;
            }
        }
        panic!("they do not come to rest");
    }

    /// Asserts that no registration, queued request or kept message is left, and that no sender is held back.
    pub(super) fn is_at_rest(&self) {
        assert_eq!(self.fabric.registered(), 0, "registrations");
        for (at, process) in self.processes.iter().enumerate() {
            let state = self.stand_for(at).enter().expect("nobody is inside");
            assert_eq!(state.flow.kept.bytes(), 0, "what process {at} keeps");
            assert!(state.flow.outgoing.is_free(), "process {at} is held back by somebody");
            assert!(state.starved.is_empty() && !state.has_failed);
            for comm in &process.communicators {
                // SAFETY: P3: the PML is entered; P4: the world's communicator lives.
                assert_eq!(unsafe { Communicator::of(comm.as_ptr()).lengths() }, [0, 0], "queues of process {at}");
            }
        }
    }
}

/// Maximum number of rounds until nothing happens any more. The longest histories take some hundreds.
const MOST_ROUNDS: usize = 20_000;

/// Number of polls within which a port queries its adapter for asynchronous events.
const NOTICED: usize = 40;

/// Number of rounds without any event after which none can follow, because a port checks its connections in each.
const QUIET_ROUNDS: usize = 4;

/// Acts for the BTL: diverts the messages of a port whose link went down, and ends that when it is up again.
fn divert(port: u8, frame: &Frame) {
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

fn process(fabric: &Fabric, rank: usize, shape: Shape) -> Process {
    let rails = (0..shape.rails).map(|rail| {
        let port = Arc::new(fabric.open(name(rank), 100_000 * (rail as u32 + 1), SIZES));
        Rail::new(&port, EAGER, shape.read_size)
    });
    let settings = Settings {
        eager_limit: EAGER,
        read_size: shape.read_size,
        unexpected_memory: shape.unexpected_memory,
        threads: false,
        functions: RequestFunctions { start: None, free: None, cancel: None },
        poll_more: progress::poll_more::<false>,
    };
    let pml = Pml::new(rails.collect(), &settings);
    let links: Vec<Link> = (0..shape.processes).map(|peer| link(&pml, rank, peer)).collect();
    let communicators = (0..shape.communicators).map(|comm| communicator(&pml, rank, comm, &links)).collect();
    Process { pml: NonNull::from(Box::leak(pml)), communicators }
}

/// Returns the link by which process `rank` reaches a peer.
fn link(pml: &Pml, rank: usize, peer: usize) -> Link {
    if peer == rank {
        return Link::ONESELF;
    }
    let endpoint = |(index, rail): (usize, &Rail)| {
        let mut port = rail.enter().expect("nobody is inside");
        Link::new(index, port.peer(name(peer), index as u8))
    };
    let mut links: Vec<Link> = pml.rails().iter().enumerate().map(endpoint).collect();
    if !pml.has_several() {
        return links[0];
    }
    let first = (rank + peer) % links.len();
    links.rotate_left(first);
    let home = links[0];
    let mut state = pml.enter().expect("nobody is inside");
    state.several.add(name(peer), Peer { links: links.into(), home, segment: 0, merging: None });
    let rail = &pml.rails()[home.rail()];
    rail.sent(&mut rail.enter().expect("nobody is inside"), home.to()).is_home = true;
    home.of_several()
}

fn communicator(pml: &Pml, rank: usize, number: usize, links: &[Link]) -> NonNull<sys::ompi_communicator_t> {
    let mut comm = Box::new(release::blank_communicator(number as u32));
    comm.c_my_rank = rank as i32;
    // SAFETY: P4: `blank_communicator` has set the number, which is all that this reads.
    let context = unsafe { release::context(&raw const *comm) };
    let mut communicator = Communicator::new(pml.rails()[0].entry(), links.len(), rank as i32, context);
    let mut state = pml.enter().expect("nobody is inside");
    for (peer, link) in links.iter().enumerate() {
        communicator.set_link(peer as i32, *link);
        state.flow.holders.note(*link, context, peer as i32);
        state.peers.insert(name(peer), *link);
    }
    let comm = NonNull::from(Box::leak(comm));
    communicator.comm = comm.as_ptr();
    let communicator = NonNull::from(Box::leak(communicator));
    // SAFETY: the communicator was leaked above, and only this function has it.
    unsafe { (*comm.as_ptr()).c_pml_comm = communicator.as_ptr().cast() };
    assert!(state.contexts.add(context, communicator).is_ok_and(|kept| kept.is_empty()));
    comm
}

impl Drop for World {
    fn drop(&mut self) {
        OF_TEST.set(None);
        if std::thread::panicking() {
            return;
        }
        for process in self.processes.drain(..) {
            // SAFETY: `process` leaked the PML; `OF_TEST` was reset, so no reference to it is left.
            drop(unsafe { Box::from_raw(process.pml.as_ptr()) });
            for comm in process.communicators {
                // SAFETY: `communicator` leaked both boxes; the PML that used them is freed.
                unsafe {
                    let comm = Box::from_raw(comm.as_ptr());
                    drop(Box::from_raw(comm.c_pml_comm.cast::<c_void>().cast::<Communicator>()));
                }
            }
        }
        // SAFETY: `new` leaked the datatype; the PMLs and communicators that used it are freed.
        drop(unsafe { Box::from_raw(self.datatype.as_ptr()) });
    }
}

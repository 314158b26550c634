// SPDX-License-Identifier: MIT OR Apache-2.0
//! A world of simulated processes: each has its own PML over ports of one fabric, and all share the communicators.
//!
//! Calls the PML as Open MPI does. Called by `tests`, `send_events` and `histories`.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::RwLockReadGuard;

use engine::messenger::host::Communicators;
use engine::messenger::matching::{ANY_SOURCE, ANY_TAG};
use ibex_ffi::openmpi::blank::Blank;
use ibex_ffi::openmpi::sys;

use super::super::communicator::Comm;
use super::super::datatype::Description;
use super::super::instance::{OF_TEST, Pml};
use super::super::module::Code;
use super::super::module::probe::Matched;
use super::super::module::{persistent, probe, receive, send};
use super::super::progress;
use super::super::request::{Call, Mode, Owner, Role};
use super::libmpi::{self, BLOCK, JOB_HAS_ENDED, STRIDE};
use super::operation::{Bytes, How, Operation, laid_out};
use super::process::{Process, Shape, communicator, divert, process};
use crate::runtime::device::fabric::Fabric;
use crate::runtime::guard;
use crate::runtime::listeners::Listeners;
use crate::runtime::poller::{self, Btl};
use crate::tool;

pub(super) struct World {
    pub(super) fabric: Fabric,
    processes: Vec<Process>,
    /// Datatypes of a byte, and of a block with a gap behind it.
    datatypes: [NonNull<sys::ompi_datatype_t>; 2],
    _beside: Option<RwLockReadGuard<'static, ()>>,
}

pub(super) struct Found {
    pub(super) source: i32,
    pub(super) tag: i32,
    pub(super) length: usize,
    /// Null, unless the probe took it out.
    pub(super) message: Matched,
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

impl World {
    /// No test with registrations runs while this exists, because its ports and communicators raise events.
    pub(super) fn new(shape: Shape) -> Self {
        World::make(shape, Some(tool::tests::beside()))
    }

    /// A world of a test that has called [`tool::tests::lock`].
    pub(super) fn of_a_lone_test(shape: Shape) -> Self {
        World::make(shape, None)
    }

    fn make(shape: Shape, beside: Option<RwLockReadGuard<'static, ()>>) -> Self {
        if shape.rails > 1 {
            poller::set_btl(Btl { deliver: divert, operations_done: |_| () });
        }
        JOB_HAS_ENDED.set(false);
        guard::CAUGHT.set(false);
        libmpi::take_attached();
        libmpi::REFUSALS.set(0);
        let fabric = Fabric::default();
        let datatypes = [(sys::OPAL_DATATYPE_FLAG_NO_GAPS, 1, 1), (0, BLOCK, STRIDE)].map(|(flags, size, extent)| {
            let mut datatype = Box::new(sys::ompi_datatype_t::blank());
            (datatype.super_.flags, datatype.super_.size, datatype.super_.ub) = (flags as u16, size, extent as isize);
            NonNull::from(Box::leak(datatype))
        });
        let processes = (0..shape.processes).map(|rank| process(&fabric, rank, shape)).collect();
        World { fabric, processes, datatypes, _beside: beside }
    }

    /// Makes the test act as process `at` from now on.
    fn stand_for(&self, at: usize) -> &'static Pml {
        // SAFETY: `process` leaked the PML, and `drop` of the world resets `OF_TEST` before it frees the PML.
        let pml = unsafe { &*self.processes[at].pml.as_ptr() };
        OF_TEST.set(Some(pml));
        pml
    }

    fn comm(&self, at: usize, number: usize) -> Comm {
        let (pml, processes) = (self.stand_for(at), self.processes.len());
        let mut known = self.processes[at].communicators.borrow_mut();
        let comm = known.entry(number).or_insert_with(|| communicator(pml, at, number, processes));
        // SAFETY: M4: the world's communicator lives; operations in progress hold references.
        unsafe { Comm::new(comm.as_ptr()) }
    }

    /// Frees a communicator in all processes (`MPI_Comm_free`). Operations in progress keep it alive.
    pub(super) fn free_comm(&self, number: usize) {
        for (at, process) in self.processes.iter().enumerate() {
            self.stand_for(at);
            if let Some(comm) = process.communicators.borrow_mut().remove(&number) {
                // SAFETY: the reference of `communicator`, released once.
                unsafe { libmpi::ibex_communicator_release(comm.as_ptr()) };
            }
        }
    }

    /// Gives a communicator of process `at` these listeners, or none.
    pub(super) fn listen(&self, at: usize, comm: usize, listeners: *const Listeners) {
        let comm = self.comm(at, comm);
        // SAFETY: `comm` is the world's, and the test has one thread.
        unsafe { (*comm.raw()).c_peruse_handles = listeners.cast_mut().cast() };
    }

    fn data(&self, bytes: &Bytes, length: usize, how: How) -> Description {
        let count = if how.has_gaps { length / BLOCK } else { length };
        let datatype = self.datatypes[usize::from(how.has_gaps)].as_ptr();
        // SAFETY: P2, M4: bytes and datatype outlive the operation.
        unsafe { Description::of_test(bytes.start(), count, datatype) }
    }

    /// Starts a send. `None`: it is finished already.
    pub(super) fn send(
        &self,
        from: usize,
        (to, comm, tag): (usize, usize, i32),
        mode: Mode,
        how: How,
        content: &[u8],
    ) -> Option<Operation> {
        let pml = self.stand_for(from);
        let bytes = Bytes::new(laid_out(content, content.len(), how.has_gaps));
        let (data, comm) = (self.data(&bytes, content.len(), how), self.comm(from, comm));
        let call = Call { data, peer: to as i32, tag, comm };
        if how.is_persistent {
            return Some(self.start_new(from, Role::Send(mode), how.owner, &call, bytes));
        }
        if mode == Mode::Standard && send::is_sent_at_once::<false>(&call, sys::MCA_PML_BASE_SEND_STANDARD) {
            return None;
        }
        let (state, request) = send::start(pml, &call, mode, how.owner).expect("there is memory");
        progress::leave(pml, state);
        request.map(|request| Operation::new(pml, request, bytes))
    }

    /// Makes a persistent request, and starts it.
    fn start_new(&self, at: usize, role: Role, owner: Owner, call: &Call, bytes: Bytes) -> Operation {
        let pml = self.stand_for(at);
        let mut state = pml.enter().expect("nobody is inside");
        let request = state.requests.take();
        let r = state.requests.get(request);
        r.fill(role, owner, call);
        r.make_persistent();
        drop(state);
        let operation = Operation::new(pml, request, bytes);
        self.start(at, &operation);
        operation
    }

    /// Begins a buffered send while the PML is entered. Returns its error.
    pub(super) fn send_within(&self, from: usize, to: usize, content: &[u8]) -> Option<Code> {
        let (pml, comm) = (self.stand_for(from), self.comm(from, 0));
        let bytes = Bytes::new(content.to_vec());
        let data = self.data(&bytes, content.len(), How::CALL);
        let _entered = pml.enter();
        send::prepare(pml, &Call { data, peer: to as i32, tag: 7, comm }, Mode::Buffered).err()
    }

    /// Starts an inactive persistent request.
    pub(super) fn start(&self, at: usize, operation: &Operation) {
        self.stand_for(at);
        assert_eq!(persistent::start(operation.request), Ok(()));
    }

    /// Posts a receive with a buffer of `room` bytes.
    pub(super) fn receive(&self, at: usize, wanted: For, how: How, room: usize) -> Operation {
        let pml = self.stand_for(at);
        let bytes = Bytes::new(laid_out(&[], room, how.has_gaps));
        let ((peer, tag), data) = (wanted.ranks(), self.data(&bytes, room, how));
        let call = Call { data, peer, tag, comm: self.comm(at, wanted.comm) };
        if how.is_persistent {
            return self.start_new(at, Role::Receive, how.owner, &call, bytes);
        }
        let mut state = pml.enter().expect("nobody is inside");
        let request = state.requests.take();
        receive::post_new::<false>(pml, &mut state, request, how.owner, &call);
        progress::leave(pml, state);
        Operation::new(pml, request, bytes)
    }

    /// Polls and probes once. `takes`: a matched probe, which takes the message out, or gets no handle for it.
    pub(super) fn probe(&self, at: usize, wanted: For, takes: bool) -> Option<Found> {
        let (from, tag) = wanted.ranks();
        let comm = self.comm(at, wanted.comm);
        let (mut matched, mut message) = (MaybeUninit::new(0), Matched::nothing());
        let mut status = sys::ompi_status_public_t::blank();
        let code = if takes {
            probe::pml_improbe(from, tag, comm, &mut matched, &mut message, Some(&mut status))
        } else {
            probe::pml_iprobe(from, tag, comm, &mut matched, Some(&mut status))
        };
        assert!(code == sys::OPAL_SUCCESS || takes && code == sys::OPAL_ERR_OUT_OF_RESOURCE);
        // SAFETY: initialised above.
        let is_found = unsafe { matched.assume_init() } != 0;
        let found = Found { source: status.MPI_SOURCE, tag: status.MPI_TAG, length: status._ucount, message };
        is_found.then_some(found)
    }

    /// Receives the message that a matched probe took out, into a buffer of `room` bytes.
    pub(super) fn receive_probed(&self, at: usize, message: &mut Matched, how: How, room: usize) -> Operation {
        let pml = self.stand_for(at);
        let bytes = Bytes::new(laid_out(&[], room, how.has_gaps));
        let (state, request, comm) =
            receive::receive_matched(pml, self.data(&bytes, room, how), message, how.owner).expect("nobody is inside");
        progress::leave(pml, state);
        comm.release();
        Operation::new(pml, request, bytes)
    }

    /// Cancels a receive. This finishes it if it has matched no message.
    pub(super) fn cancel(&self, at: usize, operation: &Operation) {
        let pml = self.stand_for(at);
        let mut state = pml.enter().expect("nobody is inside");
        receive::cancel(&mut state, operation.request);
        progress::leave(pml, state);
    }

    /// Polls once as process `at`. Returns the number of events.
    pub(super) fn poll(&self, at: usize) -> usize {
        let pml = self.stand_for(at);
        let mut state = pml.enter().expect("nobody is inside");
        let count = progress::poll(pml, &mut state);
        progress::leave(pml, state);
        assert!(!guard::CAUGHT.get(), "a panic was caught before it reached Open MPI");
        count
    }

    /// Polls as process `at` until its ports have noticed changes of their links.
    pub(super) fn notice(&self, at: usize) {
        (0..NOTICED).for_each(|_| _ = self.poll(at));
    }

    /// Moves all requests of the fabric and polls as every process, until nothing happens. Panics if that takes long.
    pub(super) fn settle(&self) {
        let mut idle = 0;
        for _ in 0..MOST_ROUNDS {
            let before = self.fabric.moved();
            for queue_pair in 0..self.fabric.queue_pairs() {
                while self.fabric.carry(queue_pair) {}
                while self.fabric.acknowledge(queue_pair) {}
            }
            let poll = |at| {
                // With shared memory, ports that were idle for long are polled seldom.
                self.stand_for(at).enter().expect("nobody is inside").poll_interval.note_events(1);
                self.poll(at)
            };
            let polled: usize = (0..self.processes.len()).map(poll).sum();
            idle = if polled == 0 && self.fabric.moved() == before { idle + 1 } else { 0 };
            if idle == IDLE_ROUNDS || JOB_HAS_ENDED.get() {
                return;
            }
        }
        panic!("they do not come to rest");
    }

    /// Asserts that no registration, queued request or kept message is left, and that no sender is held back.
    pub(super) fn is_at_rest(&self) {
        assert_eq!(self.fabric.registered(), 0, "registrations");
        assert_eq!(libmpi::take_attached(), 0, "copies of buffered sends");
        for (at, process) in self.processes.iter().enumerate() {
            let mut state = self.stand_for(at).enter().expect("nobody is inside");
            assert_eq!(state.messenger.flow.kept.bytes(), 0, "messages in process {at}");
            assert!(state.messenger.flow.outgoing.is_free(), "process {at} is held back by somebody");
            assert!(state.messenger.starved.is_empty() && !state.has_failed);
            for comm in process.communicators.borrow().values() {
                // SAFETY: M4: the world's communicator lives.
                let (queues, _) = state.queues(unsafe { Comm::new(comm.as_ptr()) }.part());
                assert_eq!([queues.posted(), queues.unexpected()], [0, 0], "queues of process {at}");
            }
        }
    }
}

/// Maximum number of rounds until nothing happens any more. The longest histories take some hundreds.
const MOST_ROUNDS: usize = 20_000;

/// Number of polls within which a port queries its adapter for asynchronous events.
const NOTICED: usize = 40;

/// Number of rounds without any event after which none can follow, because a port checks its connections in each.
const IDLE_ROUNDS: usize = 4;

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return OF_TEST.set(None);
        }
        for at in 0..self.processes.len() {
            self.stand_for(at);
            for comm in std::mem::take(&mut *self.processes[at].communicators.borrow_mut()).into_values() {
                // SAFETY: the world's reference, released once; unfinished requests of an ended job have others.
                unsafe {
                    let references = libmpi::references(comm.as_ptr());
                    assert!(*references == 1 || JOB_HAS_ENDED.get(), "process {at} does not give requests back");
                    *references = 1;
                    libmpi::ibex_communicator_release(comm.as_ptr());
                }
            }
        }
        OF_TEST.set(None);
        for process in &self.processes {
            // SAFETY: `process` leaked the PML; `OF_TEST` was reset, so no reference to it is left.
            drop(unsafe { Box::from_raw(process.pml.as_ptr()) });
        }
        for datatype in self.datatypes {
            // SAFETY: `new` leaked it; the PMLs and communicators that used it are freed.
            drop(unsafe { Box::from_raw(datatype.as_ptr()) });
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A world of simulated processes: each has its own PML over ports of one fabric, and all share the communicators.
//!
//! Calls the PML as Open MPI does. Called by `tests.rs`, `told.rs` and `histories.rs`.

use std::ptr::{NonNull, null_mut};
use std::sync::RwLockReadGuard;

use engine::messenger::host::Communicators;
use engine::messenger::matching::{ANY_SOURCE, ANY_TAG};
use engine::messenger::receive::search;
use ibex_ffi::openmpi::sys;

use super::super::communicator::Communicator;
use super::super::datatype::Description;
use super::super::instance::{JOB_HAS_ENDED, OF_TEST, Pml};
use super::super::request::{Mode, Request};
use super::super::{persistent, probe, progress, receive, send};
use super::libmpi::{self, BLOCK, STRIDE};
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
    pub(super) message: *mut sys::ompi_message_t,
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
            // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
            let mut datatype: Box<sys::ompi_datatype_t> = Box::new(unsafe { std::mem::zeroed() });
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

    fn comm(&self, at: usize, number: usize) -> *mut sys::ompi_communicator_t {
        let (pml, processes) = (self.stand_for(at), self.processes.len());
        let mut known = self.processes[at].communicators.borrow_mut();
        known.entry(number).or_insert_with(|| communicator(pml, at, number, processes)).as_ptr()
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
        unsafe { (*comm).c_peruse_handles = listeners.cast_mut().cast() };
    }

    fn data(&self, bytes: &Bytes, length: usize, how: How) -> Description {
        let count = if how.has_gaps { length / BLOCK } else { length };
        let datatype = self.datatypes[usize::from(how.has_gaps)].as_ptr();
        Description { buffer: bytes.start().cast(), count, datatype }
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
        let outgoing = send::Outgoing { data, to: to as i32, tag, comm };
        // SAFETY: P4, P2: communicator, datatype and bytes outlive the operation; P1, P3: the request is new.
        unsafe {
            if how.is_persistent {
                let request = pml.enter().expect("nobody is inside").requests.take();
                send::fill(request, &outgoing, mode, how.owner);
                persistent::make_persistent(request);
                let operation = Operation::new(pml, request, bytes);
                self.start(from, &operation);
                return Some(operation);
            }
            let extent = data.extent();
            if mode == Mode::Standard
                && (send::at_once::<false>(&outgoing, extent) || send::copied_at_once(&outgoing, extent))
            {
                return None;
            }
            let (state, request) = send::start(pml, &outgoing, mode, how.owner).expect("there is memory");
            progress::leave(pml, state);
            request.map(|request| Operation::new(pml, request, bytes))
        }
    }

    /// Begins a buffered send while the PML is entered. Returns its error.
    pub(super) fn send_within(&self, from: usize, to: usize, content: &[u8]) -> Option<i32> {
        let (pml, comm) = (self.stand_for(from), self.comm(from, 0));
        let bytes = Bytes::new(content.to_vec());
        let data = self.data(&bytes, content.len(), How::CALL);
        let _entered = pml.enter();
        // SAFETY: P4, P2: communicator, datatype and bytes outlive the call.
        unsafe { send::copy_and_enter(pml, &send::Outgoing { data, to: to as i32, tag: 7, comm }) }.err()
    }

    /// Starts an inactive persistent request.
    pub(super) fn start(&self, at: usize, operation: &Operation) {
        self.stand_for(at);
        // SAFETY: P4: the request is persistent and inactive.
        assert_eq!(unsafe { persistent::start(operation.request) }, sys::OPAL_SUCCESS);
    }

    /// Posts a receive with a buffer of `room` bytes.
    pub(super) fn receive(&self, at: usize, wanted: For, how: How, room: usize) -> Operation {
        let pml = self.stand_for(at);
        let bytes = Bytes::new(laid_out(&[], room, how.has_gaps));
        let ((from, tag), data) = (wanted.ranks(), self.data(&bytes, room, how));
        let described = receive::Wanted { data, from, tag, comm: self.comm(at, wanted.comm) };
        let mut state = pml.enter().expect("nobody is inside");
        let request = state.requests.take();
        // SAFETY: P4, P2: communicator, datatype and bytes outlive the operation; P1, P3: the request is new.
        unsafe {
            receive::fill(request, &described, how.owner);
            if !how.owner.is_call() {
                send::hold(state.requests.get(request));
            }
            if how.is_persistent {
                persistent::make_persistent(request);
            }
        }
        if !how.is_persistent {
            let posting = search::post(pml, &mut *state, request, receive::pattern(from, tag));
            receive::note_name(&mut state, request, posting);
        }
        progress::leave(pml, state);
        let operation = Operation::new(pml, request, bytes);
        if how.is_persistent {
            self.start(at, &operation);
        }
        operation
    }

    /// Polls and probes once. `takes`: a matched probe, which takes the message out, or gets no handle for it.
    pub(super) fn probe(&self, at: usize, wanted: For, takes: bool) -> Option<Found> {
        let (from, tag) = wanted.ranks();
        let comm = self.comm(at, wanted.comm);
        let (mut matched, mut message) = (0, null_mut());
        // SAFETY: P4: the world's communicator lives. A C structure of integers, for which zero is a value.
        let status = unsafe {
            let mut status: sys::ompi_status_public_t = std::mem::zeroed();
            let code = if takes {
                probe::pml_improbe(from, tag, comm, &raw mut matched, &raw mut message, &raw mut status)
            } else {
                probe::pml_iprobe(from, tag, comm, &raw mut matched, &raw mut status)
            };
            assert!(code == sys::OPAL_SUCCESS || takes && code == sys::OPAL_ERR_OUT_OF_RESOURCE);
            status
        };
        let found = Found { source: status.MPI_SOURCE, tag: status.MPI_TAG, length: status._ucount, message };
        (matched != 0).then_some(found)
    }

    /// Receives the message that a matched probe took out, into a buffer of `room` bytes.
    pub(super) fn receive_probed(
        &self,
        at: usize,
        mut message: *mut sys::ompi_message_t,
        how: How,
        room: usize,
    ) -> Operation {
        let pml = self.stand_for(at);
        let bytes = Bytes::new(laid_out(&[], room, how.has_gaps));
        let Description { buffer, count, datatype } = self.data(&bytes, room, how);
        let mut request = null_mut();
        // SAFETY: P4: a message of `probe`, and the world's datatype; P2: the bytes live as long as the operation.
        let request = unsafe {
            let code = receive::pml_imrecv(buffer, count, datatype, &raw mut message, &raw mut request);
            assert_eq!(code, sys::OPAL_SUCCESS);
            Request::from_raw(request).expect("the PML's request")
        };
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
        let mut quiet = 0;
        for _ in 0..MOST_ROUNDS {
            let before = self.fabric.moved();
            for queue_pair in 0..self.fabric.queue_pairs() {
                while self.fabric.carry(queue_pair) {}
                while self.fabric.acknowledge(queue_pair) {}
            }
            let poll = |at| {
                // With shared memory, ports that were quiet for long are polled seldom.
                self.stand_for(at).enter().expect("nobody is inside").quiet.have_reported(1);
                self.poll(at)
            };
            let polled: usize = (0..self.processes.len()).map(poll).sum();
            quiet = if polled == 0 && self.fabric.moved() == before { quiet + 1 } else { 0 };
            if quiet == QUIET_ROUNDS || JOB_HAS_ENDED.get() {
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
                // SAFETY: P4: the world's communicator lives.
                let (queues, _) = state.queues(unsafe { Communicator::of(comm.as_ptr()) });
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
const QUIET_ROUNDS: usize = 4;

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

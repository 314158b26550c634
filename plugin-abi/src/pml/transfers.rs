// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers as the engine's events tell of them (`ibex_xfer_begin` and the like): with the bytes that each step is of,
//! and the adapter's stamp where a completion has brought it.
//!
//! While a tool is registered for any of them, the sites of PERUSE's events ([`super::watch`]) tell these at the same
//! moments, with the same numbers of requests and messages. What the adapter says comes with the completion that is
//! being dealt with ([`completed`]); a step that is a post has none, and the host's time. Grade: pending, while a tool
//! listens. Threads: who has entered the PML. Tests: `hw-tests/tools/mpi_t_transfers.c`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use engine::events::SourceId;
use engine::matching::Envelope;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::request::{Request, Role};
use super::watch::RECEIVE;
use crate::runtime::listeners::{Completed, Event, Listeners, Spec, Step, TransferSpec};

/// Which bytes of a message a step of its transfer moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// All that go: the step is the first of a message that goes at once.
    All,
    /// None: those of its fragments are in their own steps, or all were in the first.
    None,
    /// Of a fragment.
    Of { offset: u64, length: u64 },
}

/// A step of a transfer: its bytes, and whether a completion of the adapter's has brought it, or a post is what happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    bytes: Bytes,
    is_completed: bool,
}

impl Bytes {
    /// They are handed to the adapter, or moved by the processor.
    #[inline(always)]
    pub(crate) const fn posted(self) -> Moved {
        Moved { bytes: self, is_completed: false }
    }

    /// They have come, or have gone. What a call finds that arrived before it has no completion any more, and the
    /// host's time.
    #[inline(always)]
    pub(crate) const fn completed(self) -> Moved {
        Moved { bytes: self, is_completed: true }
    }
}

/// The completion that the PML handles now. Port and source are stored as their numbers plus 1, so that 0 is none.
static PORT: AtomicU32 = AtomicU32::new(0);
static SOURCE: AtomicU32 = AtomicU32::new(0);
static STAMP: AtomicU64 = AtomicU64::new(0);

/// The PML begins to handle this completion; `None`: it has handled the last one of a batch.
pub(crate) fn completed(by: Option<Completed>) {
    let stamp = by.and_then(|by| by.stamp);
    // Written and read by who has entered the PML.
    PORT.store(by.map_or(0, |by| u32::from(by.port) + 1), Ordering::Relaxed);
    SOURCE.store(stamp.map_or(0, |(source, _)| source.index() as u32 + 1), Ordering::Relaxed);
    STAMP.store(stamp.map_or(0, |(_, stamp)| stamp), Ordering::Relaxed);
}

/// The completion that the PML handles now.
pub(crate) fn completion() -> Option<Completed> {
    let port = PORT.load(Ordering::Relaxed).checked_sub(1)? as u8;
    let source = SOURCE.load(Ordering::Relaxed).checked_sub(1).and_then(|source| SourceId::from_index(source as usize));
    Some(Completed { port, stamp: source.map(|source| (source, STAMP.load(Ordering::Relaxed))) })
}

/// The rank in its job of a member of a communicator; of an intercommunicator, of the remote group. `u32::MAX`: there is
/// none of this rank, as a message of a broken peer may say.
///
/// # Safety
/// `comm` is a live communicator, which the PML was told of.
pub(crate) unsafe fn process(comm: *mut sys::ompi_communicator_t, rank: i32) -> u32 {
    // SAFETY: a live communicator, which the PML was told of, and has a member of this rank.
    unsafe {
        if !Communicator::of(comm).has(rank) {
            return u32::MAX;
        }
        sys::ibex_comm_member(comm, sys::ibex_comm_is_inter(comm), rank) as u32
    }
}

/// A step of a request's transfer, which has a number for tools.
///
/// # Safety
/// P1: a request that is not finished, and whose peer is known; P3: the PML is entered; the listeners are those of its
/// communicator.
#[cold]
#[inline(never)]
pub(crate) unsafe fn tell(listeners: &Listeners, request: &mut Request, step: Step, moved: Moved) {
    let (id, comm) = (request.id, request.comm());
    let (of, message) = request.message;
    let (source, tag, peer, total, goes) = match request.role {
        Role::Receive => {
            let room = request.extent.length;
            let status = &request.base().req_status;
            (status.MPI_SOURCE, status.MPI_TAG, status.MPI_SOURCE, status._ucount, status._ucount.min(room))
        }
        Role::Send(_) => {
            let length = request.extent.length;
            // SAFETY: P1: not finished, so its communicator lives.
            (unsafe { (*comm).c_my_rank }, request.tag, request.peer, length, length)
        }
    };
    let message = if request.role != Role::Receive {
        id
    } else if of == id {
        message
    } else {
        0
    };
    let (offset, bytes) = match moved.bytes {
        Bytes::All => (0, goes as u64),
        Bytes::None => (if step == Step::Ends { goes as u64 } else { 0 }, 0),
        Bytes::Of { offset, length } => (offset, length),
    };
    // SAFETY: P1: not finished, so its communicator lives.
    let process = unsafe { process(comm, peer) };
    let completed = completion().filter(|_| moved.is_completed);
    let (spec, total) = (request.spec, total as u64);
    let mut told = TransferSpec { spec, step, message, offset, bytes, total, source, tag, process, completed };
    // SAFETY: P3.
    unsafe { listeners.tell_transfer(id, &mut told) };
}

/// [`tell`] of a send that has no request: what is known of it stands in its specification.
///
/// # Safety
/// P3: the PML is entered; the specification's communicator lives, and the listeners are its.
#[cold]
#[inline(never)]
pub(crate) unsafe fn tell_at_once(listeners: &Listeners, id: u64, spec: &Spec, step: Step) {
    // SAFETY: it lives, and is the PML's.
    let (source, process) = unsafe { ((*spec.comm).c_my_rank, process(spec.comm, spec.peer)) };
    let (offset, bytes) = if step == Step::Begins { (0, spec.bytes) } else { (spec.bytes, 0) };
    let (spec, total, tag) = (*spec, spec.bytes, spec.tag);
    let mut told =
        TransferSpec { spec, step, message: id, offset, bytes, total, source, tag, process, completed: None };
    // SAFETY: P3.
    unsafe { listeners.tell_transfer(id, &mut told) };
}

/// A message has arrived, with so many of its bytes.
///
/// # Safety
/// P3: the PML is entered; the specification is the message's, its communicator lives, and the listeners are its.
#[cold]
#[inline(never)]
pub(crate) unsafe fn arrived(listeners: &Listeners, id: u64, spec: &Spec, envelope: Envelope, bytes: usize) {
    debug_assert_eq!(spec.operation, RECEIVE, "a message's");
    // SAFETY: it lives, and is the PML's.
    let process = unsafe { process(spec.comm, envelope.source()) };
    let mut told = TransferSpec {
        spec: *spec,
        step: Step::Arrived,
        message: id,
        offset: 0,
        bytes: bytes as u64,
        total: spec.bytes,
        source: envelope.source(),
        tag: envelope.tag(),
        process,
        completed: completion(),
    };
    // SAFETY: P3.
    unsafe { listeners.tell_transfer(id, &mut told) };
}

/// The step that an event of PERUSE's is, if it is one of a transfer.
#[inline(always)]
pub(crate) const fn step(event: Event) -> Option<Step> {
    match event {
        Event::XferBegin => Some(Step::Begins),
        Event::XferContinue => Some(Step::Continues),
        Event::XferEnd => Some(Step::Ends),
        _ => None,
    }
}

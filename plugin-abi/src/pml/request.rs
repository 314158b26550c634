// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request: Open MPI's part, then what the PML knows of a send or a receive.
//!
//! A blocking call has one too, which MPI never sees. It comes from a free list and goes back to it when both are
//! through with it: MPI (it has freed it) and the PML (it is finished). Grade: hot. Threads: who has entered the PML,
//! but for `is_finished` and what Open MPI does with its own part. Tests: the MPI programs of `hw-tests`.

use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use engine::protocol::header::Memory;
use engine::protocol::pieces::{Gathering, Sending};
use engine::protocol::reading::Reading;
use engine::protocol::transfers::TransferId;
use ibex_ffi::openmpi::sys;

use super::datatype::{Convertor, Data, Extent};
use super::link::Link;
use super::striped::{OfRail, Reads};
use super::watched_reads::WatchedReads;
use crate::runtime::free_list::{FreeList, Linked};
use crate::runtime::listeners::Spec;
use crate::runtime::memory::Registered;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A receive.
    Receive,
    /// A send, with its mode.
    Send(Mode),
}

/// How a send completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// When its buffer may be used again; ready sends as well.
    Standard,
    /// When it is matched, too.
    Synchronous,
    /// At once: what is sent is a copy in the memory that the program has attached.
    Buffered,
}

/// Who waits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A blocking call of this thread's, which looks at `is_finished`; it gives the request back.
    Call,
    /// The same while a tool listens: its end is an event.
    WatchedCall,
    /// MPI, by Open MPI's part of it.
    Mpi,
    /// Nobody any more, or never: it goes back when it is finished.
    Nobody,
}

/// What is under way for a request beyond one message.
pub(crate) enum Transfer {
    /// Nothing.
    None,
    /// The peer is to answer: it finishes the message or wants pieces. `counted`: among those that flow control counts.
    Announced { registered: Option<Registered>, others: Vec<OfRail>, counted: bool },
    /// Pieces are being sent. `is_starved`: it waits for a send buffer ([`super::instance::State::starved`]).
    Sending { state: Sending, receiver: TransferId, is_starved: bool },
    /// The message is being read.
    Reading {
        state: Reading,
        sender: TransferId,
        from: Memory,
        registered: Registered,
        watched: Option<Box<WatchedReads>>,
    },
    /// The message is being read by several ports.
    Striped(Box<Reads>),
    /// The shared-memory BTL reads the message.
    Getting { sender: TransferId, length: u64 },
    /// Pieces are coming in.
    Gathering { id: TransferId, state: Gathering },
}

/// A request.
#[repr(C, align(16))]
pub(crate) struct Request {
    base: sys::ompi_request_t,
    /// The next on the free list, or of those that are finished and not told of.
    pub(crate) next: *mut Request,
    is_finished: AtomicBool,
    pub(crate) owner: Owner,
    pub(crate) role: Role,
    /// Whether communicator and datatype were retained for it.
    pub(crate) has_references: bool,
    /// The peer's rank, or any.
    pub(crate) peer: i32,
    pub(crate) tag: i32,
    pub(crate) data: Data,
    pub(crate) extent: Extent,
    /// Of a posted receive: the name by which it is cancelled.
    pub(crate) posted: u64,
    /// The peer of a transfer, and of a send.
    pub(crate) link: Link,
    pub(crate) transfer: Transfer,
    /// For data with gaps, during a transfer.
    pub(crate) convertor: Option<Convertor>,
    /// Attached memory that holds the message, to be given back.
    pub(crate) attached: *mut u8,
    /// What tools know it by; 0: they have not been told of it.
    pub(crate) id: u64,
    /// What its caller asked for, as tools are told it; of one that has an id.
    pub(crate) spec: Spec,
    /// What tools have been told of its transfer.
    pub(crate) told: Told,
    /// Of a persistent request: it was begun, and its caller has not been told of its end.
    pub(crate) is_to_notify: bool,
    /// Of a receive that has its message, while a tool asks how that goes: what tools know the message by, behind the
    /// number of the receive, as this is left over from another otherwise.
    pub(crate) message: (u64, u64),
}

/// What tools have been told of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    Begun,
    Ended,
}

impl Owner {
    /// Whether that is a blocking call.
    #[inline(always)]
    pub(crate) const fn is_call(self) -> bool {
        matches!(self, Owner::Call | Owner::WatchedCall)
    }
}

// SAFETY: `next` is for free lists and for the chain of those finished. A free request has no transfer and no
// convertor.
unsafe impl Linked for Request {
    const NEXT: usize = offset_of!(Request, next);
}

/// What Open MPI calls with a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestFunctions {
    pub(crate) start: sys::ompi_request_start_fn_t,
    pub(crate) free: sys::ompi_request_free_fn_t,
    pub(crate) cancel: sys::ompi_request_cancel_fn_t,
}

/// The requests of the process.
pub(crate) struct Requests {
    free: FreeList<Request>,
    functions: RequestFunctions,
}

/// Requests made at a time.
const GROW_BY: usize = 64;

impl Requests {
    pub(crate) const fn new(functions: RequestFunctions) -> Self {
        Requests { free: FreeList::new(), functions }
    }

    /// Takes a request. Its fields are what its last use has left.
    #[inline]
    pub(crate) fn take(&mut self) -> NonNull<Request> {
        match self.free.take() {
            Some(request) => request,
            None => self.grow(),
        }
    }

    /// # Safety
    /// P1: the request was taken from here, is finished, or was never begun, and nothing names it any more.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, request: NonNull<Request>) {
        // SAFETY: P1: taken from here, and nothing names it any more.
        unsafe { self.free.give_back(request.as_ptr()) };
    }

    #[cold]
    fn grow(&mut self) -> NonNull<Request> {
        let RequestFunctions { start, free, cancel } = self.functions;
        self.free.add((0..GROW_BY).map(|_| Request::unused()).collect(), |request| {
            // SAFETY: nobody has it yet; Open MPI's part is constructed where it will stay.
            unsafe { sys::ibex_request_construct(&raw mut (*request.as_ptr()).base, start, free, cancel) };
        });
        self.free.take().expect("requests were added")
    }
}

impl Request {
    /// One that Open MPI's part is not constructed of.
    pub(super) fn unused() -> Self {
        // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
        let base = unsafe { std::mem::zeroed() };
        Request {
            base,
            next: null_mut(),
            is_finished: AtomicBool::new(false),
            owner: Owner::Nobody,
            role: Role::Receive,
            has_references: false,
            peer: 0,
            tag: 0,
            data: Data { buffer: null_mut(), count: 0, datatype: null_mut() },
            extent: Extent { start: null_mut(), length: 0 },
            posted: 0,
            link: Link::UNKNOWN,
            transfer: Transfer::None,
            convertor: None,
            attached: null_mut(),
            id: 0,
            spec: Spec::EMPTY,
            told: Told::Nothing,
            is_to_notify: false,
            message: (0, 0),
        }
    }

    /// The request behind Open MPI's pointer; `None` where it is another's.
    ///
    /// # Safety
    /// P4: `raw` is a live request of Open MPI's.
    pub(crate) unsafe fn from_raw(raw: *mut sys::ompi_request_t) -> Option<NonNull<Request>> {
        let raw = NonNull::new(raw)?;
        // SAFETY: P4: a live request of Open MPI's.
        let of_pml = unsafe { (*raw.as_ptr()).req_type } == sys::OMPI_REQUEST_PML;
        of_pml.then(|| raw.cast())
    }

    /// Open MPI's pointer.
    #[inline]
    pub(crate) fn as_raw(request: NonNull<Request>) -> *mut sys::ompi_request_t {
        request.as_ptr().cast()
    }

    /// Open MPI's part.
    #[inline]
    pub(crate) fn base(&mut self) -> &mut sys::ompi_request_t {
        &mut self.base
    }

    /// The communicator.
    #[inline]
    pub(crate) fn comm(&self) -> *mut sys::ompi_communicator_t {
        // SAFETY: a union of pointers; requests of a PML have the communicator there.
        unsafe { self.base.req_mpi_object.comm }
    }

    /// Whether it is finished. Acquire: what was received is seen.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }

    /// See [`Self::is_finished`].
    #[inline]
    pub(crate) fn set_finished(&self, is_finished: bool) {
        self.is_finished.store(is_finished, Ordering::Release);
    }
}

const _: () = assert!(offset_of!(Request, base) == 0, "Open MPI's part stands first");

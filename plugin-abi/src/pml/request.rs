// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request: Open MPI's part, then the PML's record of a send or a receive. MPI never sees that of a blocking call.
//!
//! The record has the owner of the request ([`Shell`]), the fields of the engine's protocols ([`Core`]), and those of
//! events. Grade: hot. Threads: the one that has entered the PML; for `is_finished` and Open MPI's part, any. Tests:
//! `pml/tests`, and the MPI programs of `hw-tests`.

use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::messenger::events::Watched;
use engine::messenger::request;
pub(crate) use engine::messenger::request::{Mode, Outcome, Role};
use engine::messenger::route::Route;
use ibex_ffi::openmpi::blank::Blank;
use ibex_ffi::openmpi::sys;

use super::communicator::Comm;
use super::datatype::{Attached, Datatype, Description, Extent, UserData};
use super::instance::State;
use super::module::persistent::FUNCTIONS;
use crate::runtime::entry::Argument;
use crate::runtime::free_list::{FreeList, Linked};
use crate::runtime::libmpi;
use crate::runtime::listeners::{Listeners, Spec};

pub(crate) type Core = request::Core<State>;
pub(crate) type Transfer = request::Transfer<State>;

/// The arguments of a call of MPI for a send or a receive.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) data: Description,
    pub(crate) peer: i32,
    pub(crate) tag: i32,
    pub(crate) comm: Comm,
}

/// Argument of MPI: a request, which lives (M4), or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct RawRequest(pub(super) *mut sys::ompi_request_t);

// SAFETY: the same pointer.
unsafe impl Argument<*mut sys::ompi_request_t> for RawRequest {}
// SAFETY: the same pointer.
unsafe impl Argument<*mut *mut sys::ompi_request_t> for &mut RawRequest {}

impl RawRequest {
    /// Returns the request; `None` if it belongs to another component.
    pub(crate) fn ours(self) -> Option<Handle> {
        let raw = NonNull::new(self.0)?;
        // SAFETY: M4: it lives; P1: one of this type is the PML's.
        unsafe { ((*raw.as_ptr()).req_type == sys::OMPI_REQUEST_PML).then(|| Handle::new(raw.cast())) }
    }

    /// Returns `MPI_REQUEST_NULL`.
    pub(crate) fn null() -> Self {
        // SAFETY: takes the address of an object that Open MPI never frees.
        RawRequest(unsafe { libmpi::ibex_request_null() })
    }
}

/// Argument of MPI: its array of requests, some of which may be null (M4).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct RawRequests(*mut RawRequest);

// SAFETY: the same pointer.
unsafe impl Argument<*mut *mut sys::ompi_request_t> for RawRequests {}

impl RawRequests {
    /// # Safety
    /// M4: an array of requests, which lives while the value is used.
    pub(crate) const unsafe fn new(raw: *mut *mut sys::ompi_request_t) -> Self {
        RawRequests(raw.cast())
    }

    /// Returns the PML's requests among the first `count`.
    ///
    /// # Safety
    /// M4: the array has that many elements, which nobody else uses while the iterator is used.
    pub(crate) unsafe fn ours(self, count: usize) -> impl Iterator<Item = Handle> {
        // SAFETY: M4, as this function requires.
        (0..count).filter_map(move |index| unsafe { self.0.add(index).read() }.ours())
    }
}

/// Place of a request that MPI gets.
pub(crate) type Place<'call> = &'call mut MaybeUninit<*mut sys::ompi_request_t>;

/// Owner of a request, which waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The blocking call that made it, which polls `is_finished` and gives the request back.
    Call,
    /// [`Self::Call`] while a tool listens: finishing the request raises an event.
    WatchedCall,
    /// MPI, through Open MPI's part of the request.
    Mpi,
    /// Nobody: the PML gives the request back when it is finished.
    Nobody,
}

/// Names a request: queues, protocols and the engine's tokens store it. The state lends the request behind it
/// ([`Requests::get`]) to the thread that has entered the PML, one at a time. A handle that is used after its request
/// was given back is a defect: it leads to a free request or to another use of it, but never to other memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Handle(NonNull<Request>);

impl Handle {
    /// # Safety
    /// P1: a request of `State::requests`.
    #[inline(always)]
    pub(crate) const unsafe fn new(request: NonNull<Request>) -> Self {
        Handle(request)
    }

    /// Returns the address, for Open MPI and for tokens.
    #[inline(always)]
    pub(crate) const fn pointer(self) -> NonNull<Request> {
        self.0
    }
}

#[repr(C, align(16))]
pub(crate) struct Request {
    /// Has the communicator, the status and the callback.
    base: sys::ompi_request_t,
    pub(crate) shell: Shell,
    pub(crate) core: Core,
    /// Arguments of the MPI call, as events report them; valid once tools know the request.
    pub(crate) spec: Spec,
}

#[repr(C)]
pub(crate) struct Shell {
    /// Next request on the free list, or on the chain of finished requests.
    pub(crate) next: Option<Handle>,
    /// The copy of a buffered send, which its request sends.
    pub(crate) attached: Option<Attached>,
    /// Puts `owner` beside the core's `role`: a receive writes both by one instruction.
    _padding: [u8; 4],
    /// Whether a persistent request was started, and no event has reported the end of its wait.
    pub(crate) is_to_notify: bool,
    /// Whether the request holds references to its communicator and datatype.
    pub(crate) has_references: bool,
    is_finished: AtomicBool,
    pub(crate) owner: Owner,
}

impl Owner {
    #[inline(always)]
    pub(crate) const fn is_call(self) -> bool {
        matches!(self, Owner::Call | Owner::WatchedCall)
    }
}

// SAFETY: a request on a free list is not on the chain of finished requests, which also uses `next`, a pointer or null.
// It has neither a transfer nor a convertor, so any thread may use it.
unsafe impl Linked for Request {
    const NEXT: usize = offset_of!(Request, shell.next);
}

/// The requests, of which it has those that nobody uses.
pub(crate) struct Requests {
    free: FreeList<Request>,
}

const GROW_BY: usize = 64;

impl Requests {
    pub(crate) const fn new() -> Self {
        Requests { free: FreeList::new() }
    }

    /// Takes a request. Its fields have the values of its last use.
    #[inline]
    pub(crate) fn take(&mut self) -> Handle {
        let request = match self.free.take() {
            Some(request) => request,
            None => self.grow(),
        };
        // SAFETY: P1: one of these requests.
        unsafe { Handle::new(request) }
    }

    /// Takes back a request that is finished or was never begun, and to which nothing refers any more (P1).
    #[inline]
    pub(crate) fn give_back(&mut self, request: Handle) {
        // SAFETY: P1: taken from this list, and its owner, who gives it back, does not use it any more.
        unsafe { self.free.give_back(request.pointer().as_ptr()) };
    }

    /// Returns a request. This borrows all requests, so nobody else has a reference to it.
    #[inline(always)]
    #[allow(clippy::unused_self, reason = "the borrow permits it")]
    pub(crate) fn get(&mut self, request: Handle) -> &mut Request {
        // SAFETY: P1: its memory lives as long as the PML; P3: nobody else uses it while these requests are borrowed.
        unsafe { &mut *request.pointer().as_ptr() }
    }

    #[inline(always)]
    pub(crate) fn core(&mut self, request: Handle) -> &mut Core {
        &mut self.get(request).core
    }

    /// Returns the cores of two requests.
    ///
    /// # Panics
    /// If both handles are the same.
    #[allow(clippy::unused_self, reason = "the borrow permits it")]
    pub(crate) fn cores(&mut self, of: [Handle; 2]) -> [&mut Core; 2] {
        assert_ne!(of[0], of[1], "two requests");
        // SAFETY: P1, P3: as in `get`; these are two.
        of.map(|request| unsafe { &mut (*request.pointer().as_ptr()).core })
    }

    #[cold]
    fn grow(&mut self) -> NonNull<Request> {
        let (start, free, cancel) = FUNCTIONS;
        self.free.add((0..GROW_BY).map(|_| Request::unused()).collect(), |request| {
            // SAFETY: P1: nobody has the request yet. Open MPI's part is constructed where it stays.
            unsafe { libmpi::ibex_request_construct(&raw mut (*request.as_ptr()).base, start, free, cancel) };
        });
        self.free.take().expect("requests were added")
    }
}

impl Request {
    /// Makes a request whose Open MPI part is all zeroes.
    pub(super) fn unused() -> Self {
        let base = sys::ompi_request_t::blank();
        let shell = Shell {
            next: None,
            attached: None,
            _padding: [0; 4],
            is_to_notify: false,
            has_references: false,
            is_finished: AtomicBool::new(false),
            owner: Owner::Nobody,
        };
        let core = Core {
            role: Role::Receive,
            peer: 0,
            tag: 0,
            data: UserData::NONE,
            posted: 0,
            route: Route::UNKNOWN,
            transfer: Transfer::None,
            watched: Watched::NOTHING,
        };
        Request { base, shell, core, spec: Spec::EMPTY }
    }

    /// Makes the request one for this call. Only the caller has it.
    #[inline(always)]
    pub(crate) fn fill(&mut self, role: Role, owner: Owner, call: &Call) {
        self.core.role = role;
        self.shell.owner = owner;
        // Nobody asks an unwatched blocking receive for the rest.
        if role == Role::Receive && owner == Owner::Call {
            self.core.data.set(&call.data);
        } else {
            self.core.data.describe(&call.data);
            (self.core.peer, self.core.tag) = (call.peer, call.tag);
        }
        self.base.req_mpi_object.comm = call.comm.raw();
        self.set_finished(false);
        if !owner.is_call() {
            self.hold(call.data.datatype());
        }
    }

    /// Makes the request fit for MPI to hold: active, with references to its communicator and datatype.
    #[inline]
    fn hold(&mut self, datatype: Datatype) {
        self.shell.has_references = true;
        let comm = self.comm();
        // SAFETY: M4: the request is MPI's from now on; communicator and datatype live.
        unsafe { libmpi::ibex_request_hold(&raw mut self.base, comm.raw(), datatype.raw()) };
    }

    /// Makes a request that MPI holds persistent and inactive.
    pub(crate) fn make_persistent(&mut self) {
        // SAFETY: P1: filled in, and only the caller has it.
        unsafe { libmpi::ibex_request_persist(&raw mut self.base) };
    }

    /// Returns the arguments of its call, which it has noted.
    pub(crate) fn call(&self) -> Call {
        let core = &self.core;
        Call { data: *core.data.description(), peer: core.peer, tag: core.tag, comm: self.comm() }
    }

    /// Completes a request that MPI holds: wakes its waiter. Its status is filled in; it has no callback.
    pub(crate) fn complete(request: Handle) {
        // SAFETY: P1: finished by the PML, and not yet complete for MPI, so MPI has not freed it.
        unsafe { libmpi::ibex_request_complete(Request::as_raw(request)) };
    }

    /// Ends Open MPI's part of a request that MPI has freed. Returns the communicator and the datatype, whose
    /// references the caller releases ([`release`]) once nothing is entered.
    #[inline]
    pub(crate) fn take_references(&mut self) -> Option<(Comm, Datatype)> {
        if !std::mem::take(&mut self.shell.has_references) {
            return None;
        }
        // SAFETY: P1: MPI has freed the request, so nobody uses Open MPI's part of it.
        unsafe { libmpi::ibex_request_fini(&raw mut self.base) };
        Some((self.comm(), self.core.data.description().datatype()))
    }

    #[inline]
    pub(crate) fn as_raw(request: Handle) -> *mut sys::ompi_request_t {
        request.pointer().as_ptr().cast()
    }

    #[inline]
    pub(crate) fn base(&mut self) -> &mut sys::ompi_request_t {
        &mut self.base
    }

    #[inline]
    pub(crate) fn comm(&self) -> Comm {
        // SAFETY: a union of pointers, which is the communicator in a request of type `OMPI_REQUEST_PML`; P1: it lives.
        unsafe { Comm::new(self.base.req_mpi_object.comm) }
    }

    /// Returns the listeners to its communicator. The request was borrowed from the entered PML.
    #[inline(always)]
    pub(crate) fn listeners(&self) -> Option<&'static Listeners> {
        // SAFETY: P1: the request is not finished, or holds a reference, so its communicator lives; P3.
        unsafe { Listeners::of(self.comm().raw()) }
    }

    /// Whether the request is finished. If so, the received data is visible (Acquire).
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.shell.is_finished.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_finished(&self, is_finished: bool) {
        self.shell.is_finished.store(is_finished, Ordering::Release);
    }
}

/// Releases the references of a request that was given back. Nothing is entered, because freeing a communicator may
/// call the PML.
pub(crate) fn release((comm, datatype): (Comm, Datatype)) {
    // SAFETY: both references were taken when the request was made (`hold`), and are released once.
    unsafe { libmpi::ibex_references_release(comm.raw(), datatype.raw()) };
}

const _: () = assert!(offset_of!(Request, base) == 0, "Open MPI's part stands first");
const _: () = assert!(size_of::<Option<Handle>>() == size_of::<*mut Request>(), "a link, and a pointer or null");
const _: () = {
    let line = size_of::<sys::ompi_request_t>();
    let end = offset_of!(Request, core.data) + size_of::<Extent>();
    assert!(offset_of!(Request, shell.next) == line && end <= line + 64, "a short receive uses one line behind `base`");
    let role = offset_of!(Request, core.role);
    assert!(role == offset_of!(Request, shell.owner) + 1 && role % align_of::<Request>() != 0, "written at once");
};

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of a tool's callback: `MPI_T_event_registration` and `MPI_T_event_instance`. An instance is either one of
//! the engine's or, for the PML's events of requests and messages, a [`MatchingInstance`] on the stack of its caller,
//! which makes its elements when the callback first reads one, and its timestamp when the callback asks for it. An
//! instance is valid only within its callback, in the thread that runs it. Called by `mpi_t`, `registration.rs` and
//! `matching.rs`. Grade: hot. Threads: any, each with its own instance; one at a time has a [`MatchingInstance`].
//! Safety: N1 to N4 of `runtime/listeners`. Tests: `tests`, and `hw-tests/tools/mpi_t_matching.c`.

use std::cell::{Cell, OnceCell};
use std::ffi::{c_int, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::events::{self, EventInstance, MatchingEvent, ProtocolEvent, SourceId, TypeId};
use engine::messenger::path_taken::PathTaken;

use crate::runtime::entry::Opaque;
use crate::runtime::listeners::{self, ProtocolSpec, Spec, SpecPointer};
use crate::tool::host::Code;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct RegistrationHandle(pub(in crate::tool) i64);

/// An `MPI_T_event_instance`, valid within the callback.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct InstancePointer(Opaque);

/// `MPI_T_event_cb_function`
pub(crate) type EventFunction = unsafe extern "C" fn(InstancePointer, RegistrationHandle, c_int, Opaque);

/// Bit of the pointer to a [`MatchingInstance`], whose address is even.
const OF_MATCHING: usize = 1;

thread_local! {
    /// The engine's instance whose callback this thread runs.
    static CURRENT: Cell<*const EventInstance> = const { Cell::new(null()) };
}

/// Pointer to the [`MatchingInstance`] whose callback a thread runs while [`events::is_within`]; 0: none yet.
static OF_MATCHING_NOW: AtomicUsize = AtomicUsize::new(0);

pub(super) struct MatchingInstance<'call> {
    pub(super) spec: SpecPointer<'call>,
    pub(super) id: u64,
    pub(super) event_type: TypeId,
    pub(super) made: OnceCell<EventInstance>,
}

#[inline(always)]
pub(super) fn elements(id: u64, spec: &Spec, [posted, unexpected]: [u32; 2]) -> MatchingEvent {
    MatchingEvent {
        id,
        bytes: spec.bytes,
        buffer: spec.buf.addr() as u64,
        peer: spec.peer,
        tag: spec.tag,
        operation: spec.operation.cast_unsigned(),
        context: spec.context,
        posted,
        unexpected,
        count: spec.count,
    }
}

fn protocol(id: u64, of: &ProtocolSpec) -> ProtocolEvent {
    let ProtocolSpec { spec, message, path } = *of;
    let PathTaken { protocol, reason, port, queue_pair, rails } = path;
    let (protocol, reason) = (protocol as u32, reason as u32);
    ProtocolEvent { id, message, bytes: spec.bytes, context: spec.context, protocol, reason, port, queue_pair, rails }
}

impl MatchingInstance<'_> {
    /// Returns the event with its elements, without a timestamp.
    fn event(&self) -> &EventInstance {
        self.made.get_or_init(|| self.instance(0))
    }

    /// Returns an instance that may outlive the callback.
    pub(super) fn whole(&self) -> EventInstance {
        self.instance(self.timestamp())
    }

    #[inline]
    fn instance(&self, timestamp: u64) -> EventInstance {
        let source = events::matching_source();
        if self.event_type.place_in_matching() == Some(events::PROTOCOL) {
            // SAFETY: N3: this event has a `ProtocolSpec`, which outlives the callback.
            let spec = unsafe { self.spec.as_ptr().cast::<ProtocolSpec>().read() };
            return protocol(self.id, &spec).instance(self.event_type, source, timestamp);
        }
        elements(self.id, &self.spec.fields(), self.queues()).instance(self.event_type, source, timestamp)
    }

    /// Returns the numbers of posted receives and of unexpected messages.
    #[inline]
    pub(super) fn queues(&self) -> [u32; 2] {
        // SAFETY: N1; the specification's communicator is the one whose listeners are being notified, so it is live.
        unsafe { listeners::queues(self.spec.fields().comm) }
    }

    /// Returns the time of the event; reads the clock if no earlier listener has.
    #[inline(always)]
    pub(super) fn timestamp(&self) -> u64 {
        let mut stamp = self.spec.fields().stamp;
        if stamp <= DELIVERED {
            stamp = events::stamp();
            self.spec.set_stamp(stamp);
        }
        stamp
    }
}

/// Value of [`Spec::stamp`] after a first listener that has not read the clock. No clock has this value.
pub(super) const DELIVERED: u64 = 1;

pub(super) fn with_current(instance: &EventInstance, call: impl FnOnce(InstancePointer)) {
    // The callback may run in a signal handler that has interrupted another callback.
    let before = CURRENT.replace(instance);
    call(InstancePointer(Opaque(std::ptr::from_ref(instance).cast_mut().cast())));
    CURRENT.set(before);
}

#[inline(always)]
pub(super) fn with_matching(instance: &MatchingInstance<'_>, call: impl FnOnce(InstancePointer)) {
    let pointer = std::ptr::from_ref(instance).cast_mut().cast::<c_void>().map_addr(|at| at | OF_MATCHING);
    OF_MATCHING_NOW.store(pointer.addr(), Ordering::Relaxed);
    events::call(|| call(InstancePointer(Opaque(pointer))));
}

impl InstancePointer {
    /// Returns the [`MatchingInstance`], if the pointer is to one; an error if this thread does not run its callback.
    #[inline]
    fn matching(&self) -> Result<Option<&MatchingInstance<'_>>, Code> {
        if self.0.0.addr() & OF_MATCHING == 0 {
            return Ok(None);
        }
        if !events::is_within() || OF_MATCHING_NOW.load(Ordering::Relaxed) != self.0.0.addr() {
            return Err(Code::InvalidHandle);
        }
        // SAFETY: `with_matching` made the pointer and has not returned; only this thread uses it, and its cells.
        Ok(Some(unsafe { &*self.0.0.map_addr(|at| at & !OF_MATCHING).cast::<MatchingInstance<'_>>() }))
    }

    /// Returns the result of `read` for the event, whose timestamp may be missing. Errors: those of [`Self::matching`].
    #[inline]
    pub(crate) fn read<R>(self, read: impl FnOnce(&EventInstance) -> Result<R, Code>) -> Result<R, Code> {
        if let Some(matching) = self.matching()? {
            return read(matching.event());
        }
        if self.0.0.is_null() || CURRENT.get().cast() != self.0.0.cast_const() {
            return Err(Code::InvalidHandle);
        }
        // SAFETY: the instance outlives the callback, which this thread is in, and nobody writes to it.
        read(unsafe { &*self.0.0.cast::<EventInstance>() })
    }

    #[inline]
    pub(crate) fn timestamp(self) -> Result<u64, Code> {
        if let Some(matching) = self.matching()? {
            return Ok(matching.timestamp());
        }
        self.read(|instance| Ok(instance.timestamp))
    }

    #[inline]
    pub(crate) fn source(self) -> Result<SourceId, Code> {
        self.read(|instance| Ok(instance.source))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a tool's callback is given: `MPI_T_event_registration` and `MPI_T_event_instance`.
//!
//! An instance is the engine's, or one of the matching's ([`MatchingInstance`]), which is on the stack of who calls and
//! has its elements worked out when the callback first reads one, its time when it asks for that. Either is valid
//! within its callback, and looked at only by the thread that runs it. Called by `mpi_t.rs`, `registration.rs` and
//! `matching.rs`. Grade: hot. Threads: each its own; of the matching's one at a time. Tests: `tests.rs`, and
//! `hw-tests/tools/mpi_t_matching.c`.

use std::cell::{Cell, OnceCell};
use std::ffi::{c_int, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::events::{self, EventInstance, MatchingEvent, ProtocolEvent, SourceId, TypeId};

use super::host::Code;
use crate::runtime::listeners::{self, Passage, ProtocolSpec, Spec};

/// An `MPI_T_event_registration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct RegistrationHandle(pub(super) i64);

/// An `MPI_T_event_instance`: the instance, valid within the callback.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct InstancePointer(*const c_void);

/// `MPI_T_event_cb_function`
pub(crate) type EventFunction = unsafe extern "C" fn(InstancePointer, RegistrationHandle, c_int, *mut c_void);

/// Set in the pointer to an instance of the matching's, which is at an even address.
const OF_MATCHING: usize = 1;

thread_local! {
    /// The event of the engine's whose callback this thread runs.
    static CURRENT: Cell<*const EventInstance> = const { Cell::new(null()) };
}

/// The address of the event of the matching's whose callback a thread runs ([`events::is_within`]); 0: none.
static OF_MATCHING_NOW: AtomicUsize = AtomicUsize::new(0);

/// An event of the matching's.
pub(super) struct MatchingInstance {
    pub(super) spec: *mut Spec,
    pub(super) id: u64,
    pub(super) event_type: TypeId,
    pub(super) made: OnceCell<EventInstance>,
}

/// The elements of an event of this number, while so many receives wait and so many messages are unexpected.
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

/// The elements of the event that says how the bytes of a request's message go.
fn protocol(id: u64, told: &ProtocolSpec) -> ProtocolEvent {
    let ProtocolSpec { spec, message, passage } = *told;
    let Passage { protocol, reason, port, queue_pair, rails } = passage;
    let (protocol, reason) = (protocol as u32, reason as u32);
    ProtocolEvent { id, message, bytes: spec.bytes, context: spec.context, protocol, reason, port, queue_pair, rails }
}

impl MatchingInstance {
    /// Its elements, without a timestamp.
    fn event(&self) -> &EventInstance {
        self.made.get_or_init(|| self.instance(0))
    }

    /// As an instance that outlives the callback.
    pub(super) fn whole(&self) -> EventInstance {
        self.instance(self.timestamp())
    }

    #[inline]
    fn instance(&self, timestamp: u64) -> EventInstance {
        let source = events::matching_source();
        if self.event_type.place_in_matching() == Some(events::PROTOCOL) {
            // SAFETY: what this event is told with, which outlives the callback, and nobody else writes to.
            let told = unsafe { &*self.spec.cast::<ProtocolSpec>() };
            return protocol(self.id, told).instance(self.event_type, source, timestamp);
        }
        // SAFETY: the raiser's, which outlives the callback; nobody writes to it meanwhile.
        let spec = unsafe { &*self.spec };
        // SAFETY: the communicator of an event that is being told.
        let queues = unsafe { listeners::queues(spec.comm) };
        elements(self.id, spec, queues).instance(self.event_type, source, timestamp)
    }

    /// When it happened: now, if nobody has asked before.
    #[inline(always)]
    pub(super) fn timestamp(&self) -> u64 {
        // SAFETY: the raiser's, which outlives the callback; no other reference to it is kept.
        let stamp = unsafe { &mut (*self.spec).stamp };
        if *stamp <= TOLD {
            *stamp = events::stamp();
        }
        *stamp
    }
}

/// What the stamp of an event is that somebody has been told of and nobody has asked for: no clock's.
pub(super) const TOLD: u64 = 1;

/// Calls this with the pointer to an event of the engine's.
pub(super) fn with_current(instance: &EventInstance, call: impl FnOnce(InstancePointer)) {
    // A signal handler may have come within another callback.
    let before = CURRENT.replace(instance);
    call(InstancePointer(std::ptr::from_ref(instance).cast()));
    CURRENT.set(before);
}

/// Calls this with the pointer to an event of the matching's, where it happens.
#[inline(always)]
pub(super) fn with_matching(instance: &MatchingInstance, call: impl FnOnce(InstancePointer)) {
    let pointer = std::ptr::from_ref(instance).cast::<c_void>().map_addr(|at| at | OF_MATCHING);
    OF_MATCHING_NOW.store(pointer.addr(), Ordering::Relaxed);
    events::call(|| call(InstancePointer(pointer)));
}

impl InstancePointer {
    /// The event of the matching's, if it is one.
    ///
    /// # Errors
    /// This thread does not run the callback that the event was given to.
    #[inline]
    fn matching(&self) -> Result<Option<&MatchingInstance>, Code> {
        if self.0.addr() & OF_MATCHING == 0 {
            return Ok(None);
        }
        if !events::is_within() || OF_MATCHING_NOW.load(Ordering::Relaxed) != self.0.addr() {
            return Err(Code::InvalidHandle);
        }
        // SAFETY: made by `with_matching`, within which this thread is; only changed inside cells, by this thread.
        Ok(Some(unsafe { &*self.0.map_addr(|at| at & !OF_MATCHING).cast::<MatchingInstance>() }))
    }

    /// What `read` makes of the event, whose timestamp is another's matter.
    ///
    /// # Errors
    /// This thread does not run the callback that the event was given to.
    #[inline]
    pub(crate) fn read<R>(self, read: impl FnOnce(&EventInstance) -> Result<R, Code>) -> Result<R, Code> {
        if let Some(matching) = self.matching()? {
            return read(matching.event());
        }
        if self.0.is_null() || CURRENT.get().cast() != self.0 {
            return Err(Code::InvalidHandle);
        }
        // SAFETY: the instance outlives the callback, which this thread is in, and is not written meanwhile.
        read(unsafe { &*self.0.cast::<EventInstance>() })
    }

    /// When it happened, in ticks of its source.
    ///
    /// # Errors
    /// As for [`Self::read`].
    #[inline]
    pub(crate) fn timestamp(self) -> Result<u64, Code> {
        if let Some(matching) = self.matching()? {
            return Ok(matching.timestamp());
        }
        self.read(|instance| Ok(instance.timestamp))
    }

    /// Whose it is.
    ///
    /// # Errors
    /// As for [`Self::read`].
    #[inline]
    pub(crate) fn source(self) -> Result<SourceId, Code> {
        self.read(|instance| Ok(instance.source))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The callbacks, which put an event as a record into its thread's ring. Called by ibex, and by `calls.rs`; registered
//! by `listening.rs`. Grade: hot, safe in a signal handler, where an event may be lost: no lock, no allocation, one
//! system call for a thread's first event. Threads: any; they share only the counts of losses. Tests: tests/.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use ibex_trace::{Layout, MOST_ELEMENTS, MOST_SOURCES, Room};

use crate::catalogue::{EventType, Place, WORDS};
use crate::exchange::HIDDEN;
use crate::mpi;
use crate::rings::{Ring, Rings};

/// Layout of a type's events, and their losses. Argument of the type's callbacks (L1).
pub(crate) struct Target {
    layout: Layout,
    places: [Place; MOST_ELEMENTS],
    /// Position of the element with the communicator's context; `None` if the type has none.
    context: Option<Place>,
    rings: &'static Rings,
    lost: AtomicU64,
    /// Number of lost events that ibex has reported as dropped.
    dropped: AtomicU64,
}

impl Target {
    /// Makes the target of the type with this number in the log or the trace.
    pub(crate) fn new(number: u8, of: &EventType, rings: &'static Rings) -> Target {
        let (recorded, places) = (of.recorded(), of.places());
        let context = recorded.element("context").map(|element| places[element]);
        let (lost, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Target { layout: Layout::new(number, &recorded), places, context, rings, lost, dropped }
    }

    /// Puts an event into the thread's ring, or counts it as lost.
    #[inline]
    pub(crate) fn put(&self, source: c_int, ticks: i64, value: impl Fn(usize) -> u64) {
        let put = |ring: &Ring| {
            let pack = |room: &mut Room| self.layout.pack_into(source as u8, ticks.cast_unsigned(), value, room);
            // SAFETY: `mine` gave the ring, so this thread owns it.
            unsafe { ring.put(pack) }
        };
        if source as usize >= MOST_SOURCES || !self.rings.mine().is_some_and(put) {
            self.lose(1);
        }
    }

    pub(crate) fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Puts an event into the thread's ring, unless it belongs to the recorder's own communicator.
pub(crate) unsafe extern "C" fn on_event(
    instance: mpi::MPI_T_event_instance,
    _: mpi::MPI_T_event_registration,
    _: mpi::Safety,
    user: *mut c_void,
) {
    // SAFETY: L1: a target that is never freed.
    let target = unsafe { &*user.cast::<Target>() };
    let mut data = [0; WORDS];
    // SAFETY: L2: the instance is this callback's, and only types whose data fit have a registration.
    let (source, ticks) = unsafe { mpi::read_event(instance, &mut data) };
    if !target.context.is_some_and(|context| HIDDEN.hides(context.value(&data))) {
        target.put(source, ticks, |element| target.places[element].value(&data));
    }
}

/// Counts events that ibex has dropped, which are lost, too.
pub(crate) unsafe extern "C" fn on_dropped(
    count: mpi::Count,
    _: mpi::MPI_T_event_registration,
    _source: c_int,
    _: mpi::Safety,
    user: *mut c_void,
) {
    // SAFETY: L1: a target that is never freed.
    let target = unsafe { &*user.cast::<Target>() };
    target.dropped.fetch_add(count.cast_unsigned(), Ordering::Relaxed);
    target.lose(count.cast_unsigned());
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts an event as a record into its thread's ring.
//!
//! Called by `recording.rs` (callbacks) and `calls.rs`. Grade: hot, safe in a signal handler, where an event may be
//! lost; the counts of losses are the only memory that two threads write to. Threads: any. Tests: tests/trace.rs.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use ibex_trace::{Layout, MOST_ELEMENTS, MOST_SOURCES, Room};

use crate::catalogue::{EventType, Place, WORDS};
use crate::rings::{Ring, Rings};

/// Layout of a type's events, and their losses.
pub(crate) struct Target {
    layout: Layout,
    places: [Place; MOST_ELEMENTS],
    /// Position of the element with the communicator's context.
    context: Option<Place>,
    rings: &'static Rings,
    lost: AtomicU64,
    /// Number of lost events that ibex has reported as dropped.
    dropped: AtomicU64,
}

impl Target {
    /// Makes the target of the type with this number in the trace.
    pub(crate) fn new(number: u8, of: &EventType, rings: &'static Rings) -> Target {
        let (layout, places) = (Layout::new(number, &of.recorded()), of.places());
        let context = of.element("context").map(|element| places[element]);
        Target { layout, places, context, rings, lost: AtomicU64::new(0), dropped: AtomicU64::new(0) }
    }

    /// Returns the context of an event's communicator; `None` if the type has none.
    #[inline]
    pub(crate) fn context(&self, data: &[u64; WORDS]) -> Option<u64> {
        self.context.map(|context| context.value(data))
    }

    /// Returns a function of the values of the elements in an event's data.
    #[inline]
    pub(crate) fn values<'a>(&'a self, data: &'a [u64; WORDS]) -> impl Fn(usize) -> u64 + 'a {
        |element| self.places[element].value(data)
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

    /// Counts events that ibex has dropped, which are lost, too.
    pub(crate) fn never_came(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        self.lose(count);
    }

    /// Returns the number of events that ibex has dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

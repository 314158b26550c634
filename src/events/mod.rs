// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event engine: delivers ibex's events to tools. It knows no MPI; PERUSE and `MPI_T` are translations of it.
//!
//! A *type* (`types/`) has typed elements; an event is an [`EventInstance`] of fixed size. A *source* (`sources/`) is
//! one control flow with one clock: a thread with the host's ([`HostClock`]), or a port with the adapter's. A
//! *registration* (`registrations/`) gets the events of one type by up to four callbacks, one per level ([`Safety`]).
//!
//! A *site* is a place in ibex that may raise an event. It tests one word (`interest_mask.rs`). If a tool listens, ibex
//! stamps the event (`raise.rs`) and delivers it (`delivery/`): for each registration it calls the callback or buffers
//! the event. No lock is held while a callback runs, so it may register, free (itself too), read, or raise; ibex
//! delivers the events that it raises after it, in order. [`stage`] raises where ibex holds a lock; [`progress`]
//! delivers such events, as do [`deliver_pending`] and [`flush()`] in a tool's own call. The PML raises the matching
//! events (`types/matching_table.rs`) without these steps (`delivery/direct.rs`).
//!
//! Grade: each file's; nothing registered: one load, one branch. Threads: any. Paths in the folders' comments begin at
//! their own folder or here. Tests: `tests/`, models under loom.

mod delivery;
mod interest_mask;
pub mod members;
#[cfg(all(test, loom))]
#[path = "tests/models.rs"]
mod models;
mod raise;
mod registrations;
mod sources;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod types;

pub use delivery::deliver::{
    begin_batch, catch_up, catch_up_all, deliver, deliver_due, deliver_pending, end_batch, flush, progress,
    wait_for_callbacks,
};
pub use delivery::direct::{
    call, count_further_delivery, has_threads, is_within, keep, keep_quickly, raising_threads, set_threads, stamp,
    stamp_by_counter,
};
pub use delivery::thread::{is_delivering, this_thread};
pub(crate) use interest_mask::ordered_interest;
pub use interest_mask::{InterestMask, has_interest, interest, is_idle, is_nearly_full};
pub use raise::{EventGroup, raise, stage};
pub use registrations::free::{free, free_by_tool};
pub use registrations::registration::{Callback, DroppedCallback, FreeCallback, Options, Registration, RegistrationId};
pub use registrations::registry::{AlreadyFreed, all, find, register, set_active, set_callback, set_dropped};
pub use sources::clock::{HostClock, HostTimestamp, host_timestamp};
pub use sources::clock_correlation::{ClockSample, ConvertedTimestamp};
pub use sources::port_source::{PolledBatch, PortClock, ReadClock};
pub use sources::source::{
    Counts, SOURCES, SourceId, SourceInfo, count as source_count, counts, info as source_info, matching_source,
    open_unstamped_port, timestamp,
};
use sources::{port_source, source};
pub use types::event_type::{Element, ElementType, EventType, Safety, StampedBy, TypeId, Value, WORDS, Words};
pub use types::instance::EventInstance;
pub use types::matching_table::{MATCHING_TYPES, MatchingEvent, PROTOCOL, ProtocolEvent};
pub use types::page::markdown;
pub use types::table::*;

/// Finds a type by its name without the prefix `ibex_`.
pub fn type_named(name: &str) -> Option<TypeId> {
    TypeId::from_index(TABLE.iter().position(|row| row.name == name)?)
}

/// Opens the source of a port whose adapter stamps completions; a reopened port gets its former source. `None` if there
/// are too many: the caller then raises the port's events on the host's clock. Setup.
#[must_use]
pub fn open_port(clock: PortClock) -> Option<SourceId> {
    let source = source::open(Box::new(port_source::PortSource::new(clock)))?;
    if source.source().port().is_some_and(port_source::PortSource::is_short) {
        port_source::track_clock(source);
    }
    Some(source)
}

/// Closes a port: delivers the events that its source holds, and reads its clock no more. Not within a callback.
pub fn close_port(source: SourceId, safety: Safety) {
    delivery::deliver::deliver_port_all(source, safety);
    if let Some(port) = source.source().port() {
        port_source::untrack_clock(source);
        port.close();
    }
}

/// Converts a source's `ticks` to the host's clock ([`HostClock`]), with an error bound; `None` if too little is known.
pub fn to_host(source: SourceId, ticks: u64) -> Option<ConvertedTimestamp> {
    match source.source().port() {
        Some(port) => port.to_host(ticks),
        None => Some(ConvertedTimestamp { ticks, error: 0 }),
    }
}

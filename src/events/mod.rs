// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event engine: what happens in ibex, shown to tools as it happens. Knows no MPI; PERUSE and `MPI_T` are translations of it.
//!
//! - A *type* ([`TABLE`]) has typed elements; an event is a [`Record`] of fixed size. A *source* is one control flow with one clock:
//!   a thread's ([`HostClock`]), or a port's (the adapter's ticks). Ordered means delivered by timestamp, always (`order.rs`).
//! - A *registration* ([`Handle`]) gets the events of one type by callbacks of up to four levels ([`Safety`]), or by a buffer.
//! - A *site* looks at one word ([`is_any_active`], [`active`]; progress at all of it, [`is_quiet`]: `attention.rs`). Behind it: stamp, enter (`presence.rs`), go through the list (`registry.rs`), call or
//!   buffer (`ring.rs`). No lock is held while a callback runs, so it may register, free (itself, too), read, or raise; what it
//!   raises is delivered after it, in order. [`stage`] is for where ibex holds a lock; [`progress`] delivers,
//!   and [`serve`] and [`flush`] where a tool itself has called.
//! - Loss happens where room is fixed: it is counted per source and per registration, and told.
//!
//! Path: each file says its own; nothing registered: one load, one branch. Threads: any. Tests: `tests/`, models under loom.

mod attention;
mod clock;
mod deliver;
mod fit;
mod flush;
mod handle;
mod order;
mod page;
mod port;
mod presence;
mod raise;
mod record;
mod registry;
mod ring;
mod row;
mod source;
mod sync;
mod table;
#[cfg(test)]
mod tests;
mod thread;
mod unwrap;

pub(crate) use attention::ordered;
pub use attention::{Active, active, as_it_happens, awakenings, is_any_active, is_crowded, is_quiet};
pub use clock::HostClock;
pub use deliver::{catch_up, catch_up_all, deliver, progress, show, shown, taken, wait_for_others};
pub use fit::{Converted, Sample};
pub use flush::{flush, is_delivering, serve};
pub use handle::{Callback, DroppedCallback, FreeCallback, Handle, HandleId, Options};
pub use page::markdown;
pub use port::{AskClock, PortClock, Taken};
pub use raise::{Moment, Together, moment, raise, stage, stage_stamped};
pub use record::{Record, WORDS, Words};
pub use registry::{Freed, all, find, free, register, set_active, set_callback, set_dropped};
pub use row::{Element, EventType, Kind, Safety, Stamp, TypeId, Value};
pub use source::{
    Counts, SOURCES, SourceId, SourceInfo, count as source_count, counts, info as source_info, timestamp,
};
pub use table::*;

/// The type of this name, without the prefix `btl_ibex_`.
#[must_use]
pub fn type_named(name: &str) -> Option<TypeId> {
    TypeId::from_index(TABLE.iter().position(|row| row.name == name)?)
}

/// The source of a port whose adapter stamps completions; the same again for a port that is opened again. `None` where there are too
/// many (its events are then to be raised on the host's clock). Setup.
#[must_use]
pub fn open_port(clock: PortClock) -> Option<SourceId> {
    let source = source::open(Box::new(port::PortSource::new(clock)))?;
    if source.source().port().is_some_and(port::PortSource::is_short) {
        deliver::follow(source);
    }
    Some(source)
}

/// The port is closed: what its source still holds is delivered, and its adapter not asked any more. Not from within a callback.
pub fn close_port(source: SourceId, context: Safety) {
    deliver::pump_all(source, context);
    if let Some(port) = source.source().port() {
        deliver::unfollow(source);
        port.close();
    }
}

/// When, by the host's clock ([`HostClock`]), a source's clock showed `ticks`, and how wrong that may be; `None` where too little is
/// known. Only on demand: no event is converted.
#[must_use]
pub fn to_host(source: SourceId, ticks: u64) -> Option<Converted> {
    match source.source().port() {
        Some(port) => port.to_host(ticks),
        None => Some(Converted { ticks, error: 0 }),
    }
}

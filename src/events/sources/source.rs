// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources of events: one per thread that raises events (the host's clock), one per port (`port_source.rs`). Owns
//! the table of sources, their counts, and the queries of tools ([`SourceInfo`], [`timestamp`]).
//!
//! Numbers are permanent: a thread that ends leaves its source to the next thread, and a reopened port gets its source
//! back. When all numbers for threads are in use, further threads share one source, which is marked as unordered.
//! Grade: hot for counting while a tool listens, else setup. Threads: any. Tests: `tests/threads.rs`.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::clock::HostClock;
use super::port_source::PortSource;

/// Number of sources that there may be.
pub const SOURCES: usize = 64;

/// Number of sources for one thread each.
const THREADS: usize = 40;

/// The number of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceId(pub(in crate::events) u16);

impl SourceId {
    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The source with this number; `None` if there is none yet.
    pub fn from_index(index: usize) -> Option<SourceId> {
        (index < count()).then_some(SourceId(index as u16))
    }

    #[inline]
    pub(in crate::events) fn source(self) -> &'static Source {
        &TABLE[usize::from(self.0) % SOURCES]
    }
}

/// The description of a source for tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// Name, such as `host:0` or `mlx5_0:1`.
    pub name: String,
    /// The events that it has, and the clock that stamps them.
    pub description: String,
    /// Whether its events are delivered in the order of their timestamps, always.
    pub ordered: bool,
    /// Rate of its clock.
    pub ticks_per_second: u64,
    /// Greatest timestamp that it can have.
    pub max_ticks: u64,
}

/// Counts of a source's events. ibex raises no event that no registration wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events raised.
    pub raised: u64,
    /// Callbacks run: one per event and registration.
    pub delivered: u64,
    /// Events put into a registration's buffer, to be delivered later.
    pub buffered: u64,
    /// Events that a registration lost: its buffer was full, or none of its callbacks was fit for the place.
    pub dropped: u64,
    /// Events that came after a later event of an ordered source had been delivered; no registration gets them.
    pub late: u64,
}

pub(super) enum SourceKind {
    Thread,
    Shared,
    /// Events of the matching, which one thread at a time raises (`delivery/direct.rs`).
    Matching,
    Port(Box<PortSource>),
    /// No events: name and GID of a port whose adapter does not stamp completions.
    Unstamped(String, Mutex<Ipv6Addr>),
}

impl SourceKind {
    const fn is_of_port(&self) -> bool {
        matches!(self, SourceKind::Port(_) | SourceKind::Unstamped(..))
    }
}

pub(in crate::events) struct Source {
    kind: OnceLock<SourceKind>,
    assigned: AtomicBool,
    /// Last timestamp of the thread that owned it; the next owner continues from there.
    last: AtomicU64,
    // Written by the one control flow that is delivering, without a locked instruction.
    pub(in crate::events) raised: AtomicU64,
    pub(in crate::events) delivered: AtomicU64,
    pub(in crate::events) buffered: AtomicU64,
    pub(in crate::events) dropped: AtomicU64,
    // Written by any thread.
    late: AtomicU64,
    delivered_later: AtomicU64,
    dropped_later: AtomicU64,
}

static TABLE: [Source; SOURCES] = [const { Source::new() }; SOURCES];
/// Counts of matching events: callbacks called in place, those of them for a further listener, events buffered or lost.
pub(in crate::events) static MATCHING: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

static COUNT: AtomicUsize = AtomicUsize::new(0);
static TABLE_LOCK: Mutex<()> = Mutex::new(());

impl Source {
    const fn new() -> Source {
        Source {
            kind: OnceLock::new(),
            assigned: AtomicBool::new(false),
            last: AtomicU64::new(0),
            raised: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            buffered: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            late: AtomicU64::new(0),
            delivered_later: AtomicU64::new(0),
            dropped_later: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(in crate::events) fn port(&self) -> Option<&PortSource> {
        match self.kind.get() {
            Some(SourceKind::Port(port)) => Some(port),
            _ => None,
        }
    }

    /// Increments a count from the source's own control flow; the shared source has several.
    #[inline]
    pub(in crate::events) fn count(&self, count: &AtomicU64) {
        if matches!(self.kind.get(), Some(SourceKind::Shared)) {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(in crate::events) fn count_raised_by_any(&self, events: u64) {
        self.raised.fetch_add(events, Ordering::Relaxed);
    }

    #[cold]
    pub(in crate::events) fn count_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts events dropped by another control flow than the source's own.
    #[cold]
    pub(in crate::events) fn count_dropped_later(&self, events: u64) {
        self.dropped_later.fetch_add(events, Ordering::Relaxed);
    }
}

/// Counts deliveries from buffers: adds up a run of one source at a time, and stores the last run when it is dropped.
pub(in crate::events) struct BufferedDeliveries {
    source: SourceId,
    events: u64,
}

impl BufferedDeliveries {
    pub(in crate::events) fn new() -> BufferedDeliveries {
        BufferedDeliveries { source: SourceId(0), events: 0 }
    }

    #[inline]
    pub(in crate::events) fn count(&mut self, source: SourceId) {
        if source != self.source {
            self.store();
            self.source = source;
        }
        self.events += 1;
    }

    fn store(&mut self) {
        self.source.source().delivered_later.fetch_add(std::mem::take(&mut self.events), Ordering::Relaxed);
    }
}

impl Drop for BufferedDeliveries {
    fn drop(&mut self) {
        self.store();
    }
}

/// Number of sources; it only grows. There is always at least one, a thread's.
pub fn count() -> usize {
    COUNT.load(Ordering::Acquire).max(1)
}

/// The counts of a source so far.
pub fn counts(source: SourceId) -> Counts {
    let source = source.source();
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let is_of_matching = matches!(source.kind.get(), Some(SourceKind::Matching));
    let [called, again, kept] = if is_of_matching { MATCHING.each_ref().map(of) } else { [0; 3] };
    // Other threads may raise the counts between these loads, so the difference saturates.
    let (raised, delivered) = ((called + kept).saturating_sub(again), called);
    let dropped = of(&source.dropped);
    Counts {
        raised: of(&source.raised) + raised,
        delivered: of(&source.delivered) + of(&source.delivered_later) + delivered,
        buffered: of(&source.buffered) + kept.saturating_sub(dropped),
        dropped: dropped + of(&source.dropped_later),
        late: of(&source.late),
    }
}

/// Describes a source.
pub fn info(source: SourceId) -> SourceInfo {
    let clock = HostClock::get();
    let host = |name: String, description: String, ordered| SourceInfo {
        name,
        description: format!("{description}; stamped with {}", clock.description()),
        ordered,
        ticks_per_second: clock.ticks_per_second(),
        max_ticks: u64::MAX >> 1,
    };
    match source.source().kind.get() {
        Some(SourceKind::Port(port)) => port.info(),
        Some(SourceKind::Unstamped(name, gid)) => {
            let gid = *gid.lock().unwrap_or_else(PoisonError::into_inner);
            let whose = "nothing: the adapter of this port does not stamp completions, so the threads have its events";
            let about = host(name.clone(), whose.into(), true);
            SourceInfo { description: format!("{}, GID {gid}", about.description), ..about }
        }
        Some(SourceKind::Shared) => {
            host("host:shared".into(), "events of threads that have no source of their own".into(), false)
        }
        Some(SourceKind::Matching) => {
            let whose = "events of requests, messages and searches, of one thread at a time";
            host("host:matching".into(), whose.into(), true)
        }
        Some(SourceKind::Thread) | None => {
            let whose = "events of one thread at a time; a thread that ends leaves the source to the next one";
            host(format!("host:{}", source.0), whose.into(), true)
        }
    }
}

/// Returns a source's present time, in its ticks; `None` if a port's clock can neither be read nor estimated. Setup.
pub fn timestamp(source: SourceId) -> Option<u64> {
    match source.source().port() {
        Some(port) => port.timestamp(),
        None => Some(HostClock::get().now()),
    }
}

fn known() -> &'static [Source] {
    &TABLE[..COUNT.load(Ordering::Acquire)]
}

/// Assigns a source to a thread. Returns it, and the timestamp after which it continues. Setup.
pub(in crate::events) fn assign_to_thread() -> (SourceId, u64) {
    let _table = lock_table();
    let is_thread = |source: &Source| matches!(source.kind.get(), Some(SourceKind::Thread));
    for (index, source) in known().iter().enumerate() {
        if is_thread(source) && !source.assigned.swap(true, Ordering::Acquire) {
            return (SourceId(index as u16), source.last.load(Ordering::Relaxed));
        }
    }
    let threads = known().iter().filter(|source| is_thread(source)).count();
    if threads < THREADS
        && let Some(id) = add(SourceKind::Thread)
    {
        id.source().assigned.store(true, Ordering::Relaxed);
        return (id, 0);
    }
    let shared = (0..count()).map(|index| SourceId(index as u16)).find(|id| is_shared(*id));
    // `add_port` leaves room for the shared source.
    (shared.or_else(|| add(SourceKind::Shared)).unwrap_or(SourceId(0)), 0)
}

pub(in crate::events) fn release(id: SourceId, last: u64) {
    let source = id.source();
    source.last.store(last, Ordering::Relaxed);
    source.assigned.store(false, Ordering::Release);
}

pub(in crate::events) fn is_shared(id: SourceId) -> bool {
    matches!(id.source().kind.get(), Some(SourceKind::Shared))
}

/// Opens the source of a port: a new one, or the former one of the same port; `None` if there are too many. Setup.
pub(in crate::events) fn open(port: Box<PortSource>) -> Option<SourceId> {
    let _table = lock_table();
    for (index, source) in known().iter().enumerate() {
        if let Some(old) = source.port()
            && old.is_same_as(&port)
        {
            old.reopen(*port);
            return Some(SourceId(index as u16));
        }
    }
    add_port(SourceKind::Port(port))
}

/// Like [`crate::events::open_port`], for an adapter that does not stamp completions: the source has no events. Setup.
pub fn open_unstamped_port(name: &str, of: [u8; 16]) {
    let _table = lock_table();
    for source in known() {
        if let Some(SourceKind::Unstamped(known, gid)) = source.kind.get()
            && known == name
        {
            *gid.lock().unwrap_or_else(PoisonError::into_inner) = of.into();
            return;
        }
    }
    let _ = add_port(SourceKind::Unstamped(name.to_owned(), Mutex::new(of.into())));
}

fn lock_table() -> MutexGuard<'static, ()> {
    TABLE_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called with the table locked.
fn add_port(kind: SourceKind) -> Option<SourceId> {
    let is_of_port = |source: &&Source| source.kind.get().is_some_and(SourceKind::is_of_port);
    if known().iter().filter(is_of_port).count() < SOURCES - THREADS - 2 { add(kind) } else { None }
}

/// The source of the matching events.
pub fn matching_source() -> SourceId {
    static MADE: OnceLock<SourceId> = OnceLock::new();
    *MADE.get_or_init(|| {
        let _table = lock_table();
        // `add_port` and the limit of thread sources leave room for it.
        add(SourceKind::Matching).unwrap_or(SourceId(0))
    })
}

/// Adds a source; the caller has locked the table. Source 0 is always a thread's, because tools may ask about it before
/// any thread has raised an event.
fn add(kind: SourceKind) -> Option<SourceId> {
    if known().is_empty() && !matches!(kind, SourceKind::Thread) {
        add(SourceKind::Thread);
    }
    let index = known().len();
    let source = TABLE.get(index)?;
    source.kind.set(kind).ok()?;
    COUNT.store(index + 1, Ordering::Release);
    Some(SourceId(index as u16))
}

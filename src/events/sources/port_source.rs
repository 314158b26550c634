// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of a port whose adapter stamps completions. Extends each completion's timestamp beyond the adapter's mask
//! (`unwrap.rs`), holds its event until it is due (`reorder_buffer.rs`), and delivers due events in one thread at a
//! time ([`PortSource::deliver`]). An event is due once the events of all completions polled with or before it are
//! raised: a thread that may be overtaken by another one, or by itself, opens a batch when it polls
//! ([`PortSource::begin_batch`]). Also correlates the adapter's clock with the host's
//! (`clock_correlation.rs`). Timestamps are never converted.
//!
//! Grade: hot for [`PortSource::submit`] while a tool listens; its lock is never held while a callback runs. Threads:
//! any. Units: the adapter's ticks. Tests: `tests/sources/ports.rs`.

use std::net::Ipv6Addr;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, MutexGuard};

use super::clock::HostClock;
use super::clock_correlation::{ClockCorrelation, ClockSample, ConvertedTimestamp};
use super::reorder_buffer::{Limits, Refused, ReorderBuffer};
use super::source::{SourceId, SourceInfo};
use super::unwrap::Unwrap;
use crate::events::EventInstance;
use crate::events::interest_mask::{self, CLOCKS};
use crate::events::sync::{AtomicBool, Ordering};

/// The events of a group that were not taken, a bit each.
#[derive(Clone, Copy, Default)]
pub(in crate::events) struct Refusals {
    /// Those that would go back in time.
    pub(in crate::events) late: u8,
    /// Those for which there was no room.
    pub(in crate::events) full: u8,
}

/// The events to deliver: those due at a time of the host, after so many calls of progress; `None`: all.
type Due = Option<(u64, usize)>;

/// Reads the adapter's clock: raw ticks, or `None` if it cannot be read.
pub type ReadClock = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// A port's clock.
pub struct PortClock {
    /// Device and port, as `mlx5_0:1`.
    pub name: String,
    /// The GID in use, in network order.
    pub gid: [u8; 16],
    /// Rate of the adapter's core clock.
    pub ticks_per_second: u64,
    /// Number of bits of a stamp, which wraps after 2^`bits` ticks.
    pub bits: u32,
    /// Number of events that can be held back.
    pub room: usize,
    /// Reads the adapter's clock, if it can be read: called from any thread until [`crate::events::close_port`].
    pub read_clock: Option<ReadClock>,
}

/// Host time between two samples of the relation of the clocks.
const SPACING_NS: u64 = 100_000_000;

/// Longest time for which events wait for an open batch, whose thread may be preempted, nanoseconds.
pub(in crate::events) const LONGEST_BATCH_NS: u64 = 10_000_000;

/// Longest delay with which an adapter is expected to write a timestamp after a later one, nanoseconds.
const LONGEST_LAG_NS: u64 = 50_000;

/// Every poll samples a clock with a shorter period; the others need a sample only now and then.
const SHORT_PERIOD_SECONDS: u64 = 3600;

pub(in crate::events) struct PortSource {
    name: String,
    ticks_per_second: u64,
    bits: u32,
    guarded: Mutex<Guarded>,
    delivering: AtomicBool,
}

/// Completions that a thread has polled and whose events it has yet to raise. The number is the host's time just after
/// the poll, and greater than that of every batch before.
#[derive(Debug)]
#[must_use = "to be given back once all events are raised"]
pub struct PolledBatch(u64);

const OPEN_BATCHES: usize = 128;

struct Guarded {
    gid: Ipv6Addr,
    unwrap: Unwrap,
    reorder: ReorderBuffer,
    correlation: ClockCorrelation,
    read_clock: Option<ReadClock>,
    /// Times at which the open batches began, oldest first.
    open_batches: Vec<u64>,
    /// Time at which the last batch began, open or not.
    last_batch: u64,
}

impl PortSource {
    pub(in crate::events) fn new(clock: PortClock) -> PortSource {
        let host = HostClock::get();
        let rate = clock.ticks_per_second.max(1) as f64 / host.ticks_per_second() as f64;
        let lag = host.ticks(LONGEST_LAG_NS);
        let batch = host.ticks(LONGEST_BATCH_NS);
        let reorder = ReorderBuffer::new(Limits { room: clock.room, batch, lag: ((lag as f64 * rate) as u64, lag) });
        let guarded = Guarded {
            gid: clock.gid.into(),
            unwrap: Unwrap::new(clock.bits, rate),
            reorder,
            correlation: ClockCorrelation::new(1.0 / rate, host.ticks(SPACING_NS)),
            read_clock: clock.read_clock,
            open_batches: Vec::with_capacity(OPEN_BATCHES),
            last_batch: 0,
        };
        let source = PortSource {
            name: clock.name,
            ticks_per_second: clock.ticks_per_second.max(1),
            bits: clock.bits,
            guarded: Mutex::new(guarded),
            delivering: AtomicBool::new(false),
        };
        // From here on the number of wraps of the clock is known.
        source.locked().sample();
        source
    }

    /// Whether the clock wraps so fast that it must be sampled often.
    pub(in crate::events) fn is_short(&self) -> bool {
        u64::MAX.checked_shr(64 - self.bits).is_some_and(|mask| mask / self.ticks_per_second < SHORT_PERIOD_SECONDS)
    }

    pub(super) fn is_same_as(&self, other: &PortSource) -> bool {
        self.name == other.name && self.ticks_per_second == other.ticks_per_second && self.bits == other.bits
    }

    /// Reopens the port's source: its clock can be read again, and timestamps continue.
    pub(super) fn reopen(&self, again: PortSource) {
        let Guarded { gid, read_clock, .. } = again.guarded.into_inner();
        let mut guarded = self.locked();
        (guarded.gid, guarded.read_clock) = (gid, read_clock);
        guarded.sample();
    }

    /// Stops reading the adapter's clock, because the port is closed.
    pub(in crate::events) fn close(&self) {
        let read_clock = self.locked().read_clock.take();
        drop(read_clock);
    }

    #[inline]
    fn locked(&self) -> MutexGuard<'_, Guarded> {
        self.guarded.lock()
    }

    pub(super) fn info(&self) -> SourceInfo {
        SourceInfo {
            name: self.name.clone(),
            description: format!(
                "completions of port {}, stamped by the adapter's clock ({} bits, carried past their end), GID {}",
                self.name,
                self.bits,
                self.locked().gid
            ),
            ordered: true,
            ticks_per_second: self.ticks_per_second,
            max_ticks: u64::MAX >> 1,
        }
    }

    /// Takes events of this source, `id`, stamped `raw`, polled in an open batch, or just now where nobody can poll or
    /// deliver before they are submitted. Returns the events that it could not hold, and whether it holds so many that
    /// they should be delivered soon. Returns `None`, and holds no event, if their time is unknown.
    #[inline]
    pub(in crate::events) fn submit(
        &self,
        instances: &mut [EventInstance],
        (id, raw): (SourceId, u64),
    ) -> Option<(Refusals, bool)> {
        let mut guarded = self.locked();
        let guarded = &mut *guarded;
        // Their own batch, or a later one of another thread.
        let mut since = if guarded.open_batches.is_empty() { 0 } else { guarded.last_batch };
        let mut ticks = guarded.unwrap.masked(raw);
        if guarded.needs_time() {
            (since, ticks) = guarded.placed(raw, since)?;
        }
        let mut refusals = Refusals::default();
        for (index, instance) in instances.iter_mut().enumerate() {
            (instance.source, instance.timestamp) = (id, ticks);
            match guarded.reorder.hold(instance, since) {
                Ok(()) => {}
                Err(Refused::Late) => refusals.late |= 1 << index,
                Err(Refused::Full) => refusals.full |= 1 << index,
            }
        }
        Some((refusals, guarded.reorder.is_quarter_full()))
    }

    /// Begins a batch: a thread has polled completions, and submits their events until [`PortSource::end_batch`].
    #[inline]
    pub(in crate::events) fn begin_batch(&self) -> PolledBatch {
        let mut guarded = self.locked();
        let host = HostClock::get().now().max(guarded.last_batch + 1);
        guarded.last_batch = host;
        guarded.open_batches.push(host);
        PolledBatch(host)
    }

    /// Ends a [batch](PortSource::begin_batch): all its events are submitted. So no event can still come that is
    /// earlier than one submitted before the oldest open batch began.
    #[inline]
    pub(in crate::events) fn end_batch(&self, PolledBatch(since): PolledBatch) {
        let mut guarded = self.locked();
        if let Some(place) = guarded.open_batches.iter().position(|taken| *taken == since) {
            guarded.open_batches.remove(place);
        }
    }

    pub(in crate::events) fn holds_events(&self) -> bool {
        self.locked().reorder.len() > 0
    }

    pub(in crate::events) fn is_delivered(&self) -> bool {
        self.delivering.load(Ordering::SeqCst)
    }

    /// Passes events to `deliver`, unless another thread is doing so. Returns whether events are still held. No lock is
    /// held while `deliver` runs. Each call with a time keeps the relation of the clocks fresh.
    pub(in crate::events) fn deliver(&self, due: Due, mut deliver: impl FnMut(&EventInstance)) -> bool {
        if self.delivering.swap(true, Ordering::SeqCst) {
            return self.locked().reorder.len() > 0;
        }
        let _delivering = Delivering(&self.delivering);
        let mut guarded = self.locked();
        guarded.prepare(due);
        while let Some(instance) = guarded.pop(due) {
            let is_last = !guarded.has_due(due);
            let holds_more = guarded.reorder.len() > 0;
            drop(guarded);
            deliver(&instance);
            if is_last {
                return holds_more;
            }
            guarded = self.locked();
        }
        guarded.reorder.len() > 0
    }

    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut guarded = self.locked();
        if let Some(ticks) = guarded.sample() {
            return Some(ticks);
        }
        guarded.correlation.to_adapter(HostClock::get().now()).map(|now| now.ticks)
    }

    pub(in crate::events) fn to_host(&self, ticks: u64) -> Option<ConvertedTimestamp> {
        self.locked().correlation.to_host(ticks)
    }
}

impl Guarded {
    /// Whether the place of an event depends on the time at which it is submitted.
    #[inline]
    fn needs_time(&self) -> bool {
        self.unwrap.wraps() || self.reorder.holds_by_time()
    }

    /// The time to hold an event since (`since` if that is not 0), and the ticks of its stamp, read now; `None` if
    /// these are unknown.
    #[inline(never)]
    fn placed(&mut self, raw: u64, since: u64) -> Option<(u64, u64)> {
        let since = if since == 0 { HostClock::get().now() } else { since };
        if self.unwrap.is_stale(since) {
            let _ = self.sample();
        }
        Some((since, self.unwrap.unwrap(raw, since)?))
    }

    /// Prepares a delivery: samples the clocks if that is due, and notes which events are complete.
    #[inline(always)]
    fn prepare(&mut self, due: Due) {
        if let Some((host, calls)) = due {
            self.unwrap.progressed(host, calls);
            if self.correlation.wants(host) {
                let _ = self.sample();
            }
        }
        self.reorder.note_complete(self.open_batches.first().copied());
    }

    #[inline]
    fn has_due(&self, due: Due) -> bool {
        match due {
            Some((host, _)) => self.reorder.is_due(host, self.open_batches.first().copied()),
            None => self.reorder.len() > 0,
        }
    }

    #[inline]
    fn pop(&mut self, due: Due) -> Option<EventInstance> {
        match due {
            Some((host, _)) => self.reorder.pop_due(host, self.open_batches.first().copied()),
            None => self.reorder.pop_earliest(),
        }
    }

    fn sample(&mut self) -> Option<u64> {
        let clock = HostClock::get();
        let before = clock.now();
        let raw = self.read_clock.as_ref()?()?;
        let after = clock.now();
        let ticks = self.unwrap.observe(raw, after, after - before);
        self.correlation.add(ClockSample { before, ticks, after });
        Some(ticks)
    }
}

/// The right to deliver; a panic in a callback gives it back, too.
struct Delivering<'a>(&'a AtomicBool);

impl Drop for Delivering<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// The ports' sources whose adapter's clock wraps so fast that it is sampled at every poll while a tool listens, a bit
/// each. While there are such a port and such a tool, the bit [`CLOCKS`] of the interest mask is set.
static TRACKED: AtomicU64 = AtomicU64::new(0);

pub(in crate::events) fn track_clock(source: SourceId) {
    TRACKED.fetch_or(1 << source.index(), Ordering::SeqCst);
    tool_listens();
}

pub(in crate::events) fn untrack_clock(source: SourceId) {
    TRACKED.fetch_and(!(1 << source.index()), Ordering::SeqCst);
}

pub(in crate::events) fn tool_listens() {
    if TRACKED.load(Ordering::SeqCst) != 0 {
        interest_mask::set_pending(CLOCKS);
    }
}

/// The ports whose clocks are to be sampled now, a bit each. Clears [`CLOCKS`] if there is none, or no tool listens.
#[inline]
pub(in crate::events) fn tracked_clocks() -> u64 {
    let tracked = TRACKED.load(Ordering::SeqCst);
    if interest_mask::is_pending(CLOCKS) && (tracked == 0 || !interest_mask::has_interest()) {
        no_tool_listens();
    }
    tracked
}

/// Clears [`CLOCKS`], unless a tool has just begun to listen.
#[cold]
fn no_tool_listens() {
    interest_mask::clear_pending(CLOCKS);
    if interest_mask::has_interest() {
        tool_listens();
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of a port whose adapter stamps completions: raw ticks come in, ordered events go out.
//!
//! A completion's stamp is carried past the adapter's mask (`unwrap.rs`), its event held until its turn (`order.rs`) and then
//! delivered by one thread at a time: whoever calls [`PortSource::pump`] first; the others leave theirs to it. Its turn has come once
//! nobody has completions in hand of which events are yet to come ([`PortSource::taken`]). Also keeps the
//! relation of the adapter's clock to the host's (`fit.rs`). A timestamp is never converted on the way.
//!
//! Path: [`PortSource::submit`] hot, behind the branch of a site: a lock that is never held while a callback runs. Threads: any.
//! Units: the adapter's ticks. Tests: `tests/ports.rs`.

use std::sync::Mutex;

use arrayvec::ArrayVec;

use super::clock::HostClock;
use super::fit::{Converted, Fit, Sample};
use super::order::{Order, Refused};
use super::raise::MOST;
use super::record::Record;
use super::source::SourceInfo;
use super::sync::{AtomicBool, Ordering};
use super::unwrap::Unwrap;

/// The places of events that were refused.
type Refusals = ArrayVec<(usize, Refused), MOST>;

/// Asks the adapter what its clock shows: raw ticks; `None` where it does not say.
pub type AskClock = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// What a port tells of its clock when it is opened.
pub struct PortClock {
    /// Device and port, as `mlx5_0:1`.
    pub name: String,
    /// The rate of the adapter's core clock.
    pub ticks_per_second: u64,
    /// How many bits of a stamp count; it wraps after 2 to the power of these.
    pub bits: u32,
    /// For how long an event may be held back so that earlier ones get before it, nanoseconds.
    pub window: u64,
    /// How many events may be held back.
    pub room: usize,
    /// Asks the adapter, where it can be asked. May be called from any thread until [`super::close_port`].
    pub ask: Option<AskClock>,
}

/// Host time between two samples of the relation of the clocks.
const SPACING_NS: u64 = 100_000_000;

/// A clock whose period is shorter is followed at every poll; others go round so seldom that a look now and then will do.
const SHORT_PERIOD_SECONDS: u64 = 3600;

pub(super) struct PortSource {
    name: String,
    ticks_per_second: u64,
    bits: u32,
    state: Mutex<State>,
    /// Whether a thread delivers.
    pumping: AtomicBool,
}

/// Completions that were read from a port's queue, of which events are yet to come: since when (host).
#[derive(Debug)]
#[must_use = "to be given back once all events are raised"]
pub struct Taken(u64);

/// For so many there is room from the start.
const IN_HAND: usize = 128;

struct State {
    unwrap: Unwrap,
    order: Order,
    fit: Fit,
    ask: Option<AskClock>,
    /// Of what was taken and is not yet shown, the oldest first.
    in_hand: Vec<u64>,
}

impl PortSource {
    pub(super) fn new(clock: PortClock) -> PortSource {
        let host = HostClock::get();
        let rate = clock.ticks_per_second.max(1) as f64 / host.ticks_per_second() as f64;
        let window = host.ticks(clock.window);
        let order = Order::new(clock.room, ((window as f64 * rate) as u64, window));
        let state = State {
            unwrap: Unwrap::new(clock.bits, rate),
            order,
            fit: Fit::new(1.0 / rate, host.ticks(SPACING_NS)),
            ask: clock.ask,
            in_hand: Vec::with_capacity(IN_HAND),
        };
        let source = PortSource {
            name: clock.name,
            ticks_per_second: clock.ticks_per_second.max(1),
            bits: clock.bits,
            state: Mutex::new(state),
            pumping: AtomicBool::new(false),
        };
        // From here on it is known how often the clock went round.
        source.locked().sample();
        source
    }

    /// Whether the clock goes round so fast that it must be followed.
    pub(super) fn is_short(&self) -> bool {
        u64::MAX.checked_shr(64 - self.bits).is_some_and(|mask| mask / self.ticks_per_second < SHORT_PERIOD_SECONDS)
    }

    /// Whether both are of one port and count alike.
    pub(super) fn is_same_as(&self, other: &PortSource) -> bool {
        self.name == other.name && self.ticks_per_second == other.ticks_per_second && self.bits == other.bits
    }

    /// The port is opened again: its clock can be asked again, and goes on where it was.
    pub(super) fn reopen(&self, again: PortSource) {
        let State { ask, .. } = again.state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut state = self.locked();
        state.ask = ask;
        state.sample();
    }

    /// The port is closed: nobody asks its adapter any more.
    pub(super) fn close(&self) {
        let ask = self.locked().ask.take();
        drop(ask);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn info(&self) -> SourceInfo {
        SourceInfo {
            name: self.name.clone(),
            description: format!(
                "completions of port {}, stamped by the adapter's clock ({} bits, carried past their end)",
                self.name, self.bits
            ),
            ordered: true,
            ticks_per_second: self.ticks_per_second,
            max_ticks: u64::MAX >> 1,
        }
    }

    /// Takes events stamped `raw`, polled just now; `posted` is the host's time before their operation was posted, where that is
    /// known. Returns which of them it could not hold, and whether it holds so many that they should be delivered soon; `None`, and
    /// holds none, where their time is not known.
    #[inline]
    pub(super) fn submit(&self, records: &mut [Record], raw: u64, posted: Option<u64>) -> Option<(Refusals, bool)> {
        let host = HostClock::get().now();
        let mut state = self.locked();
        if state.unwrap.is_stale(host) {
            let _ = state.sample();
        }
        let ticks = state.unwrap.place(raw, host, posted)?;
        if let Some(before) = posted {
            state.fit.add(Sample { before, ticks, after: host });
        }
        let mut refusals = Refusals::new_const();
        for (index, record) in records.iter_mut().enumerate() {
            record.timestamp = ticks;
            if let Err(refused) = state.order.hold(record, host) {
                let _ = refusals.try_push((index, refused));
            }
        }
        Some((refusals, state.order.is_filling()))
    }

    /// Completions were read of which events are yet to be submitted; until [`PortSource::shown`].
    #[inline]
    pub(super) fn taken(&self) -> Taken {
        let mut state = self.locked();
        let host = HostClock::get().now();
        state.in_hand.push(host);
        Taken(host)
    }

    /// All events of what was [taken](PortSource::taken) are submitted. What was submitted before the oldest of what is still in hand was
    /// taken is later than none of that.
    #[inline]
    pub(super) fn shown(&self, Taken(since): Taken) {
        let mut state = self.locked();
        if let Some(place) = state.in_hand.iter().position(|taken| *taken == since) {
            state.in_hand.remove(place);
        }
        let until = state.in_hand.first().copied().unwrap_or_else(|| HostClock::get().now() + 1);
        state.order.settle(until);
    }

    /// Whether it holds events that are yet to be delivered.
    pub(super) fn is_holding(&self) -> bool {
        self.locked().order.len() > 0
    }

    /// Delivers those whose turn has come, through `deliver`, unless another thread is at it, which then delivers them. With
    /// `all`, those too whose turn has not come. Returns whether some are still held. No lock is held while `deliver` runs.
    pub(super) fn pump(&self, all: bool, mut deliver: impl FnMut(&Record)) -> bool {
        loop {
            if self.pumping.swap(true, Ordering::SeqCst) {
                return self.locked().order.len() > 0;
            }
            let turn = Turn(&self.pumping);
            let host = HostClock::get().now();
            let next = || {
                let mut state = self.locked();
                let more = !state.in_hand.is_empty();
                if all { state.order.earliest() } else { state.order.next(host, more) }
            };
            while let Some(record) = next() {
                deliver(&record);
            }
            drop(turn);
            // What came between the last look and the end of the turn would wait for the next call: look again.
            let state = self.locked();
            let more = if all { state.order.len() > 0 } else { state.order.is_due(host, !state.in_hand.is_empty()) };
            if !more {
                return state.order.len() > 0;
            }
            drop(state);
        }
    }

    /// What the adapter's clock shows now.
    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut state = self.locked();
        if let Some(ticks) = state.sample() {
            return Some(ticks);
        }
        state.fit.to_adapter(HostClock::get().now()).map(|now| now.ticks)
    }

    /// Keeps the relation of the clocks fresh. Called by progress, which was called so often in all: where the clock
    /// [is short](PortSource::is_short) all the time.
    pub(super) fn maintain(&self, calls: usize) {
        let mut state = self.locked();
        let host = HostClock::get().now();
        state.unwrap.looked(host, calls);
        if state.fit.wants(host) {
            let _ = state.sample();
        }
    }

    /// The host's time of a timestamp of this source.
    pub(super) fn to_host(&self, ticks: u64) -> Option<Converted> {
        self.locked().fit.to_host(ticks)
    }
}

impl State {
    /// Asks the adapter, if it can be asked.
    fn sample(&mut self) -> Option<u64> {
        let clock = HostClock::get();
        let before = clock.now();
        let raw = self.ask.as_ref()?()?;
        let after = clock.now();
        let ticks = self.unwrap.observe(raw, after, after - before);
        self.fit.add(Sample { before, ticks, after });
        Some(ticks)
    }
}

/// The right to deliver; given back also when a callback panics.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

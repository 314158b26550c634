// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extends an adapter's timestamps beyond their mask: from the low bits in a completion to ticks that never wrap.
//!
//! A stamp is read some time after its event: a moment, or as long as the program computes between two MPI calls. So
//! [`Unwrap::unwrap`] takes a stamp for the latest time with these low bits that is not in the adapter's future, but
//! only if an earlier lap is impossible because every event up to the [floor](Unwrap::progressed) was read before. It
//! estimates the adapter's present time from the host's by the nominal rate; readings of the adapter's clock
//! ([`Unwrap::observe`]) and the stamps correct the estimate.
//!
//! Assumptions: the adapter's clock is read at least every 1000 periods (at 1 GHz: 70 min with 32 bits), or some stamps
//! are read within an eighth of the period and silences last at most 100 periods (7 min). No thread keeps completions
//! that it has read for most of a period while others read on. Grade: hot while a tool listens. Threads: one at a time.
//! Units: adapter's ticks; the host's time in the host's ticks. Tests: `tests/sources/unwrap.rs`.

/// Largest drift between two clocks, as a fraction, and its inverse: well above that of any oscillator.
pub(super) const DRIFT: f64 = 1.0 / TICKS_PER_DRIFT as f64;
const TICKS_PER_DRIFT: u64 = 2000;

/// After this many calls of progress, every completion that existed before the first of them has been read. Progress is
/// called after an empty poll, or after 16 polls of up to 16 completions: these empty a queue of 8192, the default.
const CALLS: usize = 32;

#[derive(Debug, Clone)]
pub(in crate::events) struct Unwrap {
    /// The period minus one: all ones.
    mask: u64,
    /// Offset of the first stamp: one period, so that an earlier time has a number, too.
    base: u64,
    /// Nominal rate, in adapter's ticks per host's tick, times 2 to the power of 32.
    rate: u64,
    anchor: Option<Anchor>,
    asked: bool,
    /// Every event that completed up to this time of the adapter has been read.
    floor: u64,
    /// The next floor, valid after [`CALLS`] further calls.
    next_floor: u64,
    noted: usize,
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    host: u64,
    ticks: u64,
    /// Ticks by which the adapter's clock may have been ahead of `ticks` at `host`.
    ahead: u64,
    /// Host's time since which lags are compared, and the least lag since then.
    since: u64,
    least_lag: u64,
}

impl Anchor {
    fn new(host: u64, ticks: u64, ahead: u64) -> Anchor {
        Anchor { host, ticks, ahead, since: host, least_lag: u64::MAX }
    }
}

impl Unwrap {
    /// Extends a clock of `bits` bits (1 to 64) that makes `rate` ticks per host's tick.
    pub(in crate::events) fn new(bits: u32, rate: f64) -> Unwrap {
        let mask = u64::MAX >> (64 - bits.clamp(1, 64));
        let base = mask.wrapping_add(1);
        let rate = (rate * (1_u64 << 32) as f64) as u64;
        Unwrap { mask, base, rate, anchor: None, asked: false, floor: 0, next_floor: 0, noted: 0 }
    }

    /// Whether the clock wraps within the life of a machine: one of more than 60 bits takes at least 36 years at 1 GHz.
    #[inline]
    pub(in crate::events) fn wraps(&self) -> bool {
        self.mask >> 60 == 0
    }

    /// The ticks of a stamp of a clock that does not wrap.
    #[inline]
    pub(super) fn masked(&self, raw: u64) -> u64 {
        raw & self.mask
    }

    /// The ticks of a stamp read at `host`; `None` if its lap is unknown, because it may be older than one period.
    pub(in crate::events) fn unwrap(&mut self, raw: u64, host: u64) -> Option<u64> {
        let raw = self.masked(raw);
        if !self.wraps() {
            return Some(raw);
        }
        let Some(anchor) = self.anchor else {
            let ticks = self.base + raw;
            self.begin(Anchor::new(host, ticks, self.mask >> 3));
            return Some(ticks);
        };
        let now = self.now(&anchor, host);
        let latest = now.saturating_add(self.ahead(&anchor, host));
        let ticks = latest - (latest.wrapping_sub(raw) & self.mask).min(latest);
        // The time one period earlier; a sixteenth of one allows for the error of the estimate.
        if ticks.saturating_sub(self.mask - (self.mask >> 4)) >= self.floor {
            return None;
        }
        self.learn(anchor, now, ticks, host);
        Some(ticks)
    }

    /// The ticks of a reading of the adapter's clock itself, made at `host` or up to `width` before.
    pub(in crate::events) fn observe(&mut self, raw: u64, host: u64, width: u64) -> u64 {
        let raw = self.masked(raw);
        if !self.wraps() {
            return raw;
        }
        self.asked = true;
        let ahead = self.elapsed(width) + 1;
        let Some(anchor) = self.anchor else {
            let ticks = self.base + raw;
            self.begin(Anchor::new(host, ticks, ahead));
            return ticks;
        };
        // The ticks with these low bits that are nearest to the estimate.
        let half = self.mask >> 1;
        let latest = self.now(&anchor, host).saturating_add(half);
        let ticks = latest - (latest.wrapping_sub(raw) & self.mask).min(latest);
        self.anchor = Some(Anchor::new(host, ticks, ahead));
        ticks
    }

    /// Whether the adapter's clock must be read before the next stamp: the clocks may have drifted apart too far.
    #[inline]
    pub(in crate::events) fn is_stale(&self, host: u64) -> bool {
        let is_far = |anchor: &Anchor| self.drift(anchor, host) > self.mask >> 4;
        self.asked && self.anchor.as_ref().is_some_and(is_far)
    }

    /// Notes that progress has made `calls` calls in all, and that everything read before `host` was extended. Moves
    /// the floor up to the adapter's time [`CALLS`] calls ago.
    pub(in crate::events) fn progressed(&mut self, host: u64, calls: usize) {
        if calls.wrapping_sub(self.noted) >= CALLS
            && let Some(anchor) = self.anchor
        {
            self.floor = self.next_floor;
            self.next_floor = self.now(&anchor, host);
            self.noted = calls;
        }
    }

    fn begin(&mut self, anchor: Anchor) {
        self.anchor = Some(anchor);
        // An event before it may have an earlier stamp, but is not a period older.
        self.floor = anchor.ticks;
        self.next_floor = anchor.ticks;
    }

    fn elapsed(&self, host: u64) -> u64 {
        ((u128::from(host) * u128::from(self.rate)) >> 32) as u64
    }

    fn now(&self, anchor: &Anchor, host: u64) -> u64 {
        // Another thread may have read the host's clock later, and come here first.
        match host.checked_sub(anchor.host) {
            Some(since) => anchor.ticks + self.elapsed(since),
            None => anchor.ticks.saturating_sub(self.elapsed(anchor.host - host)),
        }
    }

    /// Ticks by which the clock may be ahead of the estimate at `host`.
    fn ahead(&self, anchor: &Anchor, host: u64) -> u64 {
        anchor.ahead.saturating_add(self.drift(anchor, host)).min(self.mask >> 3)
    }

    /// Ticks by which the clocks may have drifted apart since the anchor.
    fn drift(&self, anchor: &Anchor, host: u64) -> u64 {
        self.elapsed(host.saturating_sub(anchor.host)) / TICKS_PER_DRIFT
    }

    /// Corrects the estimate by a stamp of `ticks` read at `host`, when the estimate was `now`.
    fn learn(&mut self, mut anchor: Anchor, now: u64, ticks: u64, host: u64) {
        if ticks >= now {
            let ahead = self.ahead(&anchor, host).saturating_sub(ticks - now);
            self.anchor = Some(Anchor::new(host, ticks, ahead));
            return;
        }
        if self.asked {
            return;
        }
        anchor.least_lag = anchor.least_lag.min(now - ticks);
        let elapsed = self.elapsed(host.saturating_sub(anchor.since));
        // After some periods, a lag common to all stamps is an error of the estimate, as far as drift explains it.
        if elapsed / 4 >= self.mask {
            let back = anchor.least_lag.min(elapsed / TICKS_PER_DRIFT);
            let ahead = self.ahead(&anchor, host).saturating_add(back);
            anchor = Anchor::new(host, now - back, ahead);
        }
        self.anchor = Some(anchor);
    }
}

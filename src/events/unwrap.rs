// SPDX-License-Identifier: MIT OR Apache-2.0
//! An adapter's timestamps carried past their mask: from the low bits that a completion has to ticks that never wrap.
//!
//! A stamp says when something happened, and is read some time later: a little, or as long as the program computes
//! between two calls of MPI. So it is taken for the latest moment with these bits that is not in the adapter's future,
//! and only if no earlier one is possible: all that had completed by the [floor](Unwrap::progressed) was read before.
//! Otherwise its lap is not known, and nothing is guessed ([`Unwrap::unwrap`]). What the adapter's clock shows now is
//! estimated from the host's, by the nominal rate, and kept right by asking the adapter ([`Unwrap::observe`]) and by
//! the stamps.
//!
//! Rests on: the adapter can be asked, at least every 1000 periods (at 1 GHz: 70 min with 32 bits), or some stamps are
//! read within an eighth of the period and silences last no more than 100 periods (7 min with 32 bits, 10 months with
//! 48); and no thread holding on to what it has read for most of a period while others go on reading. With 64 bits
//! nothing wraps. Path: hot, behind the branch of a site. Threads: one at a time. Units: adapter's ticks; the host's
//! time as expected adapter's ticks. Tests: `tests/unwrap.rs`.

/// How fast two clocks may drift apart, as a fraction: well above what any oscillator does.
pub(super) const DRIFT: f64 = 500e-6;

/// After so many calls of progress all has been read that had completed before the first of them. It is called when a
/// poll has found nothing, else after 16 polls of up to 16 completions: these empty a queue of 8192, the default.
const CALLS: usize = 32;

/// Carries one clock's timestamps past its mask.
#[derive(Debug, Clone)]
pub(super) struct Unwrap {
    /// The period less one: all ones.
    mask: u64,
    /// What the first stamp is counted from: a period, so that an earlier moment has a number, too.
    base: u64,
    /// Adapter's ticks per host's tick, nominal.
    rate: f64,
    /// The greatest estimate: at this host's time the adapter shows this.
    anchor: Option<Anchor>,
    /// Whether the adapter can be asked.
    asked: bool,
    /// All that had completed when the adapter showed this has been read.
    floor: u64,
    /// The floor once there are [`CALLS`] calls more than when it was noted.
    next_floor: u64,
    noted: usize,
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    host: u64,
    ticks: u64,
    /// By how much the adapter's clock may have been ahead of `ticks` at `host`.
    ahead: u64,
    /// The host's time at which lags began to be compared, and the least since.
    since: u64,
    least_lag: u64,
}

impl Anchor {
    fn new(host: u64, ticks: u64, ahead: u64) -> Anchor {
        Anchor { host, ticks, ahead, since: host, least_lag: u64::MAX }
    }
}

impl Unwrap {
    /// For a clock of `bits` bits (1 to 64) that makes `rate` ticks in one of the host's.
    pub(super) fn new(bits: u32, rate: f64) -> Unwrap {
        let mask = u64::MAX >> (64 - bits.clamp(1, 64));
        let base = if bits <= 60 { mask + 1 } else { 0 };
        Unwrap { mask, base, rate, anchor: None, asked: false, floor: 0, next_floor: 0, noted: 0 }
    }

    /// The ticks of a stamp read at `host`; `None` where its lap cannot be told: it may have happened before the period
    /// that ends now.
    #[inline]
    pub(super) fn unwrap(&mut self, raw: u64, host: u64) -> Option<u64> {
        if self.mask == u64::MAX {
            return Some(raw);
        }
        let raw = raw & self.mask;
        let Some(anchor) = self.anchor else {
            let ticks = self.base + raw;
            self.begin(Anchor::new(host, ticks, self.mask >> 3));
            return Some(ticks);
        };
        let now = self.now(&anchor, host);
        let latest = now.saturating_add(self.ahead(&anchor, host));
        let ticks = latest - (latest.wrapping_sub(raw) & self.mask).min(latest);
        // A period earlier, with a sixteenth for what the estimate is off.
        if ticks.saturating_sub(self.mask - (self.mask >> 4)) >= self.floor {
            return None;
        }
        self.learn(anchor, now, ticks, host);
        Some(ticks)
    }

    /// The adapter's own word what it shows at `host`, or has shown up to `width` before.
    pub(super) fn observe(&mut self, raw: u64, host: u64, width: u64) -> u64 {
        if self.mask == u64::MAX {
            return raw;
        }
        let raw = raw & self.mask;
        self.asked = true;
        let ahead = self.elapsed(width) + 1;
        let Some(anchor) = self.anchor else {
            let ticks = self.base + raw;
            self.begin(Anchor::new(host, ticks, ahead));
            return ticks;
        };
        // The nearest to the estimate with these bits.
        let half = self.mask >> 1;
        let latest = self.now(&anchor, host).saturating_add(half);
        let ticks = latest - (latest.wrapping_sub(raw) & self.mask).min(latest);
        self.anchor = Some(Anchor::new(host, ticks, ahead));
        ticks
    }

    /// Whether the adapter must be asked before the next stamp is placed: the clocks may have drifted apart too far.
    #[inline]
    pub(super) fn is_stale(&self, host: u64) -> bool {
        let is_far = |anchor: &Anchor| self.drift(anchor, host) > self.mask >> 4;
        self.asked && self.anchor.as_ref().is_some_and(is_far)
    }

    /// Progress has been called so often in all, and what was read before `host` has been placed: moves the floor up to
    /// where the clock was [`CALLS`] calls ago.
    pub(super) fn progressed(&mut self, host: u64, calls: usize) {
        if calls.wrapping_sub(self.noted) >= CALLS
            && let Some(anchor) = self.anchor
        {
            self.floor = self.next_floor;
            self.next_floor = self.now(&anchor, host);
            self.noted = calls;
        }
    }

    /// The first that is known of the clock.
    fn begin(&mut self, anchor: Anchor) {
        self.anchor = Some(anchor);
        // What happened earlier may have an earlier stamp, but not be a period older.
        self.floor = anchor.ticks;
        self.next_floor = anchor.ticks;
    }

    fn elapsed(&self, host: u64) -> u64 {
        (host as f64 * self.rate) as u64
    }

    fn now(&self, anchor: &Anchor, host: u64) -> u64 {
        // Another thread may have read the clock later, and come first.
        match host.checked_sub(anchor.host) {
            Some(since) => anchor.ticks + self.elapsed(since),
            None => anchor.ticks.saturating_sub(self.elapsed(anchor.host - host)),
        }
    }

    /// By how much the clock may be ahead of the estimate at `host`.
    fn ahead(&self, anchor: &Anchor, host: u64) -> u64 {
        anchor.ahead.saturating_add(self.drift(anchor, host)).min(self.mask >> 3)
    }

    /// By how much the clocks may have drifted apart since they were compared.
    fn drift(&self, anchor: &Anchor, host: u64) -> u64 {
        (self.elapsed(host.saturating_sub(anchor.host)) as f64 * DRIFT) as u64
    }

    /// Corrects the estimate by a stamp that came at `host`, when it was `now`.
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
        let elapsed = self.elapsed(host.saturating_sub(anchor.since)) as f64;
        // After some periods a lag that all stamps had is the clock's, as far as clocks drift.
        if elapsed >= self.mask as f64 * 4.0 {
            let most = (elapsed * DRIFT) as u64;
            let back = anchor.least_lag.min(most);
            let ahead = self.ahead(&anchor, host).saturating_add(back);
            anchor = Anchor::new(host, now - back, ahead);
        }
        self.anchor = Some(anchor);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! An adapter's timestamps carried past their mask: from the low bits that a completion has to ticks that never wrap.
//!
//! A stamp says when something happened, and is read some time later: a little, or as long as the program computes between two
//! calls of MPI. So a stamp is taken for the latest moment with these bits that is not in the adapter's future. What the
//! adapter's clock shows now is estimated from the host's, by the nominal rate, kept right by the stamps themselves (one ahead
//! of the estimate corrects it at once; a lag that persists corrects it slowly, by no more than two clocks may drift apart).
//!
//! Holds while stamps are read within 3/4 of the mask's period and silences last no more than 100 periods (at 1 GHz: 3 s and
//! 7 min with 32 bits, 58 h and 10 months with 48) and some are
//! read promptly; beyond that a whole period may be missed. With 64 bits nothing wraps.
//! Path: hot, behind the branch of a site. Threads: one at a time. Units: adapter's ticks; the host's time as expected
//! adapter's ticks. Tests: `tests/unwrap.rs`.

/// How fast two clocks may drift apart, as a fraction: well above what any oscillator does.
pub(super) const DRIFT: f64 = 500e-6;

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
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    host: u64,
    ticks: u64,
    /// The host's time at which lags began to be compared, and the least since.
    since: u64,
    least_lag: u64,
}

impl Unwrap {
    /// For a clock of `bits` bits (1 to 64) that makes `rate` ticks in one of the host's.
    pub(super) fn new(bits: u32, rate: f64) -> Unwrap {
        let mask = u64::MAX >> (64 - bits.clamp(1, 64));
        Unwrap { mask, base: if bits <= 60 { mask + 1 } else { 0 }, rate, anchor: None }
    }

    /// The ticks of a stamp read at `host`.
    #[inline]
    pub(super) fn ticks(&mut self, raw: u64, host: u64) -> u64 {
        if self.mask == u64::MAX {
            return raw;
        }
        let raw = raw & self.mask;
        let Some(anchor) = self.anchor else {
            let ticks = self.base + raw;
            self.anchor = Some(Anchor { host, ticks, since: host, least_lag: u64::MAX });
            return ticks;
        };
        let now = self.now(&anchor, host);
        // The latest moment with these bits up to an eighth of the period ahead, as the estimate may lag that much.
        let latest = now.saturating_add(self.mask >> 3);
        let ticks = latest - (latest.wrapping_sub(raw) & self.mask).min(latest);
        self.learn(anchor, now, ticks, host);
        ticks
    }

    /// The adapter's own word what it shows at `host`.
    pub(super) fn observe(&mut self, raw: u64, host: u64) -> u64 {
        let ticks = self.ticks(raw, host);
        if self.mask != u64::MAX {
            self.anchor = Some(Anchor { host, ticks, since: host, least_lag: u64::MAX });
        }
        ticks
    }

    fn now(&self, anchor: &Anchor, host: u64) -> u64 {
        anchor.ticks + (host.saturating_sub(anchor.host) as f64 * self.rate) as u64
    }

    /// Corrects the estimate by a stamp that came at `host`, when it was `now`.
    fn learn(&mut self, mut anchor: Anchor, now: u64, ticks: u64, host: u64) {
        if ticks >= now {
            self.anchor = Some(Anchor { host, ticks, since: host, least_lag: u64::MAX });
            return;
        }
        anchor.least_lag = anchor.least_lag.min(now - ticks);
        let elapsed = (host.saturating_sub(anchor.since)) as f64 * self.rate;
        // After some periods a lag that all stamps had is the clock's, as far as clocks drift.
        if elapsed >= self.mask as f64 * 4.0 {
            let most = (elapsed * DRIFT) as u64;
            let back = anchor.least_lag.min(most);
            anchor = Anchor { host, ticks: now - back, since: host, least_lag: u64::MAX };
        }
        self.anchor = Some(anchor);
    }
}

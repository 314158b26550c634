// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relation of an adapter's clock to the host's: converts a timestamp, with an error bound.
//!
//! Owns a window of [`ClockSample`]s: readings of the adapter's clock between two readings of the host's clock. The
//! rates differ by a known bound at most, so each sample confines every other time to a cone, and all cones together
//! confine it to an interval. Its middle is the result, half its width the error bound. No outlier can tilt it.
//!
//! The samples themselves bound the rate (over the longest baselines), plus [`WANDER`] for changes within the window.
//! If that contradicts the samples (the clock was stepped, or warmed up fast), the bound is [`super::unwrap::DRIFT`]
//! around the nominal rate; if that contradicts them, too, only the nearest sample counts and a new window begins.
//! Grade: setup. Threads: one at a time. Units: ticks. Tests: `tests/sources/clock_correlation.rs`.

use super::unwrap::DRIFT;

/// Largest change of the clocks' rate within the window, as a fraction.
const WANDER: f64 = 5e-6;

const KEPT: usize = 32;

/// A reading `ticks` of the adapter's clock at a time from `before` to `after` (host's ticks, both included).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// A reading of the host's clock before the adapter's.
    pub before: u64,
    /// The reading of the adapter's clock, extended beyond its mask.
    pub ticks: u64,
    /// A reading of the host's clock after the adapter's.
    pub after: u64,
}

/// A time converted to another clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvertedTimestamp {
    /// The best estimate, in ticks of the clock converted to.
    pub ticks: u64,
    /// The error bound in ticks, in both directions.
    pub error: u64,
}

#[derive(Debug, Clone)]
pub(in crate::events) struct ClockCorrelation {
    /// Nominal rate, in host's ticks per adapter's tick.
    nominal: f64,
    samples: Vec<ClockSample>,
    /// Least distance of two samples, in host's ticks.
    spacing: u64,
    /// Bounds of the rate, in host's ticks per adapter's tick.
    rate: (f64, f64),
}

impl ClockCorrelation {
    /// Starts without samples. `nominal` is in host's ticks per adapter's tick; `spacing` in host's ticks.
    pub(in crate::events) fn new(nominal: f64, spacing: u64) -> ClockCorrelation {
        ClockCorrelation { nominal, samples: Vec::with_capacity(KEPT), spacing, rate: drift(nominal) }
    }

    /// Whether a sample at `host` is so far from the last that it is added whatever its width.
    pub(in crate::events) fn wants(&self, host: u64) -> bool {
        self.samples.last().is_none_or(|last| host.saturating_sub(last.after) >= self.spacing)
    }

    /// Adds a sample. One that is close to the last replaces it if it is narrower, and is ignored otherwise.
    pub(in crate::events) fn add(&mut self, sample: ClockSample) {
        if sample.after < sample.before {
            return;
        }
        if let Some(&last) = self.samples.last() {
            if sample.ticks < last.ticks || sample.before < last.before {
                return;
            }
            if !self.wants(sample.after) {
                if sample.after - sample.before >= last.after - last.before {
                    return;
                }
                self.samples.pop();
            }
        }
        if self.samples.len() == KEPT {
            self.samples.remove(0);
        }
        self.samples.push(sample);
        if !self.is_consistent() {
            // The clock was stepped: the older samples are void.
            self.samples.drain(..self.samples.len() - 1);
        }
        self.rate = self.measured();
    }

    /// The host's time at which the adapter's clock showed `ticks`; `None` without samples.
    pub(in crate::events) fn to_host(&self, ticks: u64) -> Option<ConvertedTimestamp> {
        let nearest = *self.samples.iter().min_by_key(|sample| sample.ticks.abs_diff(ticks))?;
        let interval = self.interval(ticks, nearest.before, self.rate);
        let interval = interval.or_else(|| self.interval(ticks, nearest.before, drift(self.nominal)));
        let (low, high) = interval.unwrap_or_else(|| cone(&nearest, ticks, nearest.before, drift(self.nominal)));
        Some(middle(nearest.before, low, high))
    }

    /// The ticks that the adapter's clock showed at `host`; `None` without samples.
    pub(in crate::events) fn to_adapter(&self, host: u64) -> Option<ConvertedTimestamp> {
        let nearest = *self.samples.iter().min_by_key(|sample| sample.before.abs_diff(host))?;
        // Extrapolates from the nearest sample at the mean rate, and corrects the result by its conversion back.
        let away = host as f64 - f64::midpoint(nearest.before as f64, nearest.after as f64);
        let rate = f64::midpoint(self.rate.0, self.rate.1);
        let guess = nearest.ticks.saturating_add_signed((away / rate) as i64);
        let back = self.to_host(guess)?;
        let correction = (host as f64 - back.ticks as f64) / rate;
        let error = (back.error as f64 / self.rate.0).ceil() as u64 + 2;
        Some(ConvertedTimestamp { ticks: guess.saturating_add_signed(correction as i64), error })
    }

    /// The interval, relative to `origin`, that all cones share; `None` if they contradict each other.
    fn interval(&self, ticks: u64, origin: u64, rate: (f64, f64)) -> Option<(f64, f64)> {
        let mut all = (f64::NEG_INFINITY, f64::INFINITY);
        for sample in &self.samples {
            let (low, high) = cone(sample, ticks, origin, rate);
            all = (all.0.max(low), all.1.min(high));
        }
        // Half a tick allows for rounding.
        (all.0 <= all.1 + 0.5).then_some((all.0, all.1.max(all.0)))
    }

    /// Bounds of the rate from the samples, or from [`DRIFT`] if the samples are too few or contradict it.
    fn measured(&self) -> (f64, f64) {
        let (lowest, highest) = drift(self.nominal);
        let [first, .., last] = self.samples[..] else { return (lowest, highest) };
        let span = (last.ticks - first.ticks) as f64;
        if span <= 0.0 {
            return (lowest, highest);
        }
        let low = (last.before as f64 - first.after as f64) / span;
        let high = (last.after as f64 - first.before as f64) / span;
        let measured = (low * (1.0 - WANDER), high * (1.0 + WANDER));
        let both = (measured.0.max(lowest), measured.1.min(highest));
        if both.0 <= both.1 { both } else { (lowest, highest) }
    }

    /// Whether [`DRIFT`] permits the newest sample, given the one before.
    fn is_consistent(&self) -> bool {
        let [.., before, last] = self.samples[..] else { return true };
        let (low, high) = cone(&before, last.ticks, before.before, drift(self.nominal));
        let at = |host: u64| host as f64 - before.before as f64;
        low <= at(last.after) + 1.0 && at(last.before) <= high + 1.0
    }
}

fn drift(nominal: f64) -> (f64, f64) {
    (nominal * (1.0 - DRIFT), nominal * (1.0 + DRIFT))
}

/// The interval, relative to `origin`, in which one sample places the time when the adapter's clock shows `ticks`.
fn cone(sample: &ClockSample, ticks: u64, origin: u64, (slow, fast): (f64, f64)) -> (f64, f64) {
    let before = i128::from(sample.before) - i128::from(origin);
    let after = i128::from(sample.after) - i128::from(origin);
    let away = (i128::from(ticks) - i128::from(sample.ticks)) as f64;
    let (near, far) = if away >= 0.0 { (slow, fast) } else { (fast, slow) };
    (before as f64 + away * near, after as f64 + away * far)
}

fn middle(origin: u64, low: f64, high: f64) -> ConvertedTimestamp {
    let centre = f64::midpoint(low, high);
    let ticks =
        if centre >= 0.0 { origin.saturating_add(centre as u64) } else { origin.saturating_sub((-centre) as u64) };
    ConvertedTimestamp { ticks, error: ((high - low) / 2.0).ceil() as u64 + 1 }
}

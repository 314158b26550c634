// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relation of the sources' clocks to the host's: samples as they are stored, and times from ticks.
//!
//! A [`ClockSample`] says that at some moment between two readings of the host's monotonic clock another clock showed
//! something: that of a source of the process (an adapter's, say), or the host's clock of another rank. Between two
//! samples the relation is a straight line through their middles, so that an error of neither clock's rate adds up;
//! beyond them the source's own rate counts. [`Relation::moment`] says by how much a time may be wrong. Samples of
//! other ranks' clocks make time lines of hosts (`timeline.rs`).
//!
//! Path: pending, once per event. Threads: plain data. Units: nanoseconds, ticks. Tests: below.

use crate::parse::{Bytes, Malformed, push_varint};

/// How far a clock's rate may be from what it says it is.
const DRIFT: f64 = 500e-6;

/// How much the rate of two clocks to each other may change between two samples.
const WANDER: f64 = 5e-6;

/// Which clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// That of the source with this number; it shows ticks.
    Source(u8),
    /// The host's monotonic one of the rank with this number, of the same world; it shows nanoseconds.
    Rank(u32),
}

/// At some moment from `before` to `after`, both of the host's monotonic clock in nanoseconds, a clock showed `shown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// Which.
    pub clock: Clock,
    /// What it showed.
    pub shown: u64,
    /// Not later than that.
    pub before: i64,
    /// Not earlier than that.
    pub after: i64,
}

/// A time, and how far from the truth it may be, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// By the host's monotonic clock.
    pub time: i64,
    /// The truth is within so many of it, either way.
    pub error: i64,
}

/// Puts samples at the end of `to`.
pub(crate) fn encode(samples: &[ClockSample], to: &mut Vec<u8>) {
    push_varint(to, samples.len() as u64);
    for sample in samples {
        let (kind, number) = match sample.clock {
            Clock::Source(source) => (0, u32::from(source)),
            Clock::Rank(rank) => (1, rank),
        };
        to.push(kind);
        push_varint(to, number.into());
        to.extend_from_slice(&sample.shown.to_le_bytes());
        to.extend_from_slice(&sample.before.to_le_bytes());
        push_varint(to, sample.after.abs_diff(sample.before));
    }
}

/// Takes samples, which are all there is.
pub(crate) fn decode(payload: &[u8]) -> Result<Vec<ClockSample>, Malformed> {
    let mut from = Bytes(payload);
    // Each takes 19 bytes at least.
    let count = from.varint_up_to(payload.len() / 19, "no more samples than there are bytes for")?;
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = from.u8()?;
        let number = from.varint_up_to(u32::MAX as usize, "a clock's number")? as u32;
        let clock = match (kind, u8::try_from(number)) {
            (0, Ok(source)) => Clock::Source(source),
            (1, _) => Clock::Rank(number),
            _ => return Err(Malformed("a clock of a source (0) or of a rank (1)")),
        };
        let (shown, before) = (from.u64()?, from.u64()?.cast_signed());
        let after = before.checked_add_unsigned(from.varint()?).ok_or(Malformed("a time of at most 64 bits"))?;
        samples.push(ClockSample { clock, shown, before, after });
    }
    from.end()?;
    Ok(samples)
}

/// The relation of one source's clock to the host's.
#[derive(Debug, Clone, Default)]
pub struct Relation {
    ticks_per_second: f64,
    points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    ticks: u64,
    time: i64,
    /// Half of the time that the sample took.
    error: i64,
}

impl Relation {
    /// Of a clock with this rate; of one with a rate of 0 nothing is known, and no time either.
    pub(crate) fn new(ticks_per_second: u64) -> Relation {
        Relation { ticks_per_second: ticks_per_second as f64, points: Vec::new() }
    }

    /// Takes a further sample. One that goes back on either clock is left out.
    pub(crate) fn add(&mut self, sample: ClockSample) {
        let time = sample.before.midpoint(sample.after);
        let is_later = self.points.last().is_none_or(|last| last.ticks < sample.shown && last.time < time);
        if is_later && self.ticks_per_second > 0.0 {
            self.points.push(Point { ticks: sample.shown, time, error: (sample.after.abs_diff(time)) as i64 });
        }
    }

    /// The first sample: ticks and time.
    pub(crate) fn first(&self) -> Option<(i64, i64)> {
        self.points.first().map(|point| (point.ticks.cast_signed(), point.time))
    }

    /// When the clock showed so many ticks; `None` without a sample.
    #[must_use]
    pub fn time(&self, ticks: u64) -> Option<i64> {
        self.time_near(ticks, &mut 0)
    }

    /// As [`Relation::time`]; `near` is where the last answer was found, and the next one most often is.
    pub(crate) fn time_near(&self, ticks: u64, near: &mut usize) -> Option<i64> {
        let (from, rate) = self.line(ticks, near)?;
        let away = ticks.abs_diff(from.ticks) as f64 * rate + 0.5;
        let away = away as i64;
        Some(from.time.saturating_add(if ticks < from.ticks { -away } else { away }))
    }

    /// The same, and by how much it may be wrong.
    #[must_use]
    pub fn moment(&self, ticks: u64) -> Option<Moment> {
        let (mut near, points) = (0, &self.points);
        let time = self.time_near(ticks, &mut near)?;
        let later = points.partition_point(|point| point.ticks <= ticks);
        let around = [later.checked_sub(1), Some(later)].map(|place| points.get(place?));
        let away = |point: &Point| ticks.abs_diff(point.ticks) as f64 * 1e9 / self.ticks_per_second;
        let nearest = around.iter().flatten().map(|point| away(point)).fold(f64::INFINITY, f64::min);
        let rate = if around.iter().all(Option::is_some) { WANDER } else { DRIFT };
        let widest = around.iter().flatten().map(|point| point.error).max().unwrap_or(0);
        Some(Moment { time, error: widest.saturating_add((nearest * rate).ceil() as i64).saturating_add(1) })
    }

    /// The point from which to go, and nanoseconds per tick.
    fn line(&self, ticks: u64, near: &mut usize) -> Option<(Point, f64)> {
        let is_here = |place: usize| {
            let (from, to) = (self.points.get(place), self.points.get(place + 1));
            from.is_some_and(|from| from.ticks <= ticks) && to.is_some_and(|to| ticks < to.ticks)
        };
        if !is_here(*near) {
            *near = self.points.partition_point(|point| point.ticks <= ticks).saturating_sub(1);
        }
        let from = *self.points.get(*near)?;
        let rate = match self.points.get(*near + 1) {
            Some(to) if from.ticks <= ticks => to.time.abs_diff(from.time) as f64 / (to.ticks - from.ticks) as f64,
            _ => 1e9 / self.ticks_per_second,
        };
        Some((from, rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(shown: u64, before: i64, after: i64) -> ClockSample {
        ClockSample { clock: Clock::Source(0), shown, before, after }
    }

    #[test]
    fn samples_come_back_and_foreign_ones_are_refused() {
        let samples = [
            sample(u64::MAX, i64::MIN, i64::MAX),
            ClockSample { clock: Clock::Rank(70_000), shown: 5, before: -3, after: 12 },
        ];
        let mut bytes = Vec::new();
        encode(&samples, &mut bytes);
        assert_eq!(decode(&bytes).as_deref(), Ok(&samples[..]));
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        bytes[1] = 2;
        assert!(decode(&bytes).is_err());
        assert!(decode(&[0xff, 0xff, 0xff, 0x7f]).is_err());
    }

    #[test]
    fn between_two_samples_time_goes_straight_and_beyond_them_by_the_rate_that_was_said() {
        let mut relation = Relation::new(1_000_000);
        assert_eq!((relation.time(5), relation.moment(5)), (None, None));
        relation.add(sample(1000, 4_999_990, 5_000_010));
        assert_eq!((relation.time(999), relation.time(1001)), (Some(4_999_000), Some(5_001_000)));
        relation.add(sample(3000, 9_000_000, 9_000_000));
        relation.add(sample(2000, 9_500_000, 9_500_000));
        let times = [0, 1000, 1500, 3000, 3001].map(|ticks| relation.time(ticks).expect("sampled"));
        assert_eq!(times, [4_000_000, 5_000_000, 6_000_000, 9_000_000, 9_001_000]);
    }

    #[test]
    fn the_error_grows_from_the_samples_on() {
        let mut relation = Relation::new(1_000_000_000);
        relation.add(sample(0, 0, 200));
        relation.add(sample(1_000_000, 1_000_000, 1_000_100));
        let error = |ticks| relation.moment(ticks).expect("sampled").error;
        assert_eq!((error(0), error(500_000), error(1_000_000)), (101, 104, 51));
        assert_eq!(error(2_000_000), 51 + 500);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut relation = Relation::new(1);
        relation.add(sample(5, i64::MIN, i64::MIN + 2));
        relation.add(sample(u64::MAX - 1, i64::MAX - 2, i64::MAX));
        for ticks in [0, 5, 1 << 63, u64::MAX] {
            assert!(relation.moment(ticks).is_some());
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relation of the sources' clocks to the host's: the stored samples, and the conversion from ticks to time.
//!
//! A [`ClockSample`] is a reading of a source's clock, or of the host's clock of another rank (`timeline.rs`), between
//! two readings of the host's monotonic clock. Between two samples the relation is a straight line through their
//! middles, so that rate errors do not accumulate; beyond them it continues at the rate of the nearest samples. A
//! relation ignores a slow sample that its neighbours predict better. [`Relation::widest`] gives the error bound, from
//! the samples around a time, possible changes of the rate, and jumps of the clock. Path: pending, once per event.
//! Threads: plain data. Units: nanoseconds, ticks. Tests: below.

use crate::parse::{Bytes, Malformed, push_varint};

/// Upper bound of a clock's deviation from its nominal rate.
const DRIFT: f64 = 500e-6;

/// Upper bound of the change of two clocks' relative rate between two samples.
const WANDER: f64 = 5e-6;

/// Most samples that are ignored at once.
const MOST_LEFT_OUT: usize = 32;

/// Fewest intervals to keep, if there are so many: a jump shows by comparison with the intervals around it.
const INTERVALS: u64 = 4;

/// Number of points that determine the rate at an end.
const NEAR: usize = 8;

/// A clock other than this host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The clock of the source with this number, in ticks.
    Source(u8),
    /// The monotonic clock of the host of the rank with this number, in the same world; nanoseconds.
    Rank(u32),
}

/// A reading of a clock between two readings of the host's monotonic clock (nanoseconds).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// The clock that was read.
    pub clock: Clock,
    /// The reading.
    pub shown: u64,
    /// The host's clock before the reading.
    pub before: i64,
    /// The host's clock after the reading.
    pub after: i64,
}

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

/// Reads samples, which must fill the payload.
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
    /// Its continuation before the first point, and after the last.
    ends: (End, End),
}

#[derive(Debug, Clone, Copy)]
struct Point {
    ticks: u64,
    time: i64,
    /// Half of the time that the sample took.
    error: i64,
    /// Upper bound of the clock's jump between this point and the next, nanoseconds.
    jump: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct End {
    nanoseconds_per_tick: f64,
    /// Error bound of the rate, as a fraction.
    drift: f64,
}

#[derive(Debug, Clone, Copy)]
struct Interval {
    /// Nanoseconds.
    length: f64,
    /// The true rate relative to the source's nominal rate.
    rate: f64,
    /// Error bound of the rate.
    doubt: f64,
}

impl Relation {
    /// The relation of a clock with this rate; with a rate of 0 there are no times.
    pub fn new(ticks_per_second: u64) -> Relation {
        let ticks_per_second = ticks_per_second as f64;
        let end = End { nanoseconds_per_tick: 1e9 / ticks_per_second, drift: DRIFT };
        Relation { ticks_per_second, points: Vec::new(), ends: (end, end) }
    }

    /// Adds a sample, unless it goes back on either clock. Times beyond the samples go by the nominal rate.
    pub fn add(&mut self, sample: ClockSample) {
        let time = sample.before.midpoint(sample.after);
        let is_later = self.points.last().is_none_or(|last| last.ticks < sample.shown && last.time < time);
        if !is_later || self.ticks_per_second <= 0.0 {
            return;
        }
        let new = Point { ticks: sample.shown, time, error: sample.after.abs_diff(time) as i64, jump: 0 };
        self.points.push(new);
    }

    /// Forgets all but the latest samples.
    pub fn keep(&mut self, latest: usize) {
        self.points.drain(..self.points.len().saturating_sub(latest));
    }

    fn leave_out(&mut self) {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return };
        let longest = last.time.abs_diff(first.time) / INTERVALS;
        let mut kept: Vec<Point> = Vec::with_capacity(self.points.len());
        for new in self.points.drain(..) {
            while let Some(before) = better_told(&kept, &new, longest) {
                kept.truncate(before + 1);
            }
            kept.push(new);
        }
        self.points = kept;
        // Also tests the ends: the last message of a job may have been slow because its processors were busy.
        while self.is_better_told_beyond(self.points.len().wrapping_sub(1), usize::wrapping_sub) {
            self.points.pop();
        }
        while self.is_better_told_beyond(0, |first, steps| first + steps) {
            self.points.remove(0);
        }
    }

    /// Whether the neighbours predict a point at an end better; `inside` goes a number of steps inwards from a point.
    fn is_better_told_beyond(&self, place: usize, inside: fn(usize, usize) -> usize) -> bool {
        if self.points.len() < 4 {
            return false;
        }
        let (point, next) = (self.points[place], self.points[inside(place, 1)]);
        let end = self.end(inside(place, 1), |steps| inside(place, 1 + steps));
        let away = point.time.abs_diff(next.time) as f64;
        let error = next.error.saturating_add((away * end.drift) as i64);
        let told = point.ticks.abs_diff(next.ticks) as f64 * end.nanoseconds_per_tick;
        error < point.error && (told - away).abs() <= point.error.saturating_add(error) as f64
    }

    /// Called after the last sample: removes slow samples, and finds jumps and the measured rate beyond both ends.
    pub(crate) fn settle(&mut self) {
        self.leave_out();
        for place in 0..self.points.len().saturating_sub(1) {
            self.points[place].jump = self.jump(place);
        }
        if let Some(last) = self.points.len().checked_sub(1) {
            self.ends = (self.end(0, |steps| steps), self.end(last, |steps| last.wrapping_sub(steps)));
        }
    }

    fn interval(&self, from: usize, to: usize) -> Option<Interval> {
        let (from, to) = (self.points.get(from)?, self.points.get(to)?);
        let length = to.time.abs_diff(from.time) as f64;
        let said = (to.ticks - from.ticks) as f64 * 1e9 / self.ticks_per_second;
        Some(Interval { length, rate: length / said, doubt: from.error.saturating_add(to.error) as f64 / length })
    }

    /// Bound of the clock's jump between a point and the next. The clock has jumped if the rate differs from that of
    /// all nearby intervals (from the nominal rate, if there are none) by more than drift and sample errors.
    fn jump(&self, place: usize) -> i64 {
        let Some(this) = self.interval(place, place + 1) else { return 0 };
        let nearby = [place.checked_sub(2), place.checked_sub(1), Some(place + 1), Some(place + 2)];
        let nearby = nearby.into_iter().flatten().filter_map(|place| self.interval(place, place + 1));
        // The difference of the rates, and the uncertainty of the expected rate.
        let away = |other: Interval| ((this.rate - other.rate).abs(), other.doubt + WANDER);
        let nearest = nearby.map(away).min_by(|one, other| (one.0 - one.1).total_cmp(&(other.0 - other.1)));
        let (away, doubt) = nearest.unwrap_or(((this.rate - 1.0).abs(), DRIFT));
        // The samples at both ends of the interval do not count again: the error of a time includes theirs.
        if away > this.doubt + doubt { ((away + doubt) * this.length).ceil() as i64 } else { 0 }
    }

    /// Continuation beyond the point at `place`, by the rate to a near point; `point` goes this many steps inwards.
    fn end(&self, place: usize, point: impl Fn(usize) -> usize) -> End {
        let said = End { nanoseconds_per_tick: 1e9 / self.ticks_per_second, drift: DRIFT };
        let by = |steps: usize| {
            let (from, to) = (place.min(point(steps)), place.max(point(steps)));
            let interval = self.interval(from, to)?;
            let jumps: i64 = self.points[from..to].iter().map(|point| point.jump).fold(0, i64::saturating_add);
            let drift = WANDER + interval.doubt + jumps as f64 / interval.length;
            Some(End { nanoseconds_per_tick: said.nanoseconds_per_tick * interval.rate, drift })
        };
        let measured = (1..=NEAR).filter_map(by);
        measured.fold(said, |best, other| if other.drift < best.drift { other } else { best })
    }

    pub(crate) fn first(&self) -> Option<(i64, i64)> {
        self.points.first().map(|point| (point.ticks.cast_signed(), point.time))
    }

    /// The time at these ticks; `None` without a sample.
    pub fn time(&self, ticks: u64) -> Option<i64> {
        self.time_near(ticks, &mut 0)
    }

    /// As [`Relation::time`]; `near` caches the position of the last answer.
    pub(crate) fn time_near(&self, ticks: u64, near: &mut usize) -> Option<i64> {
        let (from, rate) = self.line(ticks, near)?;
        let away = ticks.abs_diff(from.ticks) as f64 * rate + 0.5;
        let away = away as i64;
        Some(from.time.saturating_add(if ticks < from.ticks { -away } else { away }))
    }

    /// The error bound, in both directions, of the time at these ticks.
    fn error(&self, ticks: u64) -> Option<i64> {
        let later = self.points.partition_point(|point| point.ticks <= ticks);
        let around = (later.checked_sub(1).and_then(|place| self.points.get(place)), self.points.get(later));
        let away = |point: &Point| ticks.abs_diff(point.ticks) as f64 * 1e9 / self.ticks_per_second;
        let (error, drift) = match around {
            (Some(before), Some(after)) => {
                let error = before.error.max(after.error).saturating_add(before.jump);
                (error, away(before).min(away(after)) * WANDER)
            }
            (Some(last), None) => (last.error, away(last) * self.ends.1.drift),
            (None, Some(first)) => (first.error, away(first) * self.ends.0.drift),
            (None, None) => return None,
        };
        Some(error.saturating_add(drift.ceil() as i64).saturating_add(1))
    }

    /// The largest error bound of times from `first` to `last`, ticks.
    pub fn widest(&self, first: u64, last: u64) -> Option<i64> {
        // Between two points the bound is greatest in the middle.
        let from = self.points.partition_point(|point| point.ticks <= first).saturating_sub(1);
        let inside = self.points[from.min(self.points.len())..].windows(2).take_while(|two| two[0].ticks < last);
        let middles = inside.map(|two| two[0].ticks.midpoint(two[1].ticks).clamp(first, last.max(first)));
        middles.chain([first, last]).filter_map(|ticks| self.error(ticks)).max()
    }

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
            _ if ticks < from.ticks => self.ends.0.nanoseconds_per_tick,
            Some(to) => to.time.abs_diff(from.time) as f64 / (to.ticks - from.ticks) as f64,
            None => self.ends.1.nanoseconds_per_tick,
        };
        Some((from, rate))
    }
}

/// The point whose line to a new point, at most `longest` nanoseconds long, predicts the points in between better.
fn better_told(points: &[Point], new: &Point, longest: u64) -> Option<usize> {
    let last = points.len().checked_sub(1)?;
    let is_better_told = |before: &usize| {
        let from = &points[*before];
        new.time.abs_diff(from.time) <= longest
            && points[before + 1..].iter().all(|point| is_better_told(point, from, new))
    };
    (last.saturating_sub(MOST_LEFT_OUT)..last).rev().find(is_better_told)
}

/// Whether its neighbours predict a point better than its own sample. A point that contradicts them shows a jump.
fn is_better_told(point: &Point, before: &Point, after: &Point) -> bool {
    let nearest = point.time.abs_diff(before.time).min(after.time.abs_diff(point.time));
    let error = before.error.max(after.error).saturating_add((nearest as f64 * WANDER) as i64);
    let rate = after.time.abs_diff(before.time) as f64 / (after.ticks - before.ticks) as f64;
    let told = before.time.saturating_add(((point.ticks - before.ticks) as f64 * rate) as i64);
    error < point.error && told.abs_diff(point.time) <= point.error.saturating_add(error).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(shown: u64, before: i64, after: i64) -> ClockSample {
        ClockSample { clock: Clock::Source(0), shown, before, after }
    }

    #[test]
    fn decode_returns_the_encoded_samples_and_refuses_foreign_ones() {
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

    fn settled(ticks_per_second: u64, samples: &[(u64, i64, i64)]) -> Relation {
        let mut relation = Relation::new(ticks_per_second);
        for (shown, before, after) in samples {
            relation.add(sample(*shown, *before, *after));
        }
        relation.settle();
        relation
    }

    /// Time and error.
    fn moment(relation: &Relation, ticks: u64) -> (i64, i64) {
        relation.time(ticks).zip(relation.error(ticks)).expect("sampled")
    }

    #[test]
    fn between_two_samples_time_goes_straight_and_beyond_them_at_their_rate() {
        let relation = settled(1_000_000, &[]);
        assert_eq!((relation.time(5), relation.error(5), relation.widest(0, 9)), (None, None, None));
        let relation = settled(1_000_000, &[(1000, 4_999_990, 5_000_010)]);
        assert_eq!((relation.time(999), relation.time(1001)), (Some(4_999_000), Some(5_001_000)));
        let exact = |ticks: u64, time: i64| (ticks, time, time);
        // The clock is 500 millionths slower than its nominal rate, and one sample goes back.
        let samples = [exact(1000, 5_000_000), exact(3000, 7_001_000), exact(2000, 9_500_000)];
        let relation = settled(1_000_000, &samples);
        let times = [0, 1000, 2000, 3000, 5000].map(|ticks| relation.time(ticks).expect("sampled"));
        assert_eq!(times, [3_999_500, 5_000_000, 6_000_500, 7_001_000, 9_002_000]);
    }

    #[test]
    fn a_time_among_the_latest_samples_does_not_depend_on_the_others() {
        // The clock should count nanoseconds, but is 1 % too slow.
        let mut relation = Relation::new(1_000_000_000);
        (1..5).for_each(|n| relation.add(sample(n * 990_000, n as i64 * 1_000_000, n as i64 * 1_000_000)));
        relation.keep(3);
        assert_eq!([1_980_000, 2_475_000].map(|ticks| relation.time(ticks)), [Some(2_000_000), Some(2_500_000)]);
        assert_eq!(relation.time(1_485_000), Some(1_505_000), "by the nominal rate");
    }

    #[test]
    fn the_error_grows_from_the_samples_on() {
        let relation = settled(1_000_000_000, &[(0, 0, 200), (1_000_000, 1_000_000, 1_000_100)]);
        let error = |ticks| relation.error(ticks).expect("sampled");
        assert_eq!((error(0), error(500_000), error(1_000_000)), (101, 104, 51));
        // The rate is known to 150 ns in a millisecond, and may change.
        assert_eq!(error(2_000_000), 51 + 156);
        assert_eq!(relation.widest(100, 1_000_000), Some(104));
        assert_eq!(relation.widest(100, 2_000_000), Some(207));
        let alone = settled(1_000_000_000, &[(0, 0, 200)]);
        assert_eq!(alone.error(1_000_000), Some(101 + 500), "the source's nominal rate is not exact");
    }

    #[test]
    fn a_slow_sample_does_no_harm() {
        let every = 50_000_000;
        let narrow = |n: u64| (n * every, (n * every) as i64 - 50, (n * every) as i64 + 50);
        let wide = |n: u64| (n * every, (n * every) as i64 - 1000 * n as i64, (n * every) as i64 + 90_000);
        let samples: Vec<_> = (0..40).map(|n| if (10..18).contains(&n) { wide(n) } else { narrow(n) }).collect();
        let relation = settled(1_000_000_000, &samples);
        assert_eq!(relation.time(12 * every), Some(12 * every as i64));
        let last = (39 * every, 39 * every as i64 - 100_000, 39 * every as i64 + 90_000);
        let relation_too = settled(1_000_000_000, &[&samples[..39], &[last]].concat());
        assert!(relation_too.widest(0, 39 * every) < Some(1500), "{:?}", relation_too.widest(0, 39 * every));
        let error = relation.widest(0, 39 * every);
        assert!(error.is_some_and(|error| error < 1200), "{error:?}: 50 ns, and 5 millionths of four times 50 ms");
    }

    #[test]
    fn the_error_contains_a_jump_of_the_clock_only_where_it_jumps() {
        let second = 1_000_000_000;
        // The clock is 40 millionths too fast, and 3 ms ahead after the fifth second.
        let shown = |n: i64| n * second + n * 40_000 + if n > 5 { 3_000_000 } else { 0 };
        let samples: Vec<_> = (0..10).map(|n| (shown(n).cast_unsigned(), n * second - 500, n * second + 500)).collect();
        let relation = settled(1_000_000_000, &samples);
        for half in 0..20 {
            // Within the sixth second it is unknown whether it has jumped.
            let truth = half * second / 2;
            let ticks = half * (second + 40_000) / 2 + if half > 10 { 3_000_000 } else { 0 };
            let (time, error) = moment(&relation, ticks.cast_unsigned());
            assert!(time.abs_diff(truth) <= error.unsigned_abs(), "{half}: {time}, {error}");
            assert_eq!(error > 100_000, half == 10 || half == 11, "{half}: {error}");
        }
        let (time, error) = moment(&relation, (20 * (second + 40_000) + 3_000_000).cast_unsigned());
        assert!(time.abs_diff(20 * second) < 10_000 && error < 100_000, "{time}, {error}");
    }

    #[test]
    fn the_bound_contains_a_jump_beside_a_slow_sample() {
        let second = 1_000_000_000;
        // Right after the tenth second's sample the clock jumps 4 ms ahead; the next sample's middle is 630 us late.
        let jumps = 10 * second + 30_000;
        let shown = |time: i64| if time > jumps { time + 4_000_000 } else { time }.cast_unsigned();
        let took = |n: i64| if n == 11 { 1_300_000 } else { 40_000 };
        let samples: Vec<_> = (0..13).map(|n| (shown(n * second + 20_000), n * second, n * second + took(n))).collect();
        let relation = settled(second.cast_unsigned(), &samples);
        let truth = jumps + 20_000;
        let (time, error) = moment(&relation, shown(truth));
        assert!(time.abs_diff(truth) <= error.unsigned_abs(), "{time} of {truth}: {error}");
        assert!(error < 5_000_000, "{error}");
    }

    #[test]
    fn extremes_do_not_overflow() {
        let relation = settled(1, &[(5, i64::MIN, i64::MIN + 2), (u64::MAX - 1, i64::MAX - 2, i64::MAX)]);
        for ticks in [0, 5, 1 << 63, u64::MAX] {
            moment(&relation, ticks);
        }
    }
}

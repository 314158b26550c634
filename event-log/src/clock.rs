// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common clock: nanoseconds since 1970, from the ticks of any source. Each source's clock is sampled periodically,
//! between two readings of the host's ([`Clocks::sample`]). Between two samples the conversion is linear, so rate
//! errors do not accumulate; beyond them it uses the source's own rate. The host's clock is the monotonic one, which
//! all ranks of a host share, with an offset to the time of day measured once, so that a change of the time of day
//! never turns a log back. Grade: pending. Threads: the owner's. Tests: below.

use std::collections::VecDeque;

use crate::mpi;

/// Number of readings of a source's clock for one sample; the fastest one counts.
const READINGS: usize = 5;

/// Number of samples of a source that are kept: an event may be delivered that many passes of the writing thread late.
const KEPT: usize = 16;

/// Reading of a source's clock at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) ticks: i64,
    /// Nanoseconds since 1970.
    pub(crate) time: i64,
}

/// The relation of one source's clock to the common one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Relation {
    ticks_per_second: f64,
    /// Latest samples, in order.
    samples: VecDeque<Sample>,
}

impl Relation {
    /// Makes the relation of a clock with this rate.
    pub(crate) fn new(ticks_per_second: u64) -> Relation {
        Relation { ticks_per_second: ticks_per_second.max(1) as f64, samples: VecDeque::with_capacity(KEPT) }
    }

    pub(crate) fn add(&mut self, sample: Sample) {
        if self.samples.back().is_some_and(|last| sample.ticks <= last.ticks || sample.time <= last.time) {
            return;
        }
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Returns the common clock's time at these ticks; `None` without a sample.
    pub(crate) fn time(&self, ticks: i64) -> Option<i64> {
        let later = self.samples.partition_point(|sample| sample.ticks <= ticks);
        let before = later.checked_sub(1).and_then(|index| self.samples.get(index));
        let (from, nanoseconds_per_tick) = match (before, self.samples.get(later)) {
            (Some(before), Some(after)) => {
                (before, (after.time - before.time) as f64 / (after.ticks - before.ticks) as f64)
            }
            (Some(only), None) | (None, Some(only)) => (only, 1e9 / self.ticks_per_second),
            (None, None) => return None,
        };
        Some(from.time + ((ticks - from.ticks) as f64 * nanoseconds_per_tick).round() as i64)
    }
}

#[derive(Debug)]
pub(crate) struct Clocks {
    /// Nanoseconds to add to the monotonic clock.
    pub(crate) offset: i64,
    names: Vec<String>,
    relations: Vec<Relation>,
}

impl Clocks {
    pub(crate) fn new() -> Clocks {
        Clocks { offset: calendar_offset(), names: Vec::new(), relations: Vec::new() }
    }

    /// Reads the clocks of all present sources.
    pub(crate) fn sample(&mut self) {
        for index in 0..mpi::source_count() {
            if self.relations.len() == index as usize {
                let Ok(source) = mpi::source(index) else { return };
                self.names.push(source.name);
                self.relations.push(Relation::new(source.ticks_per_second));
            }
            if let Some(sample) = self.read(index) {
                self.relations[index as usize].add(sample);
            }
        }
    }

    fn read(&self, source: i32) -> Option<Sample> {
        let (ticks, monotonic) = closest(|| mpi::source_now(source))?;
        Some(Sample { ticks, time: monotonic + self.offset })
    }

    pub(crate) fn name(&self, source: u8) -> &str {
        self.names.get(usize::from(source)).map_or("?", String::as_str)
    }

    /// Returns the common clock's time at a source's ticks; `None` if it is unknown.
    pub(crate) fn time(&self, source: u8, ticks: i64) -> Option<i64> {
        self.relations.get(usize::from(source))?.time(ticks)
    }
}

/// Returns the nanoseconds to add to the monotonic clock for the time of day.
pub(crate) fn calendar_offset() -> i64 {
    let (calendar, monotonic) = closest(|| Some(mpi::calendar())).unwrap_or_default();
    calendar - monotonic
}

/// Returns the reading of a clock, and that of the monotonic clock at the same time.
fn closest(clock: impl Fn() -> Option<i64>) -> Option<(i64, i64)> {
    let Reading { shown, around: (before, after) } = narrowest(clock)?;
    Some((shown, before + (after - before) / 2))
}

/// Reading of a clock, and those of the monotonic clock before and after.
pub(crate) struct Reading {
    pub(crate) shown: i64,
    pub(crate) around: (i64, i64),
}

/// Returns the fastest of a few readings of a clock.
pub(crate) fn narrowest(clock: impl Fn() -> Option<i64>) -> Option<Reading> {
    let reading = |_| {
        let before = mpi::monotonic();
        let shown = clock()?;
        Some(Reading { shown, around: (before, mpi::monotonic()) })
    };
    (0..READINGS).filter_map(reading).min_by_key(|reading| reading.around.1 - reading.around.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_samples_time_goes_straight_whatever_the_rate_was_said_to_be() {
        let mut relation = Relation::new(1);
        relation.add(Sample { ticks: 1000, time: 5_000_000 });
        relation.add(Sample { ticks: 3000, time: 9_000_000 });
        assert_eq!(relation.time(1000), Some(5_000_000));
        assert_eq!(relation.time(1500), Some(6_000_000));
        assert_eq!(relation.time(3000), Some(9_000_000));
    }

    #[test]
    fn beyond_the_samples_the_sources_own_rate_counts_from_the_nearer_one() {
        let mut relation = Relation::new(1_000_000);
        assert_eq!(relation.time(5), None);
        relation.add(Sample { ticks: 100, time: 1_000_000 });
        assert_eq!((relation.time(99), relation.time(101)), (Some(999_000), Some(1_001_000)));
        relation.add(Sample { ticks: 200, time: 2_000_000 });
        assert_eq!((relation.time(90), relation.time(210)), (Some(990_000), Some(2_010_000)));
    }

    #[test]
    fn later_ticks_are_never_earlier_over_many_samples() {
        let mut relation = Relation::new(1_000_000_000);
        let (mut last, mut time) = (i64::MIN, 0);
        for round in 1..200_i64 {
            // A clock that is up to 300 ppm too fast or too slow.
            time += 1_000_000 + round % 7 * 100 - 300;
            relation.add(Sample { ticks: round * 1_000_000, time });
            for ticks in (round - 1) * 1_000_000..(round - 1) * 1_000_000 + 50 {
                let now = relation.time(ticks).expect("sampled");
                assert!(now >= last, "{ticks}");
                last = now;
            }
        }
    }

    #[test]
    fn an_event_that_is_delivered_late_keeps_its_place() {
        // The clock is said to count nanoseconds, and counts 1 % fewer.
        let mut relation = Relation::new(1_000_000_000);
        let sample = |round: i64| Sample { ticks: round * 990_000, time: round * 1_000_000 };
        (1..3).for_each(|round| relation.add(sample(round)));
        let then = relation.time(1_485_000);
        (3..=KEPT as i64).for_each(|round| relation.add(sample(round)));
        assert_eq!((then, relation.time(1_485_000)), (Some(1_500_000), then));
    }

    #[test]
    fn the_clock_goes_by_the_calendar() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let here = mpi::monotonic() + Clocks::new().offset;
        assert!(here.abs_diff(now.as_nanos() as i64) < 10_000_000_000, "{here}, {now:?}");
    }

    #[test]
    fn a_sample_that_goes_back_is_not_taken() {
        let mut relation = Relation::new(1_000_000_000);
        relation.add(Sample { ticks: 100, time: 100 });
        relation.add(Sample { ticks: 90, time: 200 });
        assert_eq!(relation.time(110), Some(110));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common clock: nanoseconds since 1970, from the ticks of any source.
//!
//! Each source's clock is read now and then, between two readings of the host's ([`Clocks::sample`]). Between two samples the
//! relation is a straight line, so an error of neither clock's rate adds up; beyond them the source's own rate is used. The
//! host's clock is the monotonic one, put on the calendar once, so that no setting of the calendar turns back a log. Grade:
//! pending. Threads: the owner's. Tests: below.

use std::time::{Duration, Instant, SystemTime};

use crate::mpi;

/// How often a source's clock is read for one sample; the reading that took the least time counts.
const READINGS: usize = 5;

/// When a source's clock showed what.
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
    before: Option<Sample>,
    last: Option<Sample>,
}

impl Relation {
    /// Of a clock with this rate.
    pub(crate) fn new(ticks_per_second: i64) -> Relation {
        Relation { ticks_per_second: ticks_per_second.max(1) as f64, before: None, last: None }
    }

    /// Takes a new sample.
    pub(crate) fn add(&mut self, sample: Sample) {
        if self.last.is_none_or(|last| sample.ticks > last.ticks && sample.time > last.time) {
            self.before = self.last;
            self.last = Some(sample);
        }
    }

    /// The common clock's time at these ticks; `None` without a sample.
    pub(crate) fn time(&self, ticks: i64) -> Option<i64> {
        let last = self.last?;
        let Some(before) = self.before.filter(|before| (before.ticks..last.ticks).contains(&ticks)) else {
            // Outside: from the nearer sample, by the source's own rate.
            let near = self.before.filter(|before| ticks < before.ticks).unwrap_or(last);
            return Some(near.time + ((ticks - near.ticks) as f64 / self.ticks_per_second * 1e9).round() as i64);
        };
        let part = (ticks - before.ticks) as f64 / (last.ticks - before.ticks) as f64;
        Some(before.time + (part * (last.time - before.time) as f64).round() as i64)
    }
}

/// The clocks of all sources.
#[derive(Debug)]
pub(crate) struct Clocks {
    start: Instant,
    /// Nanoseconds since 1970 at `start`.
    epoch: i64,
    names: Vec<String>,
    relations: Vec<Relation>,
}

impl Clocks {
    /// No source yet.
    pub(crate) fn new() -> Clocks {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let epoch = since_1970.as_nanos() as i64;
        Clocks { start: Instant::now(), epoch, names: Vec::new(), relations: Vec::new() }
    }

    /// Reads the clocks of all sources there are now.
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
        let reading = |_| {
            let before = self.start.elapsed();
            let ticks = mpi::source_now(source)?;
            let took = self.start.elapsed().checked_sub(before)?;
            let time = self.epoch + (before + took / 2).as_nanos() as i64;
            Some((took, Sample { ticks, time }))
        };
        (0..READINGS).filter_map(reading).min_by_key(|(took, _)| *took).map(|(_, sample)| sample)
    }

    /// The source's name.
    pub(crate) fn name(&self, source: u32) -> &str {
        self.names.get(source as usize).map_or("?", String::as_str)
    }

    /// The common clock's time at a source's ticks; `None` where that cannot be told.
    pub(crate) fn time(&self, source: u32, ticks: i64) -> Option<i64> {
        self.relations.get(source as usize)?.time(ticks)
    }
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
            // A clock that goes up to 300 millionths too fast or too slow.
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
    fn a_sample_that_goes_back_is_not_taken() {
        let mut relation = Relation::new(1_000_000_000);
        relation.add(Sample { ticks: 100, time: 100 });
        relation.add(Sample { ticks: 90, time: 200 });
        assert_eq!(relation.time(110), Some(110));
    }
}

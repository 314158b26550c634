// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readings of clocks: of a source's for a trace, and of the calendar, between two readings of the host's monotonic
//! clock. Called by the recorders (event-log, provider). Grade: pending. Threads: any. Tests: below.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::{Clock, ClockSample};
use crate::head::Source;

/// Time from one sample of the sources' clocks to the next, in a recorder.
pub const SAMPLE: Duration = Duration::from_millis(50);

/// Number of readings for one sample; the fastest one counts.
const READINGS: usize = 5;

impl Source {
    /// Whether its ticks are those of the host's monotonic clock.
    pub fn is_host(&self) -> bool {
        self.name.starts_with("host:") && self.ticks_per_second == 1_000_000_000
    }
}

impl ClockSample {
    /// Reads the clock of the source with this number by `now`. `is_host`: [`Source::is_host`].
    pub fn of_source(
        source: u8,
        is_host: bool,
        monotonic: impl Fn() -> i64,
        now: impl Fn() -> Option<i64>,
    ) -> Option<ClockSample> {
        let Reading { shown, around: (before, after) } = narrowest(monotonic, now)?;
        // If it is the same clock, its rate is known, and the reading itself is exact.
        let is_exact = is_host && (before..=after).contains(&shown);
        let (before, after) = if is_exact { (shown, shown) } else { (before, after) };
        Some(ClockSample { clock: Clock::Source(source), shown: u64::try_from(shown).ok()?, before, after })
    }
}

/// Returns the nanoseconds to add to the monotonic clock for the time of day.
pub fn calendar_offset(monotonic: impl Fn() -> i64) -> i64 {
    let now = || i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok();
    let reading = narrowest(monotonic, now);
    reading.map_or(0, |Reading { shown, around: (before, after) }| shown - before.midpoint(after))
}

/// Reading of a clock, and those of the monotonic clock before and after.
struct Reading {
    shown: i64,
    around: (i64, i64),
}

fn narrowest(monotonic: impl Fn() -> i64, clock: impl Fn() -> Option<i64>) -> Option<Reading> {
    let reading = |_| {
        let before = monotonic();
        let shown = clock()?;
        Some(Reading { shown, around: (before, monotonic()) })
    };
    (0..READINGS).filter_map(reading).min_by_key(|reading| reading.around.1 - reading.around.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_fastest_reading_counts_and_one_of_the_hosts_own_clock_is_exact() {
        let reads = || {
            let left = Cell::new(0);
            move || [0, 50, 100, 110, 200, 290, 300, 390, 400, 490][left.replace(left.get() + 1)]
        };
        let sample = ClockSample::of_source(3, false, reads(), || Some(105)).expect("read");
        assert_eq!(sample, ClockSample { clock: Clock::Source(3), shown: 105, before: 100, after: 110 });
        let sample = ClockSample::of_source(0, true, reads(), || Some(105)).expect("read");
        assert_eq!((sample.before, sample.after), (105, 105));
        assert_eq!(ClockSample::of_source(0, true, || 0, || None), None);
    }

    #[test]
    fn the_calendar_is_that_of_the_system() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as i64;
        assert!(calendar_offset(|| 77).abs_diff(now - 77) < 10_000_000_000);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of the sources' clocks, and the common clock of the text: nanoseconds since 1970, from the ticks of any
//! source by its latest samples ([`Relation`]). The host's clock is the monotonic one, which all ranks of a host share,
//! with an offset to the time of day measured once, so that a change of the time of day never turns a log back. Called
//! by `writer.rs` and `recording.rs`. Grade: pending. Threads: the owner's. Tests: below; tests/log.rs.

use std::ffi::c_int;

use ibex_trace::{Clock, ClockSample, Relation, Source};

use crate::mpi;

/// Number of readings of a source's clock for one sample; the fastest one counts.
const READINGS: usize = 5;

/// Number of samples of a source that are kept: an event may be delivered that many passes of the writing thread late.
const KEPT: usize = 16;

pub(crate) struct Clocks {
    /// Nanoseconds to add to the monotonic clock.
    pub(crate) offset: i64,
    sources: Vec<Sampled>,
}

struct Sampled {
    name: String,
    is_host: bool,
    relation: Relation,
}

impl Clocks {
    pub(crate) fn new() -> Clocks {
        Clocks { offset: calendar_offset(), sources: Vec::new() }
    }

    pub(crate) fn sample(&mut self) {
        for index in 0..mpi::source_count().unsigned_abs() as usize {
            if self.sources.len() == index {
                let Ok(source) = mpi::source(index as c_int) else { return };
                let (is_host, relation) = (is_host(&source), Relation::new(source.ticks_per_second.max(1)));
                self.sources.push(Sampled { name: source.name, is_host, relation });
            }
            let Sampled { is_host, relation, .. } = &mut self.sources[index];
            if let Some(sample) = sample(index, *is_host) {
                relation.add(sample);
                relation.keep(KEPT);
            }
        }
    }

    pub(crate) fn name(&self, source: u8) -> &str {
        self.sources.get(usize::from(source)).map_or("?", |source| &source.name)
    }

    /// Returns the common clock's time at a source's ticks; `None` if it is unknown.
    pub(crate) fn time(&self, source: u8, ticks: u64) -> Option<i64> {
        Some(self.sources.get(usize::from(source))?.relation.time(ticks)? + self.offset)
    }
}

/// Returns whether a source's ticks are those of the host's monotonic clock.
pub(crate) fn is_host(source: &Source) -> bool {
    source.name.starts_with("host:") && source.ticks_per_second == 1_000_000_000
}

/// Returns the time of a source's clock, between two readings of the host's.
pub(crate) fn sample(source: usize, is_host: bool) -> Option<ClockSample> {
    let Reading { shown, around: (before, after) } = narrowest(|| mpi::source_now(source as c_int))?;
    // If it is the same clock, its rate is known, and the reading itself is exact.
    let (before, after) = if is_host && (before..=after).contains(&shown) { (shown, shown) } else { (before, after) };
    Some(ClockSample { clock: Clock::Source(source as u8), shown: u64::try_from(shown).ok()?, before, after })
}

/// Returns the nanoseconds to add to the monotonic clock for the time of day.
pub(crate) fn calendar_offset() -> i64 {
    let reading = narrowest(|| Some(mpi::calendar()));
    reading.map_or(0, |Reading { shown, around: (before, after) }| shown - before.midpoint(after))
}

/// Reading of a clock, and those of the monotonic clock before and after.
struct Reading {
    shown: i64,
    around: (i64, i64),
}

fn narrowest(clock: impl Fn() -> Option<i64>) -> Option<Reading> {
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
    fn the_common_clock_shows_the_time_of_day() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let here = mpi::monotonic() + Clocks::new().offset;
        assert!(here.abs_diff(now.as_nanos() as i64) < 10_000_000_000, "{here}, {now:?}");
    }
}

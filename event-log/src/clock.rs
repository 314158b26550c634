// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of the sources' clocks, and the common clock of the text: nanoseconds since 1970, from the ticks of any
//! source by its latest samples ([`Relation`]). The host's clock is the monotonic one, which all ranks of a host share,
//! with an offset to the time of day measured once, so that a change of the time of day never turns a log back. Called
//! by `writer.rs` and `recording.rs`. Grade: pending. Threads: the owner's. Tests: below; tests/log.rs.

use std::ffi::c_int;

use ibex_trace::{ClockSample, Relation};

use crate::mpi;

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
                let (is_host, relation) = (source.is_host(), Relation::new(source.ticks_per_second.max(1)));
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

/// Returns the time of a source's clock, between two readings of the host's.
pub(crate) fn sample(source: usize, is_host: bool) -> Option<ClockSample> {
    ClockSample::of_source(source as u8, is_host, mpi::monotonic, || mpi::source_now(source as c_int))
}

/// Returns the nanoseconds to add to the monotonic clock for the time of day.
pub(crate) fn calendar_offset() -> i64 {
    ibex_trace::calendar_offset(mpi::monotonic)
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

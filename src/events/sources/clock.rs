// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's clock: the processor's time stamp counter, or else the monotonic clock; chosen at the first use
//! ([`HostClock::get`], 10 to 50 ms). [`HostClock`] uses the counter if the processor guarantees a constant rate
//! without stops, the kernel uses it (so the processors' counters agree), and a measurement here finds a constant rate.
//! It costs a third of a reading of the monotonic clock. Grade: hot for [`HostClock::now`], else setup. Threads: any.
//! Units: ticks; one per cycle of the counter, or one per ns. Tests: below.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ibex_ffi::clock::{HAS_COUNTER, counter, monotonic};

static CLOCK: OnceLock<HostClock> = OnceLock::new();

/// The clock that stamps events of threads.
#[derive(Debug)]
pub struct HostClock {
    counter: bool,
    ticks_per_second: u64,
    start: u64,
    refusal: Option<String>,
}

const MEASURED: Duration = Duration::from_millis(10);

/// Number of parts of the measurement, whose rates must agree within [`TOLERANCE`].
const PARTS: u32 = 5;

/// Well above the error of a part of 2 ms (two readings, each off by less than 1 us). The rest allows for preemption.
const TOLERANCE: f64 = 2e-3;

impl HostClock {
    /// The process's clock.
    #[inline]
    pub fn get() -> &'static HostClock {
        CLOCK.get_or_init(HostClock::choose)
    }

    /// The current time, ticks. Never decreases within a thread.
    #[inline]
    pub fn now(&self) -> u64 {
        if self.counter { counter() } else { monotonic() - self.start }
    }

    /// Whether this is the processor's counter, unscaled.
    pub(in crate::events) fn is_counter(&self) -> bool {
        self.counter
    }

    /// Rate of the clock.
    pub fn ticks_per_second(&self) -> u64 {
        self.ticks_per_second
    }

    /// Converts nanoseconds to ticks.
    pub fn ticks(&self, nanoseconds: u64) -> u64 {
        (nanoseconds as f64 * self.ticks_per_second as f64 / 1e9) as u64
    }

    /// Name of the clock, with the reason if it is not the counter.
    pub fn description(&self) -> String {
        match &self.refusal {
            None => "the processor's time stamp counter".to_owned(),
            Some(reason) => format!("the monotonic clock, because {reason}"),
        }
    }

    #[cold]
    fn choose() -> HostClock {
        let start = monotonic();
        // A second measurement takes four times as long: readings are slow on a busy machine and under valgrind.
        let measured = || measure(read_both, MEASURED).or_else(|_| measure(read_both, 4 * MEASURED));
        let judged = kernel_goes_by_counter().and_then(|()| measured());
        match judged {
            Ok(ticks_per_second) => HostClock { counter: true, ticks_per_second, start, refusal: None },
            Err(reason) => HostClock { counter: false, ticks_per_second: 1_000_000_000, start, refusal: Some(reason) },
        }
    }
}

/// A timestamp of the host's clock.
#[derive(Debug, Clone, Copy)]
pub struct HostTimestamp(pub(in crate::events) u64);

/// Reads the host's clock. Called before an operation is posted, for an event that is raised after it.
#[inline]
pub fn host_timestamp() -> HostTimestamp {
    HostTimestamp(HostClock::get().now())
}

fn kernel_goes_by_counter() -> Result<(), String> {
    if !HAS_COUNTER {
        return Err("this processor has no time stamp counter".into());
    }
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"));
    let flags = read("/proc/cpuinfo")?;
    let flags = flags.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    for wanted in ["constant_tsc", "nonstop_tsc"] {
        if !flags.split_whitespace().any(|flag| flag == wanted) {
            return Err(format!("the processor does not say {wanted}"));
        }
    }
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    if source.trim() == "tsc" { Ok(()) } else { Err(format!("the kernel goes by {}", source.trim())) }
}

/// Reads the counter between two readings of the monotonic clock; returns it with the middle of the two.
fn read_both() -> (u64, Instant) {
    // The narrowest of several, as the thread may be preempted between two readings.
    let read = || {
        let before = Instant::now();
        let ticks = counter();
        let width = before.elapsed();
        (width, ticks, before + width / 2)
    };
    let (_, ticks, at) = (0..8).map(|_| read()).min_by_key(|(width, ..)| *width).unwrap_or_else(read);
    (ticks, at)
}

fn measure(read: impl Fn() -> (u64, Instant), duration: Duration) -> Result<u64, String> {
    let first = read();
    let rate = |from: (u64, Instant), to: (u64, Instant)| {
        to.0.checked_sub(from.0)
            .map(|ticks| ticks as f64 / to.1.duration_since(from.1).as_secs_f64())
            .filter(|rate| *rate > 1e6 && *rate < 1e11)
            .ok_or_else(|| format!("the time stamp counter went from {} to {} in a short time", from.0, to.0))
    };
    let (mut last, mut slowest, mut fastest) = (first, f64::INFINITY, 0.0_f64);
    for _ in 0..PARTS {
        // From the last reading on: after a preemption the next part would otherwise be too short to measure.
        while last.1.elapsed() < duration / PARTS {
            std::hint::spin_loop();
        }
        let now = read();
        let here = rate(last, now)?;
        (slowest, fastest, last) = (slowest.min(here), fastest.max(here), now);
    }
    if fastest - slowest > slowest * TOLERANCE {
        return Err(format!("the time stamp counter's rate varied from {slowest:.0} to {fastest:.0} per second"));
    }
    Ok(rate(first, last)?.round() as u64)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances_at_its_own_rate_and_says_what_it_is() {
        let clock = HostClock::get();
        let reading = || (Instant::now(), clock.now(), Instant::now());
        let begin = reading();
        while begin.2.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let end = reading();
        let seconds = (end.1 - begin.1) as f64 / clock.ticks_per_second() as f64;
        let (least, most) = ((end.0 - begin.2).as_secs_f64(), (end.2 - begin.0).as_secs_f64());
        assert!((0.99 * least..1.01 * most).contains(&seconds), "{seconds} s, {}", clock.description());
        assert!(clock.description().contains("the "));
    }

    #[test]
    fn measure_accepts_a_steady_counter_and_refuses_an_unsteady_one() {
        let start = Instant::now();
        let duration = Duration::from_millis(5);
        let steady = || {
            let now = Instant::now();
            (now.duration_since(start).as_nanos() as u64 * 2, now)
        };
        let rate = measure(steady, duration).expect("it is steady");
        assert!(rate.abs_diff(2_000_000_000) < 100_000, "{rate}");
        let warped = || {
            let now = Instant::now();
            let ns = now.duration_since(start).as_nanos() as f64;
            ((ns * ns / 1e6) as u64 + 1, now)
        };
        let refusal = measure(warped, duration).expect_err("it speeds up");
        assert!(refusal.contains("varied") || refusal.contains("went from"), "{refusal}");
        let stopped = || (5, Instant::now());
        assert!(measure(stopped, duration).expect_err("it stands still").contains("went from 5 to 5"));
    }
}

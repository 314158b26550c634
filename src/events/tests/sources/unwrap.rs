// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timestamps are extended beyond the mask exactly or not at all, for any rate of the clock, silences and lags.

use crate::events::sources::unwrap::Unwrap;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The adapter's true clock at a host's time, in ticks of 1 GHz nominal.
fn truth(start: u64, ppm: f64, host: u64) -> u64 {
    start + (host as f64 * (1.0 + ppm * 1e-6)) as u64
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Simulates polls at `host` that read all earlier completions.
fn drain(unwrap: &mut Unwrap, host: u64) {
    (0..2).for_each(|_| unwrap.progressed(host, CALLS.fetch_add(32, Ordering::Relaxed) + 32));
}

#[test]
fn unwrap_leaves_the_stamps_of_a_clock_that_does_not_wrap_alone() {
    let mut unwrap = Unwrap::new(64, 1.0);
    for raw in [5, 3, u64::MAX, 0] {
        assert_eq!(unwrap.unwrap(raw, 10), Some(raw));
    }
}

#[test]
fn an_earlier_stamp_after_the_wrap_goes_before_it() {
    let mut unwrap = Unwrap::new(16, 1.0);
    let mut place = |raw, host| unwrap.unwrap(raw, host).expect("within the period");
    let (first, wrapped, earlier) = (place(0xff00, 1000), place(0x0010, 1000 + 0x110), place(0xfff0, 1000 + 0x112));
    assert_eq!((wrapped - first, wrapped - earlier), (0x110, 0x20));
}

#[test]
fn a_stamp_earlier_than_the_first_one_gets_an_earlier_time() {
    let mut unwrap = Unwrap::new(16, 1.0);
    let first = unwrap.unwrap(2, 1000);
    assert_eq!(first.zip(unwrap.unwrap(0xfffe, 1001)).map(|(first, before)| first - before), Some(4));
}

/// A program computes for most of a period of 32 bits, 4.29 s at 1 GHz, or longer, between two calls of MPI.
#[test]
fn a_stamp_read_after_the_clock_wrapped_is_extended_only_if_an_earlier_lap_is_impossible() {
    const SECOND: u64 = 1_000_000_000;
    let mask = u64::from(u32::MAX);
    let mut host = 10 * SECOND;
    let mut unwrap = Unwrap::new(32, 1.0);
    let away = unwrap.observe(host & mask, host, 100).wrapping_sub(host);
    for (computed, ago, placed) in [
        (3.9, 3.85, true),
        (6.0, 5.5, false),
        (6.0, 4.5, false),
        (6.0, 0.5, false),
        // A lap earlier is 7.3 s ago: a poll before the computation would have read the stamp.
        (6.0, 3.0, true),
        (60.0, 3.0, false),
    ] {
        drain(&mut unwrap, host);
        let ticks = |seconds: f64| (seconds * SECOND as f64) as u64;
        host += ticks(computed);
        let happened = host - ticks(ago);
        let got = unwrap.unwrap(happened & mask, host);
        assert_eq!(got, placed.then_some(happened.wrapping_add(away)), "{ago} s ago, after {computed} s");
    }
}

#[test]
fn polls_make_stamps_certain_again_only_once_they_have_emptied_the_queue() {
    let mut unwrap = Unwrap::new(16, 1.0);
    let first = unwrap.observe(0, 1 << 16, 0);
    unwrap.progressed(1 << 16, 1000);
    let host = 100 << 16;
    for calls in [1010, 1031, 1032, 1063] {
        unwrap.progressed(host, calls);
        assert_eq!(unwrap.unwrap(0xffff, host), None, "it may have waited in the queue for 98 periods");
    }
    unwrap.progressed(host, 1064);
    assert_eq!(unwrap.unwrap(5, host + 10), Some(first + (99 << 16) + 5));
}

#[test]
fn a_clock_that_can_be_read_must_be_read_before_drift_could_misplace_a_stamp() {
    let period = 1 << 16;
    let mut unwrap = Unwrap::new(16, 1.0);
    assert!(unwrap.unwrap(5, period).is_some() && !unwrap.is_stale(1000 * period), "it was not asked before");
    unwrap.observe(7, 1000 * period, 0);
    assert!(!unwrap.is_stale(1100 * period) && unwrap.is_stale(1150 * period));
}

proptest! {
    /// The clock drifts, stamps are read with lags, and for many periods the queue is polled but empty. All extended
    /// stamps differ from the true time by the same constant.
    #[test]
    fn unwrap_extends_every_stamp_exactly(
        bits in 16_u32..48,
        start in any::<u32>(),
        ppm in -200.0..200.0_f64,
        steps in proptest::collection::vec((0.0..60.0_f64, 0.0..0.6_f64, any::<bool>()), 1..80),
    ) {
        let period = 1_u64 << bits;
        let mut unwrap = Unwrap::new(bits, 1.0);
        let (mut host, mut constant) = (period * 2, None);
        for (silence, lag, prompt) in steps {
            // Some stamps are read promptly, as the head of `unwrap.rs` requires.
            host += (period as f64 * silence) as u64 + 1;
            let lag = if prompt || constant.is_none() { 0 } else { (period as f64 * lag) as u64 };
            drain(&mut unwrap, host - lag - 1);
            let ticks = truth(u64::from(start), ppm, host) - lag;
            let got = unwrap.unwrap(ticks & (period - 1), host);
            let away = got.map(|got| got.wrapping_sub(ticks));
            prop_assert!(away.is_some());
            prop_assert_eq!(away, *constant.get_or_insert(away));
            if lag > 0 {
                host += 10;
                let now = truth(u64::from(start), ppm, host);
                prop_assert_eq!(unwrap.unwrap(now & (period - 1), host).map(|got| got.wrapping_sub(now)), away);
            }
        }
    }

    /// The adapter's clock is read now and then. Whatever the lags and the program's pauses, a stamp is extended
    /// exactly or not at all; it is extended if the queue was empty less than a period ago.
    #[test]
    fn unwrap_extends_a_stamp_exactly_or_not_at_all(
        bits in 16_u32..48,
        ppm in -200.0..200.0_f64,
        steps in proptest::collection::vec((0.0..50.0_f64, 0.0..3.0_f64, 0.0..1.0_f64, any::<bool>()), 1..120),
    ) {
        let period = 1_u64 << bits;
        let of_period = |fraction: f64| (period as f64 * fraction) as u64;
        let mut unwrap = Unwrap::new(bits, 1.0);
        let mut host = period * 4;
        let base = truth(7, ppm, host);
        let away = unwrap.observe(base & (period - 1), host, 0).wrapping_sub(base);
        for (silence, computed, lag, asked) in steps {
            // The queue is polled all the time, then not while the program computes; meanwhile an operation completes.
            host += of_period(silence) + 2;
            drain(&mut unwrap, host);
            if asked || unwrap.is_stale(host) {
                let now = truth(7, ppm, host);
                prop_assert_eq!(unwrap.observe(now & (period - 1), host, 0).wrapping_sub(now), away);
            }
            let before = host;
            host += of_period(computed) + 2;
            let happened = host - ((host - before - 1) as f64 * lag) as u64;
            let ticks = truth(7, ppm, happened);
            let got = unwrap.unwrap(ticks & (period - 1), host);
            prop_assert!(got.is_none_or(|got| got.wrapping_sub(ticks) == away), "{:?} {} {}", got, ticks, away);
            // The floor has a margin of a sixteenth of a period, and the clocks have drifted since the last reading.
            prop_assert!(got.is_some() || computed >= 0.85);
        }
    }

    /// If the adapter's clock is read now and then, lags and silences alone do not cause errors.
    #[test]
    fn readings_of_the_adapters_clock_keep_all_stamps_exact(
        ppm in -400.0..400.0_f64,
        lags in proptest::collection::vec(0.0..0.9_f64, 1..200),
    ) {
        let period = 1_u64 << 24;
        let mut unwrap = Unwrap::new(24, 1.0);
        let mut host = period * 2;
        let base = truth(7, ppm, host);
        let away = unwrap.observe(base & (period - 1), host, 0).wrapping_sub(base);
        for (index, lag) in lags.into_iter().enumerate() {
            host += period / 3;
            if index % 50 == 0 {
                let now = truth(7, ppm, host);
                prop_assert_eq!(unwrap.observe(now & (period - 1), host, 0).wrapping_sub(now), away);
            }
            let lag = (period as f64 * lag) as u64;
            drain(&mut unwrap, host - lag - 1);
            let ticks = truth(7, ppm, host) - lag;
            let got = unwrap.unwrap(ticks & (period - 1), host);
            prop_assert_eq!(got.map(|got| got.wrapping_sub(ticks)), Some(away));
        }
    }
}

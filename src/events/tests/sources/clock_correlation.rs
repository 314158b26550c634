// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relation of two clocks: the truth is always within the bound, which is small if the samples are good.

use crate::events::ClockSample;
use crate::events::sources::clock_correlation::ClockCorrelation;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// An adapter's clock of nominally 2.5 GHz beside a host's of 1 GHz, off by `ppm`, which itself varies by `sway` ppm.
struct Adapter {
    ppm: f64,
    sway: f64,
}

impl Adapter {
    fn shows(&self, host: u64) -> u64 {
        let seconds = host as f64 / SECOND as f64;
        let sway = self.sway * (1.0 - (seconds * 0.7).cos()) / 0.7;
        let seconds = seconds * (1.0 + self.ppm * 1e-6) + sway * 1e-6;
        (seconds * 2.5e9) as u64 + 77_000
    }
}

fn fit() -> ClockCorrelation {
    ClockCorrelation::new(1.0 / 2.5, SECOND / 10)
}

fn sampled(adapter: &Adapter, from: u64, seconds: u64, width: u64) -> ClockCorrelation {
    let mut fit = fit();
    for tenth in 0..seconds * 10 {
        let host = from + tenth * SECOND / 10;
        fit.add(ClockSample { before: host - width / 3, ticks: adapter.shows(host), after: host + width - width / 3 });
    }
    fit
}

#[test]
fn a_relation_without_samples_gives_no_time() {
    assert_eq!(fit().to_host(5), None);
    assert_eq!(fit().to_adapter(5), None);
}

#[test]
fn one_sample_gives_a_bound_that_grows_by_what_clocks_may_drift() {
    let mut fit = fit();
    fit.add(ClockSample { before: 1000, ticks: 50_000, after: 1100 });
    let near = fit.to_host(50_000).expect("a sample");
    assert!(near.ticks.abs_diff(1050) <= 1 && (50..=52).contains(&near.error), "{near:?}");
    let far = fit.to_host(50_000 + 2_500_000_000).expect("a sample");
    assert!(far.error >= 500_000 && far.error < 501_000, "{far:?}");
}

#[test]
fn within_the_window_the_bound_is_about_the_samples_width() {
    let adapter = Adapter { ppm: 80.0, sway: 0.0 };
    let fit = sampled(&adapter, 5 * SECOND, 5, 200);
    let host = 9 * SECOND + 50_000_000;
    let got = fit.to_host(adapter.shows(host)).expect("samples");
    assert!(got.ticks.abs_diff(host) <= got.error && got.error < 600, "{got:?}, not {host}");
}

#[test]
fn a_step_of_the_clock_begins_a_new_window() {
    let adapter = Adapter { ppm: 0.0, sway: 0.0 };
    let mut fit = sampled(&adapter, SECOND, 3, 100);
    let (host, ticks) = (5 * SECOND, adapter.shows(5 * SECOND) + 2_500_000_000);
    fit.add(ClockSample { before: host, ticks, after: host + 100 });
    let got = fit.to_host(ticks + 2500).expect("a sample");
    assert!(got.ticks.abs_diff(host + 1050) <= got.error && got.error < 60, "{got:?}");
}

#[test]
fn a_narrow_sample_replaces_a_wide_one_close_to_it_and_never_the_other_way_round() {
    let mut fit = fit();
    fit.add(ClockSample { before: 1000, ticks: 50_000, after: 1100 });
    fit.add(ClockSample { before: 1200, ticks: 50_500, after: 9000 });
    assert_eq!(fit.to_host(50_000).map(|got| got.error <= 52), Some(true));
    fit.add(ClockSample { before: 2000, ticks: 52_500, after: 2010 });
    assert_eq!(fit.to_host(52_500).map(|got| got.error <= 7), Some(true));
    assert!(!fit.wants(3000) && fit.wants(SECOND));
}

proptest! {
    #[test]
    fn the_truth_is_within_the_bound(
        ppm in -300.0..300.0_f64,
        sway in 0.0..2.0_f64,
        from in SECOND..1000 * SECOND,
        width in 20_u64..20_000,
        asked in proptest::collection::vec(-2.0..6.0_f64, 1..40),
    ) {
        let adapter = Adapter { ppm, sway };
        let from = from + 10 * SECOND;
        let fit = sampled(&adapter, from, 4, width);
        for seconds in asked {
            let host = from.saturating_add_signed((seconds * SECOND as f64) as i64);
            let there = fit.to_host(adapter.shows(host)).expect("samples");
            prop_assert!(there.ticks.abs_diff(host) <= there.error, "{:?}, not {}", there, host);
            let back = fit.to_adapter(host).expect("samples");
            prop_assert!(back.ticks.abs_diff(adapter.shows(host)) <= back.error, "{:?} at {}", back, host);
        }
    }
}

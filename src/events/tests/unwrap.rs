// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timestamps carried past the mask: exactly, whatever the clock's rate, the silences and the lags.

use crate::events::unwrap::Unwrap;
use proptest::prelude::*;

/// The adapter's true clock at a host's time, in ticks of 1 GHz nominal.
fn truth(start: u64, ppm: f64, host: u64) -> u64 {
    start + (host as f64 * (1.0 + ppm * 1e-6)) as u64
}

#[test]
fn a_clock_that_does_not_wrap_is_taken_as_it_is() {
    let mut unwrap = Unwrap::new(64, 1.0);
    for raw in [5, 3, u64::MAX, 0] {
        assert_eq!(unwrap.ticks(raw, 10), raw);
    }
}

#[test]
fn an_earlier_stamp_after_the_wrap_goes_before_it() {
    let mut unwrap = Unwrap::new(16, 1.0);
    let first = unwrap.ticks(0xff00, 1000);
    let wrapped = unwrap.ticks(0x0010, 1000 + 0x110);
    let earlier = unwrap.ticks(0xfff0, 1000 + 0x112);
    assert_eq!((wrapped - first, wrapped - earlier), (0x110, 0x20));
}

#[test]
fn a_stamp_that_precedes_the_very_first_has_a_place_before_it() {
    let mut unwrap = Unwrap::new(16, 1.0);
    let first = unwrap.ticks(2, 1000);
    assert_eq!(first - unwrap.ticks(0xfffe, 1001), 4);
}

proptest! {
    /// Stamps of a drifting clock, read with lags and after silences of many periods, are one constant away from the truth.
    #[test]
    fn every_stamp_is_placed_exactly(
        bits in 16_u32..48,
        start in any::<u32>(),
        ppm in -200.0..200.0_f64,
        steps in proptest::collection::vec((0.0..60.0_f64, 0.0..0.6_f64, any::<bool>()), 1..80),
    ) {
        let period = 1_u64 << bits;
        let mut unwrap = Unwrap::new(bits, 1.0);
        let (mut host, mut constant) = (period * 2, None);
        for (silence, lag, prompt) in steps {
            // Some are read promptly, as the text of the file asks.
            host += (period as f64 * silence) as u64 + 1;
            let lag = if prompt || constant.is_none() { 0 } else { (period as f64 * lag) as u64 };
            let ticks = truth(u64::from(start), ppm, host) - lag;
            let got = unwrap.ticks(ticks & (period - 1), host);
            let away = got.wrapping_sub(ticks);
            prop_assert_eq!(away, *constant.get_or_insert(away));
            if lag > 0 {
                host += 10;
                let now = truth(u64::from(start), ppm, host);
                prop_assert_eq!(unwrap.ticks(now & (period - 1), host).wrapping_sub(now), away);
            }
        }
    }

    /// Where the adapter can be asked now and then, lags and silences alone do not mislead either.
    #[test]
    fn asking_the_adapter_keeps_the_place(
        ppm in -400.0..400.0_f64,
        lags in proptest::collection::vec(0.0..0.7_f64, 1..200),
    ) {
        let period = 1_u64 << 24;
        let mut unwrap = Unwrap::new(24, 1.0);
        let mut host = period * 2;
        let base = truth(7, ppm, host);
        let away = unwrap.observe(base & (period - 1), host).wrapping_sub(base);
        for (index, lag) in lags.into_iter().enumerate() {
            host += period / 3;
            if index % 50 == 0 {
                let now = truth(7, ppm, host);
                prop_assert_eq!(unwrap.observe(now & (period - 1), host).wrapping_sub(now), away);
            }
            let ticks = truth(7, ppm, host) - (period as f64 * lag) as u64;
            prop_assert_eq!(unwrap.ticks(ticks & (period - 1), host).wrapping_sub(ticks), away);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Static rates as multiples of 2.5 Gb/s and in Mb/s: `ibv_rate_to_mult(3)`, `ibv_rate_to_mbps(3)` and their inverses.
//! Grade: setup. Threads: any.

use std::ffi::c_int;

use crate::sys::{
    IBV_RATE_2_5_GBPS, IBV_RATE_5_GBPS, IBV_RATE_10_GBPS, IBV_RATE_14_GBPS, IBV_RATE_20_GBPS, IBV_RATE_25_GBPS,
    IBV_RATE_28_GBPS, IBV_RATE_30_GBPS, IBV_RATE_40_GBPS, IBV_RATE_50_GBPS, IBV_RATE_56_GBPS, IBV_RATE_60_GBPS,
    IBV_RATE_80_GBPS, IBV_RATE_100_GBPS, IBV_RATE_112_GBPS, IBV_RATE_120_GBPS, IBV_RATE_168_GBPS, IBV_RATE_200_GBPS,
    IBV_RATE_300_GBPS, IBV_RATE_400_GBPS, IBV_RATE_600_GBPS, IBV_RATE_800_GBPS, IBV_RATE_1200_GBPS, IBV_RATE_MAX,
    ibv_rate,
};

/// Each rate, its multiple of 2.5 Gb/s where it is a whole one by the table of the man page (-1: none), and its Mb/s on
/// the wire before encoding.
const RATES: &[(ibv_rate, c_int, c_int)] = &[
    (IBV_RATE_2_5_GBPS, 1, 2_500),
    (IBV_RATE_5_GBPS, 2, 5_000),
    (IBV_RATE_10_GBPS, 4, 10_000),
    (IBV_RATE_20_GBPS, 8, 20_000),
    (IBV_RATE_30_GBPS, 12, 30_000),
    (IBV_RATE_40_GBPS, 16, 40_000),
    (IBV_RATE_60_GBPS, 24, 60_000),
    (IBV_RATE_80_GBPS, 32, 80_000),
    (IBV_RATE_120_GBPS, 48, 120_000),
    (IBV_RATE_14_GBPS, -1, 14_062),
    (IBV_RATE_56_GBPS, -1, 56_250),
    (IBV_RATE_112_GBPS, -1, 112_500),
    (IBV_RATE_168_GBPS, -1, 168_750),
    (IBV_RATE_25_GBPS, -1, 25_781),
    (IBV_RATE_100_GBPS, -1, 103_125),
    (IBV_RATE_200_GBPS, -1, 206_250),
    (IBV_RATE_300_GBPS, -1, 309_375),
    (IBV_RATE_28_GBPS, 11, 28_125),
    (IBV_RATE_50_GBPS, 20, 53_125),
    (IBV_RATE_400_GBPS, 160, 425_000),
    (IBV_RATE_600_GBPS, 240, 637_500),
    (IBV_RATE_800_GBPS, 320, 850_000),
    (IBV_RATE_1200_GBPS, 480, 1_275_000),
];

/// `ibv_rate_to_mult(3)`: -1 for a rate without one.
pub(crate) extern "C" fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.1)
}

/// `mult_to_ibv_rate(3)`: `IBV_RATE_MAX` for a multiple that no rate has.
pub(crate) extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    RATES.iter().find(|row| row.1 == mult && mult > 0).map_or(IBV_RATE_MAX, |row| row.0)
}

/// `ibv_rate_to_mbps(3)`: -1 for an unknown rate.
pub(crate) extern "C" fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.2)
}

/// `mbps_to_ibv_rate(3)`: `IBV_RATE_MAX` for a speed that no rate has.
pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES.iter().find(|row| row.2 == mbps).map_or(IBV_RATE_MAX, |row| row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_survives_the_way_to_a_speed_and_back() {
        for &(rate, mult, mbps) in RATES {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
            assert_eq!(ibv_rate_to_mbps(rate), mbps);
            if mult > 0 {
                assert_eq!(mult_to_ibv_rate(mult), rate);
            }
        }
        assert_eq!(mult_to_ibv_rate(-1), IBV_RATE_MAX);
        assert_eq!(ibv_rate_to_mult(IBV_RATE_14_GBPS), -1);
    }
}

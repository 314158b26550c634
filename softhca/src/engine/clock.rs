// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time: the host's, and each adapter's own free-running core clock derived from it. Called by: adapter (reads it), cq
//! (timestamps), everything with a deadline. Grade: hot only where timestamps or a model were asked for. Host times are
//! nanoseconds of `CLOCK_MONOTONIC`; ticks are the adapter's.

use crate::engine::ClockSpec;

pub(crate) const NEVER: u64 = u64::MAX;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours; both clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

pub(crate) fn after(ns: u64) -> u64 {
    now().saturating_add(ns)
}

/// Returns the difference from `now` to `wall`. The thread may be paused between the two readings, so it takes the
/// closest of up to eight pairs.
pub(crate) fn wall_ahead() -> u64 {
    const CLOSE_NS: u64 = 1_000;
    let mut best = (u64::MAX, 0);
    for _ in 0..8 {
        let (before, wall, after) = (now(), read(libc::CLOCK_REALTIME), now());
        best = best.min((after - before, wall.wrapping_sub(before)));
        if best.0 < CLOSE_NS {
            break;
        }
    }
    best.1
}

/// The adapter's ticks at host time `ns`, masked.
pub(crate) fn ticks(spec: &ClockSpec, ns: u64) -> u64 {
    let mask = if spec.mask_bits >= 64 { u64::MAX } else { (1 << spec.mask_bits) - 1 };
    all_ticks(spec, ns) & mask
}

pub(crate) fn all_ticks(spec: &ClockSpec, ns: u64) -> u64 {
    if spec.frequency_hz == 1_000_000_000 && spec.drift_ppm == 0.0 {
        return ns.wrapping_add(spec.offset);
    }
    // Parts per 10^12, so that a drift of a millionth of a ppm is still a whole number.
    let rate = 1_000_000_000_000_i128 + (spec.drift_ppm * 1e6) as i128;
    let ticks = i128::from(ns) * i128::from(spec.frequency_hz) / 1_000_000_000 * rate / 1_000_000_000_000;
    (ticks as u64).wrapping_add(spec.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_offset_and_mask_apply_in_this_order() {
        for (frequency_hz, offset, drift_ppm, mask_bits, expected) in [
            (1_000_000, 10, 100.0, 8, (1_000_000 + 100 + 10) % 256),
            (156_250_000, 0, -50_000.0, 64, 148_437_500),
            (1_000_000_000, 1 << 60, 0.0, 64, 1_000_000_000 + (1 << 60)),
        ] {
            let spec = ClockSpec { frequency_hz, offset, drift_ppm, mask_bits };
            assert_eq!(ticks(&spec, 1_000_000_000), expected);
        }
    }
}

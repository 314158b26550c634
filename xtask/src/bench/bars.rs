// SPDX-License-Identifier: MIT OR Apache-2.0
//! The speeds ibex is held to, as ratios to the raw adapter measured in the same boot, and whether a report meets them.
//!
//! Grade: setup. Read by [`super::table`] and [`super::html`]. Tests: at the end of this file.

use super::report::{Report, Transport};

/// One speed ibex is held to.
#[derive(Debug)]
pub(crate) struct Bar {
    /// What is measured.
    pub(crate) what: &'static str,
    /// What it is compared with.
    pub(crate) against: &'static str,
    test: &'static str,
    /// Sizes it holds for, in bytes, inclusive.
    sizes: (u64, u64),
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// A bar and what a report says of it.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The bar.
    pub(crate) bar: &'static Bar,
    /// The worst ratio of the sizes it holds for, and its size; none where nothing was measured.
    pub(crate) worst: Option<(f64, u64)>,
}

static BARS: [Bar; 4] = [
    Bar { what: "latency of 8 B", against: "ib_send_lat", test: "latency", sizes: (8, 8), bound: Bound::AtMost(1.15) },
    Bar {
        what: "bandwidth at 1 MiB and above",
        against: "the better of ib_write_bw and ib_read_bw",
        test: "bandwidth",
        sizes: (1 << 20, u64::MAX),
        bound: Bound::AtLeast(0.95),
    },
    Bar {
        what: "bandwidth at 64 KiB",
        against: "the better of ib_write_bw and ib_read_bw",
        test: "bandwidth",
        sizes: (64 << 10, 64 << 10),
        bound: Bound::AtLeast(0.85),
    },
    Bar {
        what: "message rate of 8 B, window 64",
        against: "ib_send_bw -s 8",
        test: "message_rate",
        sizes: (8, 8),
        bound: Bound::AtLeast(0.9),
    },
];

/// What a report says of each bar.
pub(crate) fn verdicts(report: &Report) -> Vec<Verdict> {
    BARS.iter().map(|bar| Verdict { bar, worst: bar.worst(report) }).collect()
}

impl Bar {
    /// The bound in words: `at most 1.15 x`.
    pub(crate) fn bound(&self) -> String {
        match self.bound {
            Bound::AtMost(ratio) => format!("at most {ratio:.2} x"),
            Bound::AtLeast(ratio) => format!("at least {ratio:.2} x"),
        }
    }

    fn worst(&self, report: &Report) -> Option<(f64, u64)> {
        let sizes = report.sizes(self.test).into_iter().filter(|size| (self.sizes.0..=self.sizes.1).contains(size));
        let ratios = sizes.filter_map(|size| Some((report.row(self.test, Transport::Ibex, size)?.ratio_to_raw?, size)));
        match self.bound {
            Bound::AtMost(_) => ratios.max_by(|a, b| a.0.total_cmp(&b.0)),
            Bound::AtLeast(_) => ratios.min_by(|a, b| a.0.total_cmp(&b.0)),
        }
    }
}

impl Verdict {
    /// Whether the bar is met; none where nothing was measured.
    pub(crate) fn met(&self) -> Option<bool> {
        let (ratio, _) = self.worst?;
        Some(match self.bar.bound {
            Bound::AtMost(bound) => ratio <= bound,
            Bound::AtLeast(bound) => ratio >= bound,
        })
    }

    /// `met`, `not met` or `not measured`.
    pub(crate) fn word(&self) -> &'static str {
        match self.met() {
            Some(true) => "met",
            Some(false) => "not met",
            None => "not measured",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::super::report::{summarise, tests::measured};
    use super::*;

    #[test]
    fn a_bar_over_several_sizes_is_judged_by_the_worst() {
        let mut measurements = Vec::new();
        for (bytes, ratio) in [(64 << 10, 0.86), (1 << 20, 0.99), (4 << 20, 0.94)] {
            measurements.push(measured("bandwidth", Transport::Ibex, bytes, 100.0 * ratio));
            measurements.push(measured("ib_write_bw", Transport::Raw, bytes, 100.0));
        }
        let verdicts = verdicts(&summarise("rxe0", &[plan::test("bandwidth").unwrap()], &measurements));
        assert_eq!(verdicts[1].worst, Some((0.94, 4 << 20)));
        assert_eq!(
            verdicts.iter().map(Verdict::word).collect::<Vec<_>>(),
            ["not measured", "not met", "met", "not measured"]
        );
    }

    #[test]
    fn a_latency_just_at_its_bound_meets_it() {
        let measurements =
            [measured("latency", Transport::Ibex, 8, 115.0), measured("ib_send_lat", Transport::Raw, 8, 100.0)];
        let verdicts = verdicts(&summarise("rxe0", &[plan::test("latency").unwrap()], &measurements));
        assert_eq!(verdicts[0].met(), Some(true));
        assert_eq!(verdicts[0].bar.bound(), "at most 1.15 x");
    }
}

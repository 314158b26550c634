// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distribution of values: median, quartiles, 99th percentile, least, greatest. Setup grade. Plain data. Tests: below.

use serde::Serialize;

use crate::numbers::quantile;

/// In the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Distribution {
    pub(super) count: usize,
    pub(super) least: f64,
    pub(super) lower_quartile: f64,
    pub(super) median: f64,
    pub(super) upper_quartile: f64,
    pub(super) percentile_99: f64,
    pub(super) greatest: f64,
    pub(super) mean: f64,
}

impl Distribution {
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, greatest) = (*values.first()?, *values.last()?);
        let at = |place| quantile(&values, place);
        Some(Self {
            count: values.len(),
            least,
            lower_quartile: at(0.25),
            median: at(0.5),
            upper_quartile: at(0.75),
            percentile_99: at(0.99),
            greatest,
            mean: values.iter().sum::<f64>() / values.len() as f64,
        })
    }

    pub(super) fn total(&self) -> f64 {
        self.mean * self.count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_and_percentiles_are_those_of_the_values_in_order() {
        let of = Distribution::of((0..=100).rev().map(f64::from).collect()).unwrap();
        assert_eq!((of.count, of.least, of.greatest, of.mean), (101, 0.0, 100.0, 50.0));
        assert_eq!((of.lower_quartile, of.median, of.upper_quartile, of.percentile_99), (25.0, 50.0, 75.0, 99.0));
        assert!((of.total() - 5050.0).abs() < 1e-9);
        assert_eq!(Distribution::of(Vec::new()), None);
    }
}

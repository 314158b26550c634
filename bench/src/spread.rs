// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summarises the rounds of a cell (a test over a transport with a size): their median, their spread, and whether it is
//! too wide to say anything. Called by [`crate::run`], which measures such cells again, and [`crate::report`], which
//! marks those that stay so. Pure. Grade: setup. Tests: below.

use crate::catalogue::Transport;
use crate::numbers::quantile;
use crate::programs::Measurement;
use std::collections::BTreeMap;

/// Name of the test or of the raw program, transport, and message size.
pub(crate) type Cell<'a> = (&'a str, Transport, u64);

/// A spread above this share of the median is too wide.
const TOO_WIDE: f64 = 0.25;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rounds {
    pub(crate) value: f64,
    /// Interquartile range; for one round, the spread that the measurement gives.
    pub(crate) spread: f64,
}

impl Rounds {
    fn of(measured: &[&Measurement]) -> Self {
        let mut values: Vec<f64> = measured.iter().map(|one| one.value).collect();
        values.sort_by(f64::total_cmp);
        let spread = match measured {
            [only] => only.spread,
            _ => quantile(&values, 0.75) - quantile(&values, 0.25),
        };
        Self { value: quantile(&values, 0.5), spread }
    }

    pub(crate) fn is_unsteady(self) -> bool {
        self.spread > TOO_WIDE * self.value
    }
}

pub(crate) fn cells(measurements: &[Measurement]) -> BTreeMap<Cell<'_>, Rounds> {
    let mut cells: BTreeMap<Cell, Vec<&Measurement>> = BTreeMap::new();
    for one in measurements {
        cells.entry((&one.test, one.transport, one.bytes)).or_default().push(one);
    }
    cells.into_iter().map(|(cell, measured)| (cell, Rounds::of(&measured))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::measured;

    fn rounds(values: &[f64]) -> Rounds {
        let measured: Vec<_> = values.iter().map(|value| measured("latency", Transport::Ibex, 8, *value)).collect();
        cells(&measured)[&("latency", Transport::Ibex, 8)]
    }

    #[test]
    fn rounds_are_unsteady_if_their_quartiles_differ_by_more_than_a_quarter_of_the_median() {
        assert_eq!(rounds(&[10.0, 8.0, 12.0, 9.0, 11.5]), Rounds { value: 10.0, spread: 2.5 });
        for (values, unsteady) in [
            (&[10.0, 8.0, 12.0, 9.0, 11.5][..], false),
            (&[10.0, 8.0, 12.0, 9.0, 11.6], true),
            (&[10.0, 10.0, 30.0], true),
            (&[10.0, 10.0, 30.0, 10.0, 10.1, 10.2], false),
            // One round is as unsteady as it says: its spread is 0.5.
            (&[1.9], true),
            (&[2.1], false),
        ] {
            assert_eq!(rounds(values).is_unsteady(), unsteady, "{values:?}");
        }
    }
}

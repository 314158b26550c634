// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a row is measured: until twice the time gives the same.
//!
//! First moments are not what goes on: caches, windows and clocks are still filling. The rule is that of
//! `benches/mpi/ibex_mpi_bench.c`, for what is measured without MPI.
//!
//! Grade: setup. Called by [`crate::run`]. Pure; tests: at the end of this file.

use anyhow::Result;

/// How many times as long as at first a row becomes at the most: a power of two.
const LONGEST: u32 = 16;

/// A row is long enough if doubling it changes its median by less than this share.
const SETTLED: f64 = 0.05;

/// Whether a row of twice the length gives what the shorter one gave.
fn has_settled(shorter: f64, longer: f64) -> bool {
    (longer - shorter).abs() < SETTLED * shorter
}

/// Measures a row again and again, each time twice as long, until its median has settled or `has_time` says no.
/// Returns how many times the first length the last row had, and what `measured` returned for it.
///
/// # Errors
/// The first that `measured` has.
pub(crate) fn until_settled<T>(
    mut measured: impl FnMut(u32) -> Result<T>,
    median: impl Fn(&T) -> f64,
    has_time: impl Fn() -> bool,
) -> Result<(u32, T)> {
    let (mut times, mut last) = (1, measured(1)?);
    while times < LONGEST {
        times *= 2;
        let longer = measured(times)?;
        let settled = has_settled(median(&last), median(&longer));
        last = longer;
        if settled || !has_time() {
            break;
        }
    }
    Ok((times, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    /// The lengths that are measured, and the last value, of a row that gives these in turn.
    fn grown(values: &[f64]) -> (Vec<u32>, f64) {
        let mut lengths = Vec::new();
        let measured = |times: u32| {
            lengths.push(times);
            Ok(values[lengths.len() - 1])
        };
        let (times, value) = until_settled(measured, |value| *value, || true).unwrap();
        assert_eq!(lengths.last(), Some(&times));
        (lengths, value)
    }

    #[test]
    fn a_row_is_doubled_until_that_changes_its_median_by_less_than_a_twentieth() {
        assert_eq!(grown(&[100.0, 104.9]), (vec![1, 2], 104.9));
        assert_eq!(grown(&[100.0, 105.0, 100.0]), (vec![1, 2, 4], 100.0));
        assert_eq!(grown(&[100.0, 60.0, 50.0, 48.0]), (vec![1, 2, 4, 8], 48.0));
    }

    #[test]
    fn a_row_that_does_not_settle_ends_at_its_longest() {
        assert_eq!(grown(&[1.0, 2.0, 1.0, 2.0, 1.0]), (vec![1, 2, 4, 8, 16], 1.0));
    }

    #[test]
    fn a_row_for_which_there_is_no_time_is_doubled_once() {
        let row = until_settled(|times| Ok(f64::from(times)), |value| *value, || false);
        assert_eq!(row.unwrap().0, 2);
    }

    #[test]
    fn what_cannot_be_measured_ends_the_row() {
        let fails = |times| if times > 1 { bail!("gone") } else { Ok(1.0) };
        assert!(until_settled(fails, |value| *value, || true).is_err());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats ranks, tables, times and sizes for `ibex explain`. Grade: setup. Tests: below.

use comfy_table::{CellAlignment, Table};
use ibex_messages::Job;

pub(super) use crate::answer::table;

/// Returns a rank's name: `3`, or `1.3` in another world.
pub(super) fn name(job: &Job, place: u32) -> String {
    job.ranks.get(place as usize).map_or_else(
        || "?".to_owned(),
        |of| if of.world == 0 { of.rank.to_string() } else { format!("{}.{}", of.world, of.rank) },
    )
}

/// Name of a column of a table of `T`, its alignment, and the text of a row.
pub(super) type Column<T> = (&'static str, CellAlignment, fn(&T) -> String);

pub(super) fn table_of<T>(columns: &[Column<T>], all: &[T]) -> Table {
    let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    let is_right = |place: &usize| columns[*place].1 == CellAlignment::Right;
    let numbers: Vec<usize> = (0..columns.len()).filter(is_right).collect();
    table(&names, &numbers, all.iter().map(|of| columns.iter().map(|(_, _, text)| text(of)).collect()))
}

pub(super) fn known<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(String::new, text)
}

pub(super) fn duration(nanoseconds: i64) -> String {
    let magnitude = nanoseconds.unsigned_abs();
    let value = nanoseconds as f64;
    match magnitude {
        0..10_000 => format!("{nanoseconds} ns"),
        10_000..10_000_000 => format!("{:.1} us", value / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

pub(super) fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{:.1} KiB", value / 1024.0),
        10_485_760..10_737_418_240 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.1} GiB", value / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units_that_fit() {
        assert_eq!([0, 9_999, 10_000, -25_000_000].map(duration), ["0 ns", "9999 ns", "10.0 us", "-25.0 ms"]);
        assert_eq!([0, 10_239, 10_240, 20 << 20].map(bytes), ["0 B", "10239 B", "10.0 KiB", "20.0 MiB"]);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port's counters, and their growth.
//!
//! Read from the kernel's `counters` and `hw_counters` (`Documentation/ABI/stable/sysfs-class-infiniband`), as far as
//! the driver has them. Called by `adapters` and by `ibex doctor`. Grade: setup. Tests: below.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Values by name.
pub(crate) type Counters = BTreeMap<String, u64>;

pub(crate) fn read(port: &Path) -> Counters {
    let folders = ["counters", "hw_counters"].map(|folder| fs::read_dir(port.join(folder)));
    let files = folders.into_iter().flatten().flatten().flatten();
    let value = |file: fs::DirEntry| {
        let value = fs::read_to_string(file.path()).ok()?.trim().parse().ok()?;
        Some((file.file_name().into_string().ok()?, value))
    };
    files.filter_map(value).collect()
}

/// The growth of each counter; those that have not grown are left out.
pub(crate) fn growth(before: &Counters, after: &Counters) -> Counters {
    let grown = |(name, value): (&String, &u64)| {
        let more = value.saturating_sub(*before.get(name)?);
        (more > 0).then(|| (name.clone(), more))
    };
    after.iter().filter_map(grown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_reported_and_a_reset_is_not() {
        let counters =
            |values: [u64; 3]| ["a", "b", "c"].map(str::to_owned).into_iter().zip(values).collect::<Counters>();
        let grown = growth(&counters([1, 5, 7]), &counters([1, 8, 0]));
        assert_eq!(grown, Counters::from([("b".to_owned(), 3)]));
    }
}

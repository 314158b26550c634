// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port's counters, from the kernel's `counters` and `hw_counters` as far as the driver has them
//! (`Documentation/ABI/stable/sysfs-class-infiniband`), and their growth. Called by `adapters` and `ibex doctor`.
//! Grade: setup. Tests: below.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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

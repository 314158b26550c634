// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses processors for two processes that measure: the two that mpirun gives to two ranks of a machine. Without them
//! programs that do not bind themselves would move, and at times share a processor. Called by the bench, on the machine
//! that measures. Grade: setup. Tests: below.

use std::fs;

/// Returns the first two processors of different cores that this process may use; the first two if all are of one core.
/// `None` if there is only one, or the system does not say.
pub fn pair() -> Option<[usize; 2]> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let allowed = list(allowed)?;
    let first = *allowed.first()?;
    let siblings = format!("/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list");
    let siblings = fs::read_to_string(siblings).ok().and_then(|text| list(&text)).unwrap_or_default();
    choose(&allowed, &siblings)
}

fn choose(allowed: &[usize], siblings_of_first: &[usize]) -> Option<[usize; 2]> {
    let (first, rest) = allowed.split_first()?;
    let other = rest.iter().find(|processor| !siblings_of_first.contains(processor)).or(rest.first())?;
    Some([*first, *other])
}

/// Parses a list as the kernel writes it: `0-3,8`.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut processors = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        processors.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_kernel_is_read() {
        assert_eq!(list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(list("5"), Some(vec![5]));
        assert_eq!(list(""), None);
    }

    #[test]
    fn two_cores_are_preferred_to_two_threads_of_one() {
        assert_eq!(choose(&[0, 1, 2, 3], &[0, 1]), Some([0, 2]));
        assert_eq!(choose(&[0, 1], &[0]), Some([0, 1]));
        assert_eq!(choose(&[0, 1], &[0, 1]), Some([0, 1]));
        assert_eq!(choose(&[4], &[4]), None);
    }
}

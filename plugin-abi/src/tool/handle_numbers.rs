// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that C gets as handles of `MPI_T`'s registrations and as event handles of PERUSE. ibex looks a number up,
//! and never uses it as an address. Part of it cannot be guessed, so a made-up or uninitialised value is not the handle
//! of another tool. No number is used twice. Grade: setup. Threads: any. Tests: `calls.c`, `peruse.c` in `tests/tool`.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

const COUNT: i64 = (1 << 24) - 1;

/// Bits that cannot be guessed.
const SALTED: i64 = ((1 << 38) - 1) << 24;

/// Bit that is always set, so that the number is neither null nor an address.
const SET: i64 = 1 << 62;

pub(super) fn number() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    static SALT: OnceLock<RandomState> = OnceLock::new();
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    let salted = SALT.get_or_init(RandomState::new).hash_one(count).cast_signed();
    SET | salted & SALTED | count & COUNT
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn number_returns_no_number_twice_and_no_two_that_follow_each_other() {
        let all: HashSet<i64> = (0..10_000).map(|_| number()).collect();
        assert_eq!(all.len(), 10_000);
        assert!(all.iter().all(|number| *number > 1 << 61));
        let salted: HashSet<i64> = all.iter().map(|number| number & SALTED).collect();
        assert!(salted.len() > 9_990, "the counted bits are not all that differ");
        let near = all.iter().filter(|number| all.contains(&(*number + 1))).count();
        assert_eq!(near, 0, "the next handle cannot be guessed from one");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows that a thread waits for another: by what it does, not by a moment at which it would be further.
//!
//! Called by the tests of the events and, by its path, by those of `plugin-abi`. A thread says which it is
//! ([`Thread::this`]) and does what must wait; once it has come to where it comes by itself, the test looks how far
//! that is. Grade: setup. Threads: any.

use std::fs;
use std::path::{Path, PathBuf};

/// Of its own processor time: what does not wait is over by then, on however busy a machine. In hundredths of a second.
const LONG: u64 = 5;

/// A thread, by the folder that the kernel has for it.
pub(crate) struct Thread(PathBuf);

impl Thread {
    /// The one that calls.
    pub(crate) fn this() -> Thread {
        Thread(Path::new("/proc").join(fs::read_link("/proc/thread-self").expect("Linux has it")))
    }

    /// Returns when it has ended, sleeps, or looks again and again for what it waits for.
    pub(crate) fn comes_no_further(&self) {
        let ran_before = self.state().map_or(0, |(_, ran)| ran);
        while self.state().is_some_and(|(sleeps, ran)| !sleeps && ran < ran_before + LONG) {
            std::thread::yield_now();
        }
    }

    /// Whether it sleeps, and how long it has run (proc_pid_stat(5): fields 3, 14 and 15).
    fn state(&self) -> Option<(bool, u64)> {
        let stat = fs::read_to_string(self.0.join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = |field: usize| fields[field].parse::<u64>().expect("a number");
        Some((fields[0] == "S", ticks(11) + ticks(12)))
    }
}

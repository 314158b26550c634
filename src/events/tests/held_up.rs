// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows that a thread waits for another: by what it does, not by a moment at which it would be further.
//!
//! Called by the tests of the events and, by its path, by those of `plugin-abi`. A thread says which it is
//! ([`Thread::this`]) and does what must wait; once it has come to where it comes by itself, the test looks how far
//! that is. Grade: setup. Threads: any.

use std::fs;
use std::path::{Path, PathBuf};

/// Of its own processor time, in hundredths of a second, and how often it was given a processor: what does not wait is
/// over by then, on however busy a machine. Who waits by yielding has nearly no time of its own where others compute.
const LONG: (u64, u64) = (5, 20);

/// A thread, by the folder that the kernel has for it.
pub(crate) struct Thread(PathBuf);

impl Thread {
    /// The one that calls.
    pub(crate) fn this() -> Thread {
        Thread(Path::new("/proc").join(fs::read_link("/proc/thread-self").expect("Linux has it")))
    }

    /// Returns when it has ended, sleeps, or looks again and again for what it waits for.
    pub(crate) fn comes_no_further(&self) {
        let Some((mut sleeps, before)) = self.state() else { return };
        let mut now = before;
        while !sleeps && now.0 < before.0 + LONG.0 && now.1 < before.1 + LONG.1 {
            std::thread::yield_now();
            let Some(state) = self.state() else { return };
            (sleeps, now) = state;
        }
    }

    /// Whether it sleeps, how long it has run, and how often it has left a processor; `None` once it has ended.
    fn state(&self) -> Option<(bool, (u64, u64))> {
        let read = |name| fs::read_to_string(self.0.join(name)).ok();
        let (stat, status) = (read("stat")?, read("status")?);
        // Fields 3, 14 and 15 of proc_pid_stat(5).
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = |field: usize| fields[field].parse::<u64>().expect("a number");
        let switches = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
        let switches = switches.map(|(_, count)| count.trim().parse::<u64>().expect("a number")).sum();
        Some((fields[0] == "S", (ticks(11) + ticks(12), switches)))
    }
}

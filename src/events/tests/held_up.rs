// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows that a thread waits for another: by what the thread does, not after a fixed time. [`begin`] runs the operation
//! that must wait in a thread of its own. Once that comes no further by itself, the test checks how far it has come.
//! The tests of `plugin-abi` use this file by its path. Threads: any.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// Processor time (hundredths of a second) and number of context switches by which any operation that does not wait has
/// ended, even on a busy machine. The second limit is for a thread that waits by yielding.
const LONG: (u64, u64) = (5, 20);

/// Begins an operation in another thread. Returns once that has ended or comes no further by itself.
pub(crate) fn begin<T: Send + 'static>(operation: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (says, said) = channel();
    let thread = std::thread::spawn(move || {
        says.send(Thread::this()).expect("the test waits");
        operation()
    });
    said.recv().expect("it runs").comes_no_further();
    thread
}

/// A thread, by its folder in `/proc`.
struct Thread(PathBuf);

impl Thread {
    fn this() -> Thread {
        Thread(Path::new("/proc").join(fs::read_link("/proc/thread-self").expect("Linux has it")))
    }

    /// Returns once the thread has ended, sleeps, or polls in a loop.
    fn comes_no_further(&self) {
        let Some((mut sleeps, before)) = self.state() else { return };
        let mut now = before;
        while !sleeps && now.0 < before.0 + LONG.0 && now.1 < before.1 + LONG.1 {
            std::thread::yield_now();
            let Some(state) = self.state() else { return };
            (sleeps, now) = state;
        }
    }

    /// Whether the thread sleeps, and its processor time and number of context switches; `None` once it has ended.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of the passing time a job had: all of it while it sleeps or runs, less while it waits for a processor.
//!
//! Limits of tests count this time, so that a busy machine does not exhaust them, and a job that hangs still does. It
//! reads `/proc/PID/task/TID/schedstat`; on a kernel without that file all time counts. Setup grade; one thread. Tests:
//! at the end of this file, and of process.rs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use rustix::process::Pid;

/// Returns about how many times longer things take than on a quiet machine, 1 to 8, by the load of the last minute.
/// Limits in virtual machines use it, as a guest cannot measure how much processor time the host gave it.
#[must_use]
pub fn crowding() -> u32 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    (load / f64::from(processors())).clamp(1.0, 8.0).ceil() as u32
}

fn processors() -> u32 {
    available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1))
}

/// Times of a thread since it began.
#[derive(Clone, Copy, Default)]
struct Had {
    ran: Duration,
    waited: Duration,
}

pub(crate) struct Pace {
    /// By the thread's folder `/proc/PID/task/TID`.
    threads: HashMap<PathBuf, Had>,
    last: Instant,
    own: Duration,
    processors: u32,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { threads: HashMap::new(), last: Instant::now(), own: Duration::ZERO, processors: processors() }
    }

    /// Returns the time that the job had until now. To be called often: it misses threads that end between two calls.
    pub(crate) fn own(&mut self, processes: &[Pid]) -> Duration {
        // Known threads are read by name: the kernel's list may break off where a thread ends, and a thread that was
        // missing once would come back with all its time.
        let listed = processes.iter().flat_map(|process| threads_of(*process));
        let folders = listed.chain(self.threads.keys().cloned());
        let threads: HashMap<PathBuf, Had> =
            folders.filter_map(|thread| had(&thread).map(|had| (thread, had))).collect();
        let mut had = Had::default();
        for (thread, now) in &threads {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            had.ran += now.ran.saturating_sub(before.ran);
            had.waited += now.waited.saturating_sub(before.waited);
        }
        self.threads = threads;
        let passed = self.last.elapsed();
        self.last += passed;
        self.own += own(passed, had, self.processors);
        self.own
    }
}

/// Returns how much of `passed` a job had, by the times of all its threads.
fn own(passed: Duration, had: Had, processors: u32) -> Duration {
    // Alone it would have run while it waited for a processor, up to the number of processors.
    let wanted = (had.ran + had.waited).min(passed * processors);
    let lost = wanted.saturating_sub(had.ran);
    let whole = wanted.max(passed);
    if whole.is_zero() { passed } else { passed.mul_f64(1.0 - lost.as_secs_f64() / whole.as_secs_f64()) }
}

fn threads_of(process: Pid) -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).into_iter().flatten().flatten();
    tasks.map(|task| task.path())
}

/// Returns `None` if the thread has ended, or the kernel has no such file.
fn had(thread: &Path) -> Option<Had> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().map(Duration::from_nanos));
    Some(Had { ran: numbers.next()?.ok()?, waited: numbers.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, mpsc};
    use std::thread;

    const SECOND: Duration = Duration::from_secs(1);

    fn tenths(ran: u32, waited: u32) -> u128 {
        let had = Had { ran: SECOND * ran / 10, waited: SECOND * waited / 10 };
        (own(SECOND, had, 2).as_millis() + 50) / 100
    }

    #[test]
    fn all_time_counts_for_a_job_that_sleeps_or_runs() {
        assert_eq!(tenths(0, 0), 10);
        assert_eq!(tenths(10, 0), 10);
        assert_eq!(tenths(1, 0), 10);
    }

    #[test]
    fn processor_time_of_other_threads_does_not_count() {
        assert_eq!(tenths(1, 9), 1);
        assert_eq!(tenths(0, 10), 0);
        // It mostly sleeps.
        assert_eq!(tenths(1, 3), 7);
        // Four threads that always want to run, on two processors.
        assert_eq!(tenths(2, 38), 1);
    }

    #[test]
    fn threads_of_a_job_that_wait_for_each_other_lose_nothing() {
        assert_eq!(tenths(20, 60), 10);
    }

    fn own_folder() -> PathBuf {
        Path::new("/proc").join(fs::read_link("/proc/thread-self").expect("Linux has it"))
    }

    #[test]
    fn the_kernel_reports_the_processor_time_of_a_thread() {
        let ran = || had(&own_folder()).expect("this thread").ran;
        let (before, began) = (ran(), Instant::now());
        while ran() == before {
            assert!(began.elapsed() < 120 * SECOND, "it runs, and the kernel does not say so");
        }
    }

    #[test]
    fn a_thread_stays_known_while_others_end_and_lists_of_threads_break_off() {
        let process = rustix::process::getpid();
        for _ in 0..100 {
            let others = Barrier::new(17);
            thread::scope(|scope| {
                // These threads come first in the kernel's list.
                (0..16).for_each(|_| drop(scope.spawn(|| others.wait())));
                let ((end, ending), (tell, folder)) = (mpsc::channel::<()>(), mpsc::channel());
                scope.spawn(move || {
                    tell.send(own_folder()).expect("it is awaited");
                    ending.recv().expect_err("nothing is sent");
                });
                let folder = folder.recv().expect("it is sent");
                let mut pace = Pace::new();
                while !pace.threads.contains_key(&folder) {
                    pace.own(&[process]);
                }
                others.wait();
                for _ in 0..20 {
                    pace.own(&[process]);
                    assert!(pace.threads.contains_key(&folder));
                }
                drop(end);
            });
        }
    }
}

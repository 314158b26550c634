// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of the passing time a job had: all of it while it sleeps or has the processors it wants, less while others
//! have them.
//!
//! Limits of jobs are of this time, so that a limit which is generous on a quiet machine is the same on one with
//! fifteen builds beside it, and a job that hangs still meets it. Called by [`crate::process`] for each job. The kernel
//! says of each thread how long it ran and how long it waited for a processor (`/proc/PID/task/TID/schedstat`); where
//! it does not, all time counts. Setup grade; one thread. Tests: at the end of this file, and of process.rs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use rustix::process::Pid;

/// By how much longer than on a quiet machine something takes here now, about: by the load of the last minute, 1 to 8.
/// For what cannot be asked what it had, such as a virtual machine.
pub(crate) fn crowding() -> u32 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    (load / f64::from(processors())).clamp(1.0, 8.0).ceil() as u32
}

fn processors() -> u32 {
    available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1))
}

/// What a thread had, since it began.
#[derive(Clone, Copy, Default)]
struct Had {
    ran: Duration,
    waited: Duration,
}

/// The time of one job.
pub(crate) struct Pace {
    /// By the folder that the kernel has for a thread, `/proc/PID/task/TID`.
    threads: HashMap<PathBuf, Had>,
    last: Instant,
    own: Duration,
    processors: u32,
}

impl Pace {
    /// Of a job that begins now.
    pub(crate) fn new() -> Self {
        Self { threads: HashMap::new(), last: Instant::now(), own: Duration::ZERO, processors: processors() }
    }

    /// The time that the job had until now; these are its processes. To be called again and again: what ends between
    /// two calls is not seen any more.
    pub(crate) fn own(&mut self, processes: &[Pid]) -> Duration {
        // The known ones by name: a list of threads breaks off where one ends while the kernel makes it, and a thread
        // that was missing once would come back with all its time.
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

/// Of `passed`, what a job had whose threads together had so much.
fn own(passed: Duration, had: Had, processors: u32) -> Duration {
    // Without others it would have run when it waited, as far as there are processors: its threads wait for each other,
    // too.
    let wanted = (had.ran + had.waited).min(passed * processors);
    let lost = wanted.saturating_sub(had.ran);
    let whole = wanted.max(passed);
    if whole.is_zero() { passed } else { passed.mul_f64(1.0 - lost.as_secs_f64() / whole.as_secs_f64()) }
}

fn threads_of(process: Pid) -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).into_iter().flatten().flatten();
    tasks.map(|task| task.path())
}

/// `None`: the thread has ended, or this kernel does not say.
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
    fn what_others_took_from_it_does_not_count() {
        assert_eq!(tenths(1, 9), 1);
        assert_eq!(tenths(0, 10), 0);
        // It sleeps for the better part of the time.
        assert_eq!(tenths(1, 3), 7);
        // Four threads that always want to run, of which two could.
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
    fn the_kernel_tells_what_a_thread_had() {
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
                // They are before it in the kernel's list.
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

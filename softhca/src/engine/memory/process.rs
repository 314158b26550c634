// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of a fabric: this one, the others, and whether they live; `service` buries the dead. Owns the slots of
//! processes in the region, and this process' mapping of it. A *token* names a process until it is buried: slot index
//! plus one in the low 16 bits, the slot's generation above, so that a slot used again is not taken for the former
//! process. Called by: users of the region; lock (does the holder live). Grade: `token`, `region` and `other_pid` are
//! hot (loads); the rest is setup, and the slow side of locks. Thread rule: any thread. Tests: below.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, test_kill_process};

use crate::engine::memory::layout::{MAX_PROCESSES, slot_at};
use crate::engine::{Errno, Region, Result, Shared, W32, W64};

#[repr(C, align(64))]
pub(crate) struct Slot {
    /// 0 while free.
    pub(crate) pid: W32,
    /// 0 only if the slot was never used; then no later slot was used either.
    generation: W32,
    /// Start time in clock ticks since boot (`proc_pid_stat(5)`): with the pid it names a process for ever.
    started: W64,
    /// Highest step from its own first entry at which it took a memory region, plus one; 0 for none.
    pub(crate) mrs_used: W32,
    /// The pipe that wakes the service thread; 0 before that runs.
    pub(crate) doorbell: W32,
    /// Number of the fabric's commands that it has carried out.
    pub(crate) commands_done: W32,
}

// SAFETY: words only, repr(C), zero is a free slot.
unsafe impl Shared for Slot {}

/// This process, as the others of its fabric know it: its mapping of the region, its token and its pid.
pub struct Process {
    region: Region,
    token: u32,
    pid: u32,
    /// Token of the dead process that this one is burying; 0 for none.
    buried: AtomicU32,
}

pub(crate) fn slot_index(token: u32) -> u32 {
    (token & 0xffff) - 1
}

fn token(index: u32, generation: u32) -> u32 {
    (index + 1) | (generation << 16)
}

/// Returns the start time of process `pid`; `None` if there is none or it has ended. A process whose first thread has
/// ended goes on with its other threads, although the kernel then calls it a zombie. Allocates nothing: a thread that
/// waits long for a lock calls this amid a program's messages. Fails if too many files are open (EMFILE, ENFILE).
fn started(pid: u32) -> Result<Option<u64>> {
    let (mut path, mut stat) = ([0; 32], [0; 1024]);
    let mut rest = &mut path[..];
    write!(rest, "/proc/{pid}/stat").map_err(|_| Errno(libc::ENAMETOOLONG))?;
    let room = rest.len();
    let path = OsStr::from_bytes(&path[..path.len() - room]);
    match File::open(path).and_then(|mut file| file.read(&mut stat)) {
        Ok(length) => Ok(start_time(&stat[..length])),
        // The process ended before the file was opened, or before it was read.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn start_time(stat: &[u8]) -> Option<u64> {
    // The name, in parentheses, may hold anything; after it come state (1st), threads (18th) and start time (20th).
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    if (state == "Z" || state == "X") && threads <= 1 {
        return None;
    }
    fields.nth(1)?.parse().ok()
}

/// Takes a slot for this process and returns its token. Call while no other process joins.
pub(crate) fn enter(region: &Region) -> Result<u32> {
    let pid = std::process::id();
    let began = started(pid)?.ok_or(Errno(libc::ESRCH))?;
    for index in 0..MAX_PROCESSES {
        let slot: &Slot = region.at(slot_at(index));
        if slot.pid.get() == 0 {
            let generation = slot.generation.get() % 0xffff + 1;
            slot.generation.set(generation);
            slot.started.set(began);
            slot.mrs_used.set(0);
            slot.doorbell.set(0);
            slot.commands_done.set(0);
            slot.pid.publish(pid);
            return Ok(token(index, generation));
        }
    }
    Err(Errno(libc::ENOSPC))
}

/// Whether there is a process of that number, even one that has ended and was not waited for.
fn is_there(pid: u32) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

impl Process {
    pub(crate) fn new(region: Region, token: u32) -> Process {
        Process { region, token, pid: std::process::id(), buried: AtomicU32::new(0) }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn token(&self) -> u32 {
        self.token
    }

    /// After a fork this is still the parent's.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The pid of the process that `token` names, if its slot was not given to another.
    #[inline]
    pub(crate) fn pid_of(&self, token: u32) -> Option<u32> {
        let slot = self.slot_of(token);
        let pid = slot.pid.get();
        (pid != 0 && slot.generation.get() == token >> 16).then_some(pid)
    }

    /// Returns the pid for copies of memory of process `token`; `Ok(None)` if it is this one; ESRCH if it is gone.
    #[inline]
    pub(crate) fn other_pid(&self, token: u32) -> Result<Option<u32>> {
        if token == self.token {
            return Ok(None);
        }
        let pid = self.pid_of(token).ok_or(Errno(libc::ESRCH))?;
        Ok((pid != self.pid).then_some(pid))
    }

    /// Whether the process has ended. Costs system calls.
    pub(crate) fn is_dead(&self, token: u32) -> bool {
        match self.pid_of(token) {
            None => true,
            Some(pid) => match started(pid) {
                Ok(began) => began != Some(self.slot_of(token).started.get()),
                // No file could be opened; without one, only kill(2) tells that there is no such process.
                Err(_) => !is_there(pid),
            },
        }
    }

    /// Notes that process `token`, which has ended, is being buried (0: no longer), so that the burial does not have to
    /// ask again for each of its locks. Call in [`Region::exclusively`]: a process buries one at a time.
    pub(crate) fn set_buried(&self, token: u32) {
        self.buried.store(token, Ordering::Relaxed);
    }

    /// Whether this process is burying process `token`, which has thus ended. Costs a load.
    pub(crate) fn is_burying(&self, token: u32) -> bool {
        // Relaxed: a thread that does not see it yet asks instead.
        token != 0 && self.buried.load(Ordering::Relaxed) == token
    }

    #[inline]
    pub(crate) fn slot_of(&self, token: u32) -> &'static Slot {
        self.region.at(slot_at(slot_index(token)))
    }

    pub(crate) fn all_tokens(&self) -> impl Iterator<Item = u32> {
        let slots = (0..MAX_PROCESSES).map(|index| (index, self.region.at::<Slot>(slot_at(index))));
        slots
            .take_while(|(_, slot)| slot.generation.get() != 0)
            .filter(|(_, slot)| slot.pid.get() != 0)
            .map(|(index, slot)| token(index, slot.generation.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::SharedLock;
    use crate::engine::memory::region::tests::region;

    /// Enters a new region twice. Returns the first token, and the process of the second one.
    fn entered_twice(test: &str) -> (u32, Process) {
        let region = region(test);
        let (first, second) = (enter(&region).unwrap(), enter(&region).unwrap());
        (first, Process::new(region, second))
    }

    /// The holder has this process' pid, so it lives: a waiter that asks would wait for ever.
    #[test]
    fn a_burial_takes_the_locks_of_its_process_over_without_asking_whether_it_lives() {
        let (buried, process) = entered_twice("burial");
        let lock = SharedLock::held_by(buried);
        process.set_buried(buried);
        assert!(lock.lock(&process).is_inherited);
        process.set_buried(0);
        assert!(!lock.lock(&process).is_inherited, "it was given back");
        assert!(!process.is_burying(0));
    }

    #[test]
    fn a_slot_whose_generation_has_wrapped_hides_no_slot_behind_it() {
        let (first, process) = entered_twice("slots");
        let second = process.token();
        process.slot_of(first).generation.set(0xffff);
        process.slot_of(first).pid.publish(0);
        let wrapped = enter(process.region()).unwrap();
        process.slot_of(wrapped).pid.publish(0);
        assert_eq!(process.all_tokens().collect::<Vec<_>>(), [second]);
        assert_eq!(process.pid_of(first | 0xffff << 16), None, "not of the last use");
    }

    /// Runs in a child, because the limit applies to a whole process; its exit status tells the result.
    #[test]
    fn no_process_counts_as_dead_because_no_file_can_be_opened() {
        let mut status = 0;
        // SAFETY: the child makes system calls only; `started` does not allocate. The limit and the status are ours.
        unsafe {
            let pid = match libc::fork() {
                0 => {
                    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none);
                    let parent = libc::getppid() as u32;
                    let is_unknown = started(parent) == Err(Errno(libc::EMFILE));
                    libc::_exit(i32::from(!(is_unknown && is_there(parent) && !is_there(i32::MAX as u32))))
                }
                pid => pid,
            };
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        }
        assert_eq!(status, 0);
    }

    #[test]
    fn a_process_lives_until_its_last_thread_has_ended() {
        for (state, threads, started) in [("S", 1, Some(77)), ("Z", 2, Some(77)), ("Z", 1, None), ("X", 0, None)] {
            let stat = format!("5 (a (b) c) {state} 1 5 5 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 77 0 0");
            assert_eq!(start_time(stat.as_bytes()), started, "{stat}");
        }
        assert!(started(std::process::id()).unwrap().is_some());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work of this process for a later time: waiting sends, delayed notifications, timed rules for faults, the end of
//! other processes, and work that a thread has found, but cannot do because it holds a shared lock. Owns the lists, and
//! the pipe that wakes the service thread when something earlier than all else is added. Called by: send (a timer), cq
//! (a delayed notification), qp (a process to watch), modules that defer work; `service` does the due work. Grade:
//! `earliest`, for polls that find nothing, and `any` are hot (a load), the rest is pending. Thread rule: any thread;
//! never hold its mutexes while taking a shared lock. Times are host nanoseconds.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::engine::{Mailbox, Process, Record, clock};

pub(crate) struct Timers {
    /// The pipe that wakes the service thread, for something earlier than all else, or a command.
    pub(crate) doorbell: Mailbox,
    /// Time of the next timer; `clock::NEVER` if there is none.
    earliest: AtomicU64,
    agenda: Mutex<Agenda>,
}

#[derive(Default)]
struct Agenda {
    /// Queue pairs (their indices) whose sends wait, and times to try again.
    waiting: Vec<(u32, u64)>,
    /// Records to be written later: time, pipe, record.
    later: Vec<(u64, u32, Record)>,
    /// Processes (their tokens) and their pidfds.
    watched: Vec<(u32, OwnedFd)>,
    /// Time of the next rule for faults.
    faults_at: Option<u64>,
    /// 0 while the service thread is awake, or was woken.
    sleeps_until: u64,
}

pub(crate) struct Sleep {
    /// Readable when the process (its token) has ended.
    pub(crate) processes: Vec<(u32, RawFd)>,
    pub(crate) until: u64,
}

impl Timers {
    pub(super) fn new(doorbell: Mailbox) -> Timers {
        let agenda = Agenda { sleeps_until: clock::NEVER, ..Agenda::default() };
        Timers { doorbell, earliest: AtomicU64::new(clock::NEVER), agenda: Mutex::new(agenda) }
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, agenda: &mut Agenda) {
        if std::mem::take(&mut agenda.sleeps_until) != 0 {
            self.doorbell.ring();
        }
    }

    fn due_at(&self, agenda: &mut Agenda, when: u64) {
        if when < self.earliest.load(Ordering::Relaxed) {
            self.earliest.store(when, Ordering::Relaxed);
        }
        if when < agenda.sleeps_until {
            self.wake(agenda);
        }
    }

    /// Schedules the next try of queue pair `index`'s waiting sends, at `when`.
    pub(crate) fn retry_at(&self, index: u32, when: u64) {
        let mut agenda = self.agenda();
        match agenda.waiting.iter_mut().find(|entry| entry.0 == index) {
            Some(entry) => entry.1 = when,
            None => agenda.waiting.push((index, when)),
        }
        self.due_at(&mut agenda, when);
    }

    pub(crate) fn notify_at(&self, when: u64, pipe: u32, record: Record) {
        let mut agenda = self.agenda();
        agenda.later.push((when, pipe, record));
        self.due_at(&mut agenda, when);
    }

    pub(crate) fn watch_process(&self, process: &Process, token: u32) {
        if token == process.token() {
            return;
        }
        let Some(pid) = process.pid_of(token) else { return };
        let mut agenda = self.agenda();
        if agenda.watched.iter().any(|watched| watched.0 == token) {
            return;
        }
        if let Some(Ok(ends)) = Pid::from_raw(pid as i32).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            agenda.watched.push((token, ends));
            self.wake(&mut agenda);
        }
    }

    pub(crate) fn earliest(&self) -> u64 {
        self.earliest.load(Ordering::Relaxed)
    }

    /// Takes the work due at `now`: queue pairs whose sends are to be tried again, and records with their pipes.
    pub(crate) fn take_due(&self, now: u64) -> (Vec<u32>, Vec<(u32, Record)>) {
        let mut agenda = self.agenda();
        let sends = agenda.waiting.extract_if(.., |entry| entry.1 <= now).map(|entry| entry.0).collect();
        let records =
            agenda.later.extract_if(.., |entry| entry.0 <= now).map(|(_, pipe, record)| (pipe, record)).collect();
        self.refresh(&agenda);
        (sends, records)
    }

    pub(crate) fn set_next_fault(&self, when: Option<u64>) {
        let mut agenda = self.agenda();
        agenda.faults_at = when;
        self.refresh(&agenda);
    }

    fn refresh(&self, agenda: &Agenda) {
        let timers = agenda.waiting.iter().map(|entry| entry.1);
        let next = timers
            .chain(agenda.later.iter().map(|entry| entry.0))
            .chain(agenda.faults_at)
            .min()
            .unwrap_or(clock::NEVER);
        self.earliest.store(next, Ordering::Relaxed);
    }

    pub(crate) fn begin_sleep(&self) -> Sleep {
        let mut agenda = self.agenda();
        agenda.sleeps_until = self.earliest();
        Sleep {
            processes: agenda.watched.iter().map(|(token, fd)| (*token, fd.as_raw_fd())).collect(),
            until: agenda.sleeps_until,
        }
    }

    /// Notes that the service thread is awake; `rung`: by the doorbell.
    pub(crate) fn end_sleep(&self, rung: bool) {
        self.agenda().sleeps_until = 0;
        if rung {
            let _says_no_more = self.doorbell.read();
        }
    }

    pub(crate) fn forget_process(&self, token: u32) {
        self.agenda().watched.retain(|watched| watched.0 != token);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferred {
    /// Flush the sends of this queue pair (its index), which is in the error state.
    Flush(u32),
    /// This completion queue (its offset) has overrun: tell its owner, stop its queue pairs.
    Overrun(u64),
    /// A thread has found this process (its token) dead.
    Bury(u32),
    /// Try again the sends of this queue pair (its index).
    Retry(u32),
}

#[derive(Default)]
pub(crate) struct DeferredWork {
    list: Mutex<Vec<Deferred>>,
    any: AtomicBool,
}

impl DeferredWork {
    /// Defers work until the caller holds no lock.
    pub(crate) fn add(&self, work: Deferred) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.contains(&work) {
            list.push(work);
        }
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Vec<Deferred> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *list)
    }
}

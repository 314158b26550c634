// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens when nobody calls: timers of waiting sends, and noticing that a connected process has ended.
//!
//! Owns one thread per process, which sleeps in `poll` and is never on the data path. Called by: sendq (a timer), qp (a
//! process to watch), cq (polls that found nothing run timers that are due). Grade: pending. Thread rule: its own
//! mutex, never held while a shared lock is taken. Times are host nanoseconds.
//!
//! The thread lives as long as the process, as its membership of the fabric does: peers still read and write memory of
//! a process that has closed its device, and their deaths still have to be noticed. So nobody joins it, and the library
//! is linked such that it is never unloaded (build.rs). Tests: tests/unloading.rs, `tests/service_thread.rs`.

use std::{
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
};

use super::{Errno, Result, channel::Record, clock, fabric::Fabric, faults, process, sendq};

/// The timers and the watched processes.
pub(crate) struct Service {
    wake: OwnedFd,
    /// When the next timer is due; `clock::NEVER` if none is.
    earliest: AtomicU64,
    agenda: Mutex<Agenda>,
}

#[derive(Default)]
struct Agenda {
    /// Queue pairs (their indices) whose sends wait, and until when.
    waiting: Vec<(u32, u64)>,
    /// Records to be written later: when, and to which pipe.
    later: Vec<(u64, u32, Record)>,
    /// Processes (their tokens) and their pidfds.
    watched: Vec<(u32, OwnedFd)>,
    /// When a rule for faults next says something.
    faults_at: Option<u64>,
    /// Until when the thread sleeps.
    sleeps_until: u64,
}

fn last_errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

impl Service {
    pub(crate) fn new() -> Result<Service> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let wake = unsafe { OwnedFd::from_raw_fd(fd) };
        let agenda = Agenda { sleeps_until: clock::NEVER, ..Agenda::default() };
        Ok(Service { wake, earliest: AtomicU64::new(clock::NEVER), agenda: Mutex::new(agenda) })
    }

    /// Starts the thread, deaf to signals, which are the program's: but for those of its own faults, of which a program
    /// is to say what it says of any.
    ///
    /// Returns when the thread is about to sleep for the first time. Until then it gets its heap, by `mmap` and
    /// `munmap`. MPI libraries write hooks over the first instructions of these functions, in no thread's way but their
    /// own, right after they have opened a device: a thread that comes back from `munmap` then executes half a hook.
    pub(crate) fn start(fabric: &Arc<Fabric>) -> Result<()> {
        let mut blocked = std::mem::MaybeUninit::uninit();
        let mut before = std::mem::MaybeUninit::uninit();
        // SAFETY: both sets are ours; the first is filled before it is changed and read.
        unsafe {
            libc::sigfillset(blocked.as_mut_ptr());
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
                libc::sigdelset(blocked.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr());
        }
        let member = Arc::clone(fabric);
        let (ready, is_ready) = sync_channel(1);
        let started = std::thread::Builder::new()
            .name("softhca".into())
            .stack_size(256 << 10)
            .spawn(move || member.service.serve(&member, ready));
        // SAFETY: `before` was filled by the call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
        started.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        is_ready.recv().map_err(|_| Errno(libc::EAGAIN))
    }

    fn agenda(&self) -> std::sync::MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nudge(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes of ours are read.
        unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    fn due_at(&self, agenda: &Agenda, when: u64) {
        if when < self.earliest.load(Ordering::Relaxed) {
            self.earliest.store(when, Ordering::Relaxed);
        }
        if when < agenda.sleeps_until {
            self.nudge();
        }
    }

    /// Looks at queue pair `index` again at `when`.
    pub(crate) fn watch(&self, index: u32, when: u64) {
        let mut agenda = self.agenda();
        match agenda.waiting.iter_mut().find(|entry| entry.0 == index) {
            Some(entry) => entry.1 = when,
            None => agenda.waiting.push((index, when)),
        }
        self.due_at(&agenda, when);
    }

    /// Writes `record` to `pipe` at `when`.
    pub(crate) fn later(&self, when: u64, pipe: u32, record: Record) {
        let mut agenda = self.agenda();
        agenda.later.push((when, pipe, record));
        self.due_at(&agenda, when);
    }

    /// Notices when the process that `token` names ends.
    pub(crate) fn watch_process(&self, fabric: &Fabric, token: u32) {
        if token == fabric.token() {
            return;
        }
        let Some(pid) = process::pid_of(fabric.region(), token) else { return };
        let mut agenda = self.agenda();
        if agenda.watched.iter().any(|watched| watched.0 == token) {
            return;
        }
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd >= 0 {
            // SAFETY: the descriptor is new and nobody else's.
            agenda.watched.push((token, unsafe { OwnedFd::from_raw_fd(fd as i32) }));
            self.nudge();
        }
    }

    /// Runs timers that are due; for polls that found nothing.
    #[inline]
    pub(crate) fn while_idle(&self, fabric: &Fabric) {
        let earliest = self.earliest.load(Ordering::Relaxed);
        if earliest != clock::NEVER {
            self.run_due(fabric, earliest);
        }
    }

    #[cold]
    fn run_due(&self, fabric: &Fabric, earliest: u64) {
        if clock::now() >= earliest {
            self.run(fabric);
            fabric.settle();
        }
    }

    /// Runs what is due and finds out when the next is.
    fn run(&self, fabric: &Fabric) {
        let now = clock::now();
        let (due, records) = {
            let mut agenda = self.agenda();
            let (due, rest): (Vec<_>, Vec<_>) = agenda.waiting.drain(..).partition(|entry| entry.1 <= now);
            agenda.waiting = rest;
            let (records, rest): (Vec<_>, Vec<_>) = agenda.later.drain(..).partition(|entry| entry.0 <= now);
            agenda.later = rest;
            self.refresh(&agenda);
            (due, records)
        };
        for (_, pipe, record) in records {
            fabric.pipes.send(pipe, record);
        }
        for (index, _) in due {
            if let Some(when) = sendq::retry(fabric, index) {
                self.watch(index, when);
            }
        }
        if fabric.has_faults {
            let next = faults::on_time(fabric);
            let mut agenda = self.agenda();
            agenda.faults_at = next;
            self.refresh(&agenda);
        }
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

    /// What the thread does; `ready` is told when it sleeps for the first time.
    fn serve(&self, fabric: &Arc<Fabric>, ready: SyncSender<()>) {
        let mut ready = Some(ready);
        loop {
            self.run(fabric);
            fabric.settle();
            let (mut fds, tokens, timeout) = {
                let mut agenda = self.agenda();
                let until = self.earliest.load(Ordering::Relaxed);
                agenda.sleeps_until = until;
                let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                let mut fds = vec![poll(self.wake.as_raw_fd())];
                fds.extend(agenda.watched.iter().map(|watched| poll(watched.1.as_raw_fd())));
                let tokens: Vec<u32> = agenda.watched.iter().map(|watched| watched.0).collect();
                (fds, tokens, until)
            };
            if let Some(ready) = ready.take() {
                let _nobody_else_waits = ready.send(());
            }
            let left = timeout.saturating_sub(clock::now());
            let pause = libc::timespec {
                tv_sec: (left / 1_000_000_000).min(1 << 30) as libc::time_t,
                tv_nsec: (left % 1_000_000_000) as libc::c_long,
            };
            // SAFETY: `fds` has as many entries as said, and `pause` lives during the call.
            unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &raw const pause, std::ptr::null()) };
            self.agenda().sleeps_until = 0;
            if fds[0].revents != 0 {
                let mut count = 0_u64;
                // SAFETY: eight bytes of ours are written.
                unsafe { libc::read(self.wake.as_raw_fd(), (&raw mut count).cast(), 8) };
            }
            for (fd, token) in fds[1..].iter().zip(tokens) {
                if fd.revents != 0 {
                    self.agenda().watched.retain(|watched| watched.0 != token);
                    process::bury(fabric, token);
                }
            }
        }
    }
}

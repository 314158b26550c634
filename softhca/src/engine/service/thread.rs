// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens when nobody calls: timers of waiting sends, delayed notifications, timed rules for faults, and noticing
//! that a connected process has ended.
//!
//! Owns one thread per process, which sleeps in `ppoll` and is never on the data path. What it has to do is in
//! `fabric::timers`; a command (`faults::command`) wakes it by a pipe, its doorbell. Called by: join (starts it), cq
//! (polls that found nothing run what is due). Grade: pending. Thread
//! rule: its thread, or any that polls; no shared lock is held. Times are host nanoseconds.
//!
//! The thread lives as long as the process, as its membership of the fabric does: peers still read and write memory of
//! a process that has closed its device, and their deaths still have to be noticed. So nobody joins it, and the library
//! is linked such that it is never unloaded (build.rs). Tests: tests/unloading.rs, `tests/service_thread.rs`.

use std::sync::{
    Arc,
    mpsc::{SyncSender, sync_channel},
};

use crate::engine::{
    Errno, Result, clock,
    fabric::{
        Fabric,
        pipes::{ABOUT_COMMAND, Mailbox},
    },
    faults::timeline,
    send::retry::retry,
    service::{burial::bury, deferred::run_deferred},
};

/// Starts the thread, deaf to signals, which are the program's: but for those of its own faults, of which a program
/// is to say what it says of any.
///
/// Returns when the thread is about to sleep for the first time. Until then it gets its heap, by `mmap` and
/// `munmap`. MPI libraries write hooks over the first instructions of these functions, in no thread's way but their
/// own, right after they have opened a device: a thread that comes back from `munmap` then executes half a hook.
pub(crate) fn start(fabric: &Arc<Fabric>) -> Result<()> {
    let doorbell = Mailbox::new(fabric.folder(), fabric.next_id())?;
    doorbell.expect(ABOUT_COMMAND, 0);
    fabric.slot_of(fabric.token()).doorbell.publish(doorbell.id);
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
    let fabric = Arc::clone(fabric);
    let (ready, is_ready) = sync_channel(1);
    let started = std::thread::Builder::new()
        .name("softhca".into())
        .stack_size(256 << 10)
        .spawn(move || serve(&fabric, &doorbell, ready));
    // SAFETY: `before` was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started?;
    is_ready.recv().map_err(|_| Errno(libc::EAGAIN))
}

/// Runs timers that are due; for polls that found nothing.
#[inline]
pub(crate) fn while_idle(fabric: &Fabric) {
    let earliest = fabric.timers.earliest();
    if earliest != clock::NEVER {
        run_if_due(fabric, earliest);
    }
}

#[cold]
fn run_if_due(fabric: &Fabric, earliest: u64) {
    if clock::now() >= earliest {
        run(fabric);
        run_deferred(fabric);
    }
}

/// Runs what is due and finds out when the next is.
fn run(fabric: &Fabric) {
    let due = fabric.timers.take_due(clock::now());
    for (pipe, record) in due.records {
        fabric.pipes.send(pipe, record);
    }
    for index in due.sends {
        if let Some(when) = retry(fabric, index) {
            fabric.timers.retry_at(index, when);
        }
    }
    if fabric.has_faults || fabric.header().commands.get() != 0 {
        fabric.timers.set_next_fault(timeline::on_time(fabric));
    }
}

/// What the thread does; `ready` is told when it sleeps for the first time.
fn serve(fabric: &Fabric, doorbell: &Mailbox, ready: SyncSender<()>) {
    let mut ready = Some(ready);
    loop {
        run(fabric);
        run_deferred(fabric);
        let sleep = fabric.timers.begin_sleep();
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = vec![poll(sleep.wake), poll(doorbell.fd())];
        fds.extend(sleep.processes.iter().map(|(_, fd)| poll(*fd)));
        if let Some(ready) = ready.take() {
            let _nobody_else_waits = ready.send(());
        }
        let left = sleep.until.saturating_sub(clock::now());
        let pause = libc::timespec {
            tv_sec: (left / 1_000_000_000).min(1 << 30) as libc::time_t,
            tv_nsec: (left % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: `fds` has as many entries as said, and `pause` lives during the call.
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &raw const pause, std::ptr::null()) };
        fabric.timers.end_sleep(fds[0].revents != 0);
        if fds[1].revents != 0 {
            // It says that there is a command, which `run` finds.
            let _rung = doorbell.read();
        }
        for (fd, (token, _)) in fds[2..].iter().zip(sleep.processes) {
            if fd.revents != 0 {
                fabric.timers.forget_process(token);
                bury(fabric, token);
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The work of a process for its fabric besides its program's calls: it joins, does deferred work when it holds no
//! shared lock, runs timers, reports timed faults, notices that a connected process has ended, and frees the objects of
//! dead ones. Owns one thread per process, which sleeps in `ppoll` and is never on the data path. Its work is in
//! `fabric::timers`; a command (`faults::command`) wakes it by a pipe, its doorbell. Called by: `verbs` (joins, once
//! per process), every call that posts, polls or changes a queue (`run_deferred`, at its end: a load where there is
//! nothing to do), polls that found nothing (`while_idle`). Grade: pending, but for these two. Thread rule: any thread
//! that holds no shared lock; under the kernel's lock of the region's file one process at a time joins or buries.
//! Times: host nanoseconds.
//!
//! The thread lives as long as the process: peers still read and write memory of a process that has closed its device,
//! and it still has to notice their deaths. So no thread waits for its end, and the library is linked such that it is
//! never unloaded (build.rs). Tests: `tests/verbs_library.rs`, `tests/service_thread.rs`.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::process::{PTracer, set_ptracer};

use crate::engine::codes::event;
use crate::engine::fabric::{pipes, sysfs};
use crate::engine::faults::timeline;
use crate::engine::memory::{layout, process};
use crate::engine::qp::table;
use crate::engine::recv::xrc;
use crate::engine::send::retry::retry;
use crate::engine::{CqShared, Deferred, Errno, Fabric, FabricSpec, Process, Region, Result, clock, guarded, mr, qp};

impl Fabric {
    /// Joins the fabric in `spec.folder`; the first process makes its shared state. Call once, and keep the result.
    /// Errors: the folder cannot be used; ENOSPC: no process slot is free; EPROTO: another version of this adapter made
    /// it.
    pub fn join(spec: FabricSpec) -> Result<Arc<Fabric>> {
        sysfs::make(&spec.folder, &spec.devices)?;
        let region = Region::open(&spec.folder)?;
        let token = region.exclusively(|| {
            layout::begin(&region, clock::now(), |header| {
                for (device, states) in spec.devices.iter().zip(&header.port_state) {
                    for (port, state) in device.ports.iter().zip(states) {
                        state.set(port.state);
                    }
                }
            })?;
            process::enter(&region)
        })?;
        // With Yama active, siblings may copy to and from this process only if it permits that; without Yama this
        // fails, harmlessly.
        let _without_yama = set_ptracer(PTracer::Any);
        let fabric = Arc::new(Fabric::new(Process::new(region, token), spec)?);
        guarded::watch();
        bury_all(&fabric);
        start(&fabric)?;
        Ok(fabric)
    }

    /// Buries dead processes, and checks that they have left no object in shared memory.
    /// # Panics
    /// A shared object is in use by no living process, or is neither in use nor free.
    pub fn audit(&self) {
        bury_all(self);
        let alive: Vec<u32> = self.all_tokens().collect();
        qp::table::audit(self, &alive);
        self.audit_heap(&alive);
    }
}

/// Starts the thread. The thread blocks all signals but those of its own faults, because they are the program's.
/// Returns when the thread is about to sleep for the first time: until then it gets its heap, by `mmap` and `munmap`,
/// and MPI libraries overwrite the first instructions of these with hooks right after they have opened a device. A
/// thread that returned from `munmap` meanwhile would execute half a hook.
pub(crate) fn start(fabric: &Arc<Fabric>) -> Result<()> {
    fabric.slot_of(fabric.token()).doorbell.publish(fabric.timers.doorbell.id);
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
    let started =
        std::thread::Builder::new().name("softhca".into()).stack_size(256 << 10).spawn(move || serve(&fabric, ready));
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

/// Does the work that is due, and sets the time of the next rule for faults.
fn run(fabric: &Fabric) {
    let (sends, records) = fabric.timers.take_due(clock::now());
    for (pipe, record) in records {
        fabric.pipes.send(pipe, record);
    }
    for index in sends {
        if let Some(when) = retry(fabric, index, false) {
            fabric.timers.retry_at(index, when);
        }
    }
    if fabric.has_faults || fabric.header().commands.get() != 0 {
        fabric.timers.set_next_fault(timeline::on_time(fabric));
    }
}

/// Runs the thread; sends to `ready` when it sleeps for the first time.
fn serve(fabric: &Fabric, ready: SyncSender<()>) {
    let mut ready = Some(ready);
    loop {
        run(fabric);
        run_deferred(fabric);
        let sleep = fabric.timers.begin_sleep();
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = vec![poll(fabric.timers.doorbell.fd())];
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
        for (fd, (token, _)) in fds[1..].iter().zip(sleep.processes) {
            if fd.revents != 0 {
                fabric.timers.forget_process(token);
                bury(fabric, token);
            }
        }
    }
}

/// Does deferred work. Call with no lock held.
#[inline]
pub(crate) fn run_deferred(fabric: &Fabric) {
    if fabric.deferred.any() {
        run_all(fabric);
    }
}

#[cold]
fn run_all(fabric: &Fabric) {
    loop {
        let list = fabric.deferred.take();
        if list.is_empty() {
            return;
        }
        for work in list {
            match work {
                Deferred::Flush(index) => table::flush_sends(fabric, index),
                Deferred::Overrun(offset) => {
                    fabric.region().at::<CqShared>(offset).raise(fabric, event::CQ_ERR);
                    table::fail_all_with(fabric, offset);
                }
                Deferred::Bury(token) => bury(fabric, token),
                Deferred::Retry(index) => {
                    retry(fabric, index, true);
                }
            }
        }
    }
}

/// Finishes changes that a dead process has begun, and frees its objects; afterwards nothing shared names it, so its
/// slot may get the same generation again some day. Does nothing if the process lives, or is buried already.
pub(crate) fn bury(fabric: &Fabric, token: u32) {
    if token == fabric.token() || fabric.pid_of(token).is_none() || !fabric.is_dead(token) {
        return;
    }
    let _burial = fabric.region().exclusively(|| {
        if fabric.pid_of(token).is_some() {
            fabric.set_buried(token);
            qp::table::inherit_from(fabric, token);
            qp::table::release_all_of(fabric, token);
            mr::table::release_all_of(fabric, token);
            xrc::release_all_of(fabric, token);
            fabric.release_memory_of(token);
            if fabric.header().atomics.0.is_of(token) {
                drop(fabric.header().atomics.0.lock(fabric));
            }
            pipes::remove(fabric.folder(), fabric.slot_of(token).doorbell.get());
            fabric.slot_of(token).pid.publish(0);
            fabric.set_buried(0);
        }
        Ok(())
    });
}

/// Buries all dead processes, so that objects of killed programs do not pile up.
pub(super) fn bury_all(fabric: &Fabric) {
    for token in fabric.all_tokens() {
        bury(fabric, token);
    }
}

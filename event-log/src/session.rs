// SPDX-License-Identifier: MIT OR Apache-2.0
//! The logger, from `MPI_Init` to the end of the process: registrations, the ring, the writing thread.
//!
//! Called by `entry.rs`. `MPI_T` is not finalised, because events occur until the process ends, and Open MPI 4.1 cannot
//! safely finalise it after `MPI_Finalize`. Grade: setup, except [`on_event`], which is hot: no lock, no allocation, no
//! system call. Threads: each function says its own. Tests: tests/log.rs; with a device,
//! hw-tests/tests/device/tools.rs.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::catalogue::{self, EventType, WORDS};
use crate::listening::Listening;
use crate::listing;
use crate::mpi::{self, Instance};
use crate::output::Output;
use crate::recording;
use crate::ring::{LoggedEvent, Ring};
use crate::settings::{self, Wanted};
use crate::thread::{self, Ready, Stop, lock};
use crate::writer::Writer;

/// Number of events in the ring: some 10 MB.
const ROOM: usize = 1 << 16;

/// Time that the writing thread sleeps between two passes. The log of a killed process lacks no more than this.
const PAUSE: Duration = Duration::from_millis(5);

/// Number of events of a pass after which the next pass follows at once.
const BUSY: usize = ROOM / 8;

static SESSION: OnceLock<Option<Session>> = OnceLock::new();

/// Argument of a type's callbacks (L1).
struct Target {
    kind: u32,
    words: usize,
    ring: &'static Ring,
    lost: AtomicU64,
}

struct Session {
    process: u32,
    wanted: Wanted,
    targets: Vec<&'static Target>,
    ring: &'static Ring,
    writer: Mutex<Writer>,
    listening: Listening<Target>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Stop,
    finished: AtomicBool,
}

fn launched_rank() -> Option<u32> {
    settings::launched(|name| std::env::var(name).ok())
}

fn session() -> Option<&'static Session> {
    // A forked process has its parent's memory, but must not write to its log.
    SESSION.get()?.as_ref().filter(|session| session.process == std::process::id())
}

/// Registers for the wanted types, before MPI is initialised. The second call does nothing.
pub(crate) fn begin() {
    SESSION.get_or_init(|| {
        let wanted = Wanted::from(std::env::var("IBEX_LOG_EVENTS").ok().as_deref());
        if wanted == Wanted::List && recording::is_wanted() {
            return None;
        }
        match mpi::initialize() {
            Ok(()) => Some(Session::new(wanted)),
            Err(refused) => {
                mpi::complain(&format!("MPI_T_init_thread answers {}: nothing is logged", refused.0));
                None
            }
        }
    });
}

/// Opens the output after MPI has been initialised, because the rank is known then.
pub(crate) fn initialized() {
    if let Some(session) = session() {
        session.open(mpi::rank());
        lock(&session.writer).clocks.sample();
        session.start();
    }
}

/// Reads the adapters' clocks a last time, before MPI is finalised.
pub(crate) fn finalizing() {
    if let Some(session) = session() {
        lock(&session.writer).clocks.sample();
    }
}

/// Returns this process' session if it logs events.
fn listening() -> Option<&'static Session> {
    session().filter(|session| !session.targets.is_empty())
}

/// Stops the logging for the program.
pub(crate) fn stop() {
    if let Some(session) = listening()
        && session.listening.stop(|_| false)
    {
        let mut writer = lock(&session.writer);
        writer.pass(session.ring);
        writer.stop();
    }
}

/// Resumes the logging for the program.
pub(crate) fn resume() {
    if let Some(session) = listening() {
        session.listening.resume(|| lock(&session.writer).resume());
    }
}

/// Writes the waiting events.
pub(crate) fn flush() {
    if let Some(session) = session() {
        lock(&session.writer).pass(session.ring);
    }
}

/// Writes the rest, and then the statistics or the list, when the process ends or aborts the job.
pub(crate) fn end() {
    if let Some(session) = session() {
        session.finish();
    }
}

impl Session {
    fn new(wanted: Wanted) -> Session {
        let types = catalogue::types();
        let names: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
        let (chosen, unknown) = wanted.choose(&names);
        // All ranks would print the same, so rank 0 does.
        if !unknown.is_empty() && launched_rank().is_none_or(|rank| rank == 0) {
            let known: Vec<&str> = types.iter().map(EventType::short).collect();
            mpi::complain(&format!(
                "IBEX_LOG_EVENTS: there is no event {}; use all, or some of: {}",
                unknown.join(", "),
                known.join(", ")
            ));
        }
        let (types, strange): (Vec<_>, Vec<_>) =
            chosen.into_iter().map(|index| types[index].clone()).partition(EventType::fits);
        for kind in strange {
            mpi::complain(&format!("{}: has elements that this logger cannot read; it is left out", kind.name));
        }
        let ring: &'static Ring = Box::leak(Box::new(Ring::new(if types.is_empty() { 1 } else { ROOM })));
        let target = |(kind, of): (usize, &EventType)| {
            let words = of.elements.iter().map(|element| element.at / 8 + 1).max().unwrap_or(0);
            &*Box::leak(Box::new(Target { kind: kind as u32, words, ring, lost: AtomicU64::new(0) }))
        };
        let targets: Vec<&'static Target> = types.iter().enumerate().map(target).collect();
        // SAFETY: L1: both callbacks get a target, which is never freed.
        let listening = unsafe { Listening::begin(&types, &targets, on_event, on_dropped) };
        Session {
            process: std::process::id(),
            wanted,
            targets,
            ring,
            writer: Mutex::new(Writer::new(types)),
            listening,
            thread: Mutex::new(None),
            stop: Stop::default(),
            finished: AtomicBool::new(false),
        }
    }

    /// Opens the output of a rank. Without a rank from MPI, the launcher's is used. Only rank 0 writes a list to
    /// standard error, because it is the same for all.
    fn open(&self, rank: Option<u32>) {
        if lock(&self.writer).is_open() {
            return;
        }
        let rank = settings::rank(rank.or_else(launched_rank), self.process);
        let file = std::env::var("IBEX_LOG_FILE").ok();
        if self.wanted == Wanted::List && file.is_none() && rank != "0" {
            return;
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = settings::file(file.as_deref(), &rank, host.trim(), self.process);
        let program = std::env::args_os().next().unwrap_or_default();
        let whose = format!("rank {rank}, host {}, process {}, {}", host.trim(), self.process, program.display());
        lock(&self.writer).open(Output::open(name.as_deref(), &rank), &whose);
    }

    fn start(&'static self) {
        let mut thread = lock(&self.thread);
        if self.targets.is_empty() || thread.is_some() {
            return;
        }
        *thread = thread::start("ibex-log", |ready| self.write(ready));
        if thread.is_none() {
            mpi::complain("cannot start a thread: events are written at the end, as far as the ring holds them");
        }
    }

    fn write(&self, ready: Ready) {
        ready.tell();
        while !self.stop.sleep(PAUSE) {
            while lock(&self.writer).pass(self.ring) >= BUSY {}
        }
    }

    fn finish(&self) {
        if self.finished.swap(true, Ordering::Relaxed) {
            return;
        }
        self.listening.end();
        self.stop.set();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
        // If MPI could not be initialised, the output is opened here.
        self.open(None);
        let mut writer = lock(&self.writer);
        writer.pass(self.ring);
        let lost: Vec<u64> = self.targets.iter().map(|target| target.lost.load(Ordering::Relaxed)).collect();
        match self.wanted {
            Wanted::List => writer.remark(&listing::lines()),
            Wanted::Events(_) => writer.summary(&lost),
        }
    }
}

/// Puts an event into the ring. Hot; safe in a signal handler.
unsafe extern "C" fn on_event(
    instance: mpi::MPI_T_event_instance,
    _: mpi::MPI_T_event_registration,
    _: mpi::Safety,
    user: *mut c_void,
) {
    // SAFETY: L1: a target that is never freed.
    let target = unsafe { &*user.cast::<Target>() };
    // SAFETY: L2: the instance is this callback's.
    let event = unsafe { Instance::new(instance) };
    let (source, ticks) = event.stamp();
    let mut record = LoggedEvent { kind: target.kind, source: source.cast_unsigned(), ticks, data: [0; WORDS] };
    // SAFETY: only types whose data fit have a registration.
    unsafe { event.copy(&mut record.data) };
    if !target.ring.put(&record, target.words) {
        target.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts events that ibex has dropped.
unsafe extern "C" fn on_dropped(
    count: mpi::Count,
    _: mpi::MPI_T_event_registration,
    _source: c_int,
    _: mpi::Safety,
    user: *mut c_void,
) {
    // SAFETY: L1: a target that is never freed.
    let target = unsafe { &*user.cast::<Target>() };
    target.lost.fetch_add(count.cast_unsigned(), Ordering::Relaxed);
}

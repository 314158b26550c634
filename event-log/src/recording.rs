// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder, from `MPI_Init` to the end of the process: registrations, a ring for each thread, the writing thread,
//! the file.
//!
//! Called by `entry.rs`; active with `IBEX_TRACE`, in addition to the text (`session.rs`) or instead of it. As there,
//! `MPI_T` is not finalised, because events occur until the process ends. Grade: setup, except [`on_event`], which is
//! hot: no lock, no allocation, one system call for a thread's first event, and no memory that two threads write to.
//! Threads: each function says its own. Tests: tests/trace.rs; with a device, hw-tests/tests/device/recorder.rs.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ibex_trace::{Clock, ClockSample, Head, MOST_ELEMENTS, MOST_SOURCES, MOST_TYPES, Options, Source, Writer};

use crate::calls;
use crate::catalogue::{self, EventType, WORDS};
use crate::clock::{self, Reading};
use crate::exchange::Hidden;
use crate::intervals::Found;
use crate::listening::Listening;
use crate::meeting;
use crate::mpi::{self, Instance};
use crate::recorder::Recorder;
use crate::rings::Rings;
use crate::settings::{self, Chosen};
use crate::target::Target;
use crate::thread::{self, Ready, Stop, lock};

/// Number of records in the ring of a thread: 16 MiB, of which the system provides the used part.
const ROOM: usize = 1 << 19;

/// Time that the writing thread sleeps between two passes.
const PAUSE: Duration = Duration::from_millis(5);

/// Number of records of a pass after which the next pass follows at once.
const BUSY: usize = 1 << 14;

/// Time between two readings of the sources' clocks.
const SAMPLE: Duration = Duration::from_millis(50);

/// Context of this recorder's own messages.
static HIDDEN: Hidden = Hidden::new();

/// Message about threads without a ring.
const NO_MEMORY: &str = "there is no memory for the events of more threads (16 MiB of address space each): raise the \
                         limit of the processes (ulimit -v), or use fewer threads";

/// Message about full rings.
const TOO_FAST: &str = "events came faster than they were written: record fewer (ibex trace --events, \
                        IBEX_TRACE_EVENTS)";

/// Message about events that ibex has dropped.
const NOT_HANDED_OVER: &str = "ibex could not deliver them in time";

static RECORDING: OnceLock<Option<Recording>> = OnceLock::new();

/// State of the thread that writes.
#[derive(Default)]
struct Writing {
    recorder: Option<Recorder<File>>,
    /// For each source in the trace, whether its ticks are those of the host's monotonic clock.
    sources: Vec<bool>,
    sampled: Option<Instant>,
    /// Number of losses of each type that are in the trace.
    lost: Vec<u64>,
    failure_told: bool,
    /// Whether each of [`Recording::reasons`] is in the trace.
    reasons_told: [bool; 3],
    /// Sentences that are to be written to the trace.
    notes: Vec<String>,
}

struct Recording {
    process: u32,
    folder: PathBuf,
    types: Vec<EventType>,
    targets: Vec<&'static Target>,
    rings: &'static Rings,
    writing: Mutex<Writing>,
    listening: Listening<Target>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Stop,
    finished: AtomicBool,
}

fn recording() -> Option<&'static Recording> {
    // A forked process has its parent's memory, but must not write to its trace.
    RECORDING.get()?.as_ref().filter(|recording| recording.process == std::process::id())
}

/// Returns whether a trace is to be recorded.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("IBEX_TRACE").is_some_and(|folder| !folder.is_empty())
}

/// Registers for the wanted types, before MPI is initialised. The second call does nothing.
pub(crate) fn begin() {
    RECORDING.get_or_init(|| {
        let folder = std::env::var_os("IBEX_TRACE").filter(|folder| !folder.is_empty())?;
        match mpi::initialize() {
            Ok(()) => Recording::new(folder.into()),
            Err(refused) => {
                mpi::complain(&format!("MPI_T_init_thread answers {}: nothing is recorded", refused.0));
                None
            }
        }
    });
}

/// Makes the file after MPI has been initialised, because the rank is known then.
pub(crate) fn initialized() {
    let open = recording().filter(|recording| recording.open(mpi::rank()));
    // Even if this rank does not record, because other ranks wait for it.
    meeting::begin(&HIDDEN, found);
    if let Some(recording) = open {
        recording.start();
    }
}

/// Reads the adapters' clocks a last time, before MPI is finalised.
pub(crate) fn finalizing() {
    meeting::end(found);
    if let Some(recording) = recording() {
        recording.pass(true);
    }
}

/// Stops the recording for the program. Still recorded are the events of communicators, because later messages belong
/// to these, and the ends of calls that have begun.
pub(crate) fn stop() {
    if let Some(recording) = recording()
        && recording.listening.stop(|name| ibex_trace::short(name).starts_with("communicator_"))
    {
        calls::stop();
    }
}

/// Resumes the recording for the program.
pub(crate) fn resume() {
    if let Some(recording) = recording() {
        recording.listening.resume(calls::resume);
    }
}

/// Writes the waiting records.
pub(crate) fn flush() {
    if let Some(recording) = recording() {
        // A pass takes the records of a ring up to the end of its lap, so two passes take all.
        recording.pass(true);
        recording.pass(true);
    }
}

/// Writes the rest when the process ends, or aborts the job.
pub(crate) fn end() {
    meeting::leave();
    if let Some(recording) = recording() {
        recording.finish();
    }
}

/// Records a result about another rank's clock.
fn found(found: Found) {
    let Some(recording) = recording() else { return };
    let mut writing = lock(&recording.writing);
    match (found, &mut writing.recorder) {
        (Found::Sample(sample), Some(recorder)) => recorder.clock(sample),
        (Found::Unanswered(addresses), Some(_)) => writing.notes.push(meeting::unanswered(&addresses)),
        (_, None) => {}
    }
}

impl Recording {
    fn new(folder: PathBuf) -> Option<Recording> {
        let types = chosen_types();
        let Some(rings) = Rings::new(ROOM) else {
            mpi::complain("IBEX_TRACE: no memory for the events of threads: nothing is recorded");
            return None;
        };
        let rings: &'static Rings = Box::leak(Box::new(rings));
        let target = |(number, of)| &*Box::leak(Box::new(Target::new(number as u8, of, rings)));
        let targets: Vec<&'static Target> = types.iter().enumerate().map(target).collect();
        // SAFETY: L1: both callbacks get a target, which is never freed.
        let listening = unsafe { Listening::begin(&types, &targets, on_event, on_dropped) };
        Some(Recording {
            process: std::process::id(),
            folder,
            writing: Mutex::new(Writing { lost: vec![0; types.len()], ..Writing::default() }),
            types,
            targets,
            rings,
            listening,
            thread: Mutex::new(None),
            stop: Stop::default(),
            finished: AtomicBool::new(false),
        })
    }

    /// Makes the file; returns false if that fails. Without a rank from MPI, the launcher's is used.
    fn open(&self, rank: Option<u32>) -> bool {
        let mut writing = lock(&self.writing);
        if writing.recorder.is_some() {
            return true;
        }
        let head = self.head(rank);
        let made = std::fs::create_dir_all(&self.folder).map_err(|error| error.to_string());
        let begun = made
            .and_then(|()| Writer::create(&self.folder, &head, Options::default()).map_err(|error| error.to_string()));
        match begun {
            Ok(writer) => {
                writing.recorder = Some(Recorder::new(writer));
                calls::record(&self.types, &self.targets);
            }
            Err(error) => {
                mpi::complain(&format!("IBEX_TRACE={}: {error}: nothing is recorded", self.folder.display()));
                drop(writing);
                self.listening.end();
                return false;
            }
        }
        true
    }

    /// Returns the head of the file. Sources are added later.
    fn head(&self, rank: Option<u32>) -> Head {
        let variable = |name: &str| std::env::var(name).ok();
        let (ranks, is_spawned) = if rank.is_some() { (mpi::ranks(), mpi::is_spawned()) } else { (None, false) };
        Head {
            ibex: env!("CARGO_PKG_VERSION").to_owned(),
            job: settings::job(variable),
            world: settings::world(variable("PMIX_NAMESPACE").as_deref(), is_spawned),
            rank: rank.or_else(|| settings::launched(variable)),
            ranks,
            host: settings::host(),
            clock: settings::clock(),
            pid: self.process,
            program: std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned(),
            calendar: clock::calendar_offset(),
            types: self.types.iter().map(EventType::recorded).collect(),
            sources: Vec::new(),
        }
    }

    /// Starts the writing thread. Returns after its first pass.
    fn start(&'static self) {
        let mut thread = lock(&self.thread);
        if thread.is_some() {
            return;
        }
        *thread = thread::start("ibex-trace", |ready| self.write(ready));
        if thread.is_none() {
            mpi::complain("cannot start a thread: events are recorded at the end, as far as the rings hold them");
        }
    }

    fn write(&self, ready: Ready) {
        self.pass(true);
        ready.tell();
        while !self.stop.sleep(PAUSE) {
            while self.pass(false) >= BUSY {}
        }
    }

    /// Takes the recorded events and writes them; with `now` to the file. Returns the number of records.
    fn pass(&self, now: bool) -> usize {
        let mut writing = lock(&self.writing);
        let Writing { recorder, sources, sampled, lost, failure_told, reasons_told, notes } = &mut *writing;
        let Some(recorder) = recorder else { return 0 };
        let is_due = now || sampled.is_none_or(|sampled| sampled.elapsed() >= SAMPLE);
        let taken = recorder.pass(self.rings, |writer| {
            notes.drain(..).for_each(|note| writer.note(note));
            let known = sources.len();
            learn(writer, sources);
            // A new source has raised events already: early samples make their times more exact.
            if is_due || sources.len() > known {
                *sampled = Some(Instant::now());
                sources.iter().enumerate().filter_map(sample).for_each(|sample| writer.clock(sample));
                for (event_type, (target, told)) in self.targets.iter().zip(lost).enumerate() {
                    let all = target.lost();
                    writer.lost(event_type as u8, all - *told);
                    *told = all;
                }
                for ((count, reason), is_told) in self.reasons().into_iter().zip(reasons_told) {
                    if count > 0 && !*is_told {
                        *is_told = true;
                        writer.note(format!("Events were lost: {reason}."));
                    }
                }
            }
        });
        if now {
            recorder.flush();
        }
        if let Some(error) = recorder.failed()
            && !*failure_told
        {
            *failure_told = true;
            mpi::complain(&format!("{error}: later events are not recorded"));
        }
        taken
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
        // There is no file if the process has tried to initialise MPI and has failed.
        while self.pass(true) > 0 {}
        let Some(recorder) = lock(&self.writing).recorder.take() else { return };
        let failed_before = recorder.failed().is_some();
        for (event_type, count) in recorder.unwritten() {
            self.targets[usize::from(event_type)].lose(count);
        }
        if let Err(error) = recorder.finish()
            && !failed_before
        {
            mpi::complain(&format!("{error}: the trace is not complete"));
        }
        self.tell_losses(failed_before);
    }

    /// Returns the number of lost events for each reason.
    fn reasons(&self) -> [(u64, &'static str); 3] {
        let sum = |count: fn(&Target) -> u64| -> u64 { self.targets.iter().map(|target| count(target)).sum() };
        // Read first, so that later losses are not assigned to another reason.
        let all = sum(Target::lost);
        let (refused, dropped) = (self.rings.refused(), sum(Target::dropped));
        [(refused, NO_MEMORY), (dropped, NOT_HANDED_OVER), (all.saturating_sub(refused + dropped), TOO_FAST)]
    }

    /// Prints which events the trace lacks, and why; `is_unwritten`: the file could not be written to the end.
    fn tell_losses(&self, is_unwritten: bool) {
        let lost = self.types.iter().zip(&self.targets).map(|(of, target)| (of, target.lost()));
        let lost: Vec<_> = lost.filter(|(_, lost)| *lost > 0).collect();
        if !lost.is_empty() {
            let all: u64 = lost.iter().map(|(_, lost)| lost).sum();
            let each: Vec<String> = lost.iter().map(|(of, lost)| format!("{lost} {}", of.short())).collect();
            let rank = settings::launched(|name| std::env::var(name).ok());
            let whose = settings::rank(rank, self.process);
            let reasons: Vec<_> = self.reasons().into_iter().filter(|(count, _)| *count > 0).collect();
            let reason = match &reasons[..] {
                _ if is_unwritten => "they are not in its trace".to_owned(),
                [(_, only)] => (*only).to_owned(),
                _ => reasons.iter().map(|(count, of)| format!("{count}: {of}")).collect::<Vec<_>>().join("; "),
            };
            mpi::complain(&format!("rank {whose}: {all} events lost ({}): {reason}", each.join(", ")));
        }
    }
}

/// Returns the types that are to be recorded.
fn chosen_types() -> Vec<EventType> {
    let mut types = catalogue::types();
    types.extend(calls::types());
    let names: Vec<&str> = types.iter().map(|of| of.name.as_str()).collect();
    let wanted = Chosen::from(std::env::var("IBEX_TRACE_EVENTS").ok().as_deref());
    let (chosen, unknown) = wanted.choose(&names);
    // All ranks would print the same, so rank 0 does.
    if !unknown.is_empty() && settings::launched(|name| std::env::var(name).ok()).is_none_or(|rank| rank == 0) {
        let known: Vec<&str> = types.iter().map(EventType::short).collect();
        mpi::complain(&format!(
            "IBEX_TRACE_EVENTS: there is no event and no group {}; use the groups {}, or the events {}",
            unknown.join(", "),
            ibex_trace::GROUPS.join(", "),
            known.join(", ")
        ));
    }
    let (mut fit, strange): (Vec<_>, Vec<_>) = chosen
        .into_iter()
        .map(|index| types[index].clone())
        .partition(|of| of.fits() && of.elements.len() <= MOST_ELEMENTS);
    for of in strange {
        mpi::complain(&format!("{}: its elements do not fit into a trace; it is left out", of.name));
    }
    let own = calls::control();
    fit.truncate(MOST_TYPES - own.iter().len());
    fit.extend(own);
    fit
}

/// Adds new sources to the trace.
fn learn(writer: &mut Writer<File>, known: &mut Vec<bool>) {
    while known.len() < (mpi::source_count().unsigned_abs() as usize).min(MOST_SOURCES) {
        let Ok(source) = mpi::source(known.len() as c_int) else { return };
        let is_host = source.name.starts_with("host:") && source.ticks_per_second == 1_000_000_000;
        let added = writer.add_source(Source {
            name: source.name,
            description: source.description,
            ticks_per_second: source.ticks_per_second.unsigned_abs(),
            max_ticks: source.max_ticks.unsigned_abs(),
            ordered: source.ordered,
        });
        if added.is_err() {
            return;
        }
        known.push(is_host);
    }
}

/// Returns the time of a source's clock, between two readings of the host's.
fn sample((source, is_host): (usize, &bool)) -> Option<ClockSample> {
    let Reading { shown, around: (before, after) } = clock::narrowest(|| mpi::source_now(source as c_int))?;
    // If it is the same clock, its rate is known, and the reading itself is exact.
    let (before, after) = if *is_host && (before..=after).contains(&shown) { (shown, shown) } else { (before, after) };
    Some(ClockSample { clock: Clock::Source(source as u8), shown: u64::try_from(shown).ok()?, before, after })
}

/// Puts an event into the thread's ring. Hot; safe in a signal handler, where the event may be lost.
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
    let mut data = [0; WORDS];
    // SAFETY: only types whose data fit have a registration.
    unsafe { event.copy(&mut data) };
    if !target.context(&data).is_some_and(|context| HIDDEN.hides(context)) {
        target.put(source, ticks, target.values(&data));
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
    target.never_came(count.cast_unsigned());
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder, from `MPI_Init` to the end of the process. Called by `entry.rs`; active with `IBEX_TRACE`, in addition
//! to the text (`session.rs`) or instead of it. `MPI_T` is not finalised, because events occur until the process ends.
//! Grade: setup. Threads: each function says its own. Tests: tests/trace.rs; hw-tests/tests/device/recorder.rs.

use std::ffi::c_int;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use ibex_trace::{BLOCK, Chosen, Head, MOST_SOURCES, SAMPLE, Writer};

use crate::calls;
use crate::catalogue::{self, EventType};
use crate::clock;
use crate::intervals::Found;
use crate::listening::Listening;
use crate::meeting;
use crate::mpi;
use crate::recorder::Recorder;
use crate::rings::{Rings, Task};
use crate::settings;
use crate::target::Target;
use crate::thread::lock;

/// Number of records in the ring of a thread: 16 MiB, of which the system provides the used part.
const ROOM: usize = 1 << 19;

const NO_MEMORY: &str = "there is no memory for the events of more threads (16 MiB of address space each): raise the \
                         limit of the processes (ulimit -v), or use fewer threads";

const TOO_FAST: &str = "events came faster than they were written: record fewer (ibex trace --events, \
                        IBEX_TRACE_EVENTS)";

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
    notes: Vec<String>,
}

struct Recording {
    process: u32,
    folder: PathBuf,
    writing: Mutex<Writing>,
    listening: Listening,
}

fn recording() -> Option<&'static Recording> {
    // A forked process has its parent's memory, but must not write to its trace.
    RECORDING.get()?.as_ref().filter(|recording| recording.process == std::process::id())
}

/// Returns the folder of the trace; `None`: none is to be recorded.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os("IBEX_TRACE").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Registers for the wanted types, before MPI is initialised. The second call does nothing.
pub(crate) fn begin() {
    RECORDING.get_or_init(|| {
        let folder = folder()?;
        mpi::initialize("recorded")?;
        Recording::new(folder)
    });
}

/// Makes the file after MPI has been initialised, because the rank is known then.
pub(crate) fn initialized() {
    let open = recording().filter(|recording| recording.open(mpi::rank()));
    // Even if this rank does not record, because other ranks wait for it.
    meeting::begin(found);
    if let Some(recording) = open {
        recording.listening.start("ibex-trace", || recording.pass(false));
    }
}

/// Reads the adapters' clocks a last time, before MPI is finalised.
pub(crate) fn finalizing() {
    meeting::end(found);
    if let Some(recording) = recording() {
        recording.pass(true);
    }
}

/// Stops the recording, but for events of communicators, which later messages need, and for ends of begun calls.
pub(crate) fn stop() {
    if let Some(recording) = recording()
        && recording.listening.stop(|name| name.starts_with("communicator_"))
    {
        calls::stop();
    }
}

pub(crate) fn resume() {
    if let Some(recording) = recording() {
        recording.listening.resume(calls::resume);
    }
}

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
    if let Some(recording) = recording()
        && recording.listening.end()
    {
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
        let Some(rings) = Rings::new(Task::Trace, ROOM) else {
            mpi::complain("IBEX_TRACE: no memory for the events of threads: nothing is recorded");
            return None;
        };
        Some(Recording {
            process: std::process::id(),
            folder,
            writing: Mutex::new(Writing { lost: vec![0; types.len()], ..Writing::default() }),
            listening: Listening::begin(types, rings),
        })
    }

    /// Makes the file; returns false if that fails. Without a rank from MPI it uses the launcher's.
    fn open(&self, rank: Option<u32>) -> bool {
        let mut writing = lock(&self.writing);
        if writing.recorder.is_some() {
            return true;
        }
        let head = self.head(rank);
        let made = std::fs::create_dir_all(&self.folder).map_err(|error| error.to_string());
        let begun = made.and_then(|()| Writer::create(&self.folder, &head, BLOCK).map_err(|error| error.to_string()));
        match begun {
            Ok(writer) => {
                writing.recorder = Some(Recorder::new(writer));
                calls::record(&self.listening.types, &self.listening.targets);
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

    fn head(&self, rank: Option<u32>) -> Head {
        let (ranks, is_spawned) = if rank.is_some() { (mpi::ranks(), mpi::is_spawned()) } else { (None, false) };
        let head = Head::of_this_process(env!("CARGO_PKG_VERSION"));
        Head {
            world: ibex_trace::world(settings::variable("PMIX_NAMESPACE").as_deref(), is_spawned),
            rank: rank.or(head.rank),
            ranks,
            calendar: clock::calendar_offset(),
            types: self.listening.types.iter().map(EventType::recorded).collect(),
            ..head
        }
    }

    /// Takes the recorded events and writes them; with `now` to the file. Returns the number of records.
    fn pass(&self, now: bool) -> usize {
        let mut writing = lock(&self.writing);
        let Writing { recorder, sources, sampled, lost, failure_told, reasons_told, notes } = &mut *writing;
        let Some(recorder) = recorder else { return 0 };
        let is_due = now || sampled.is_none_or(|sampled| sampled.elapsed() >= SAMPLE);
        let taken = recorder.pass(self.listening.rings, |writer| {
            notes.drain(..).for_each(|note| writer.note(note));
            let known = sources.len();
            learn(writer, sources);
            // A new source has raised events already: early samples make their times more exact.
            if is_due || sources.len() > known {
                *sampled = Some(Instant::now());
                let samples =
                    sources.iter().enumerate().filter_map(|(source, is_host)| clock::sample(source, *is_host));
                samples.for_each(|sample| writer.clock(sample));
                for (event_type, (all, told)) in self.listening.lost().zip(lost).enumerate() {
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
            // A pass recycles the rings of ended threads only when few are free; there may be no memory for others.
            self.listening.rings.recycle();
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
        // There is no file if the process has tried to initialise MPI and has failed.
        while self.pass(true) > 0 {}
        let Some(recorder) = lock(&self.writing).recorder.take() else { return };
        let failed_before = recorder.failed().is_some();
        for (event_type, count) in recorder.unwritten() {
            self.listening.targets[usize::from(event_type)].lose(count);
        }
        if let Err(error) = recorder.finish()
            && !failed_before
        {
            mpi::complain(&format!("{error}: the trace is not complete"));
        }
        self.tell_losses(failed_before);
    }

    fn reasons(&self) -> [(u64, &'static str); 3] {
        let sum = |count: fn(&Target) -> u64| -> u64 { self.listening.targets.iter().map(|of| count(of)).sum() };
        // Read first, so that later losses are not assigned to another reason.
        let all = sum(Target::lost);
        let (refused, dropped) = (self.listening.rings.refused(), sum(Target::dropped));
        [(refused, NO_MEMORY), (dropped, NOT_HANDED_OVER), (all.saturating_sub(refused + dropped), TOO_FAST)]
    }

    /// Prints which events the trace lacks, and why; `is_unwritten`: the file could not be written to the end.
    fn tell_losses(&self, is_unwritten: bool) {
        let lost = self.listening.types.iter().zip(self.listening.lost());
        let lost: Vec<_> = lost.filter(|(_, lost)| *lost > 0).collect();
        if !lost.is_empty() {
            let all: u64 = lost.iter().map(|(_, lost)| lost).sum();
            let each: Vec<String> = lost.iter().map(|(of, lost)| format!("{lost} {}", of.short())).collect();
            let whose = settings::rank(ibex_trace::launched_rank(), self.process);
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

fn chosen_types() -> Vec<EventType> {
    let mut types = catalogue::types();
    types.extend(calls::types());
    let chosen = Chosen::from(settings::variable("IBEX_TRACE_EVENTS").as_deref(), "default");
    let mut types = catalogue::choose("IBEX_TRACE_EVENTS", &chosen, &types);
    types.extend(calls::control());
    types
}

fn learn(writer: &mut Writer<File>, known: &mut Vec<bool>) {
    while known.len() < (mpi::source_count().unsigned_abs() as usize).min(MOST_SOURCES) {
        let Ok(source) = mpi::source(known.len() as c_int) else { return };
        let is_host = source.is_host();
        if writer.add_source(source).is_err() {
            return;
        }
        known.push(is_host);
    }
}

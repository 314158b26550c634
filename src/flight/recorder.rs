// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder of this process: its file, and the writing of entries. A writer claims an entry's place by one addition
//! and writes its first word last; by that word and a sum a concurrent reader knows which entries are whole. So threads
//! need no lock, and a thread that dies in between damages only its entry. The plugin begins and ends the recording;
//! any code calls [`record`]. Grade: pending. Threads: any. Tests: `tests.rs`.

use super::entry::{Entry, Kind, NOBODY};
use super::layout::{
    self, BLOCK, ENTRIES, ENTRY, GID, MAGIC, NAME, PORT_NAME, PORTS, REASON, VERSION, WORDS, at, pack, started,
};
use super::leftovers;
use crate::counters::{COUNTERS, Counters};
use crate::events;
use ibex_ffi::clock::monotonic;
use ibex_ffi::shared;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The process that is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    /// Open MPI's number of the job, or another launcher's.
    pub job: u32,
    /// Rank of the process.
    pub rank: u32,
    /// Name of its host.
    pub host: &'a str,
    /// Whether the names of peers have, in place of the job, a number of each peer's port.
    pub names_instances: bool,
}

#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) words: &'static [AtomicU64],
    path: PathBuf,
    pid: u32,
    reason: Mutex<()>,
}

/// Most recordings of a process, one after the other.
const LIVES: usize = 8;

static RECORDERS: [OnceLock<Recorder>; LIVES] = [const { OnceLock::new() }; LIVES];

/// Index of the recorder in use, plus 1; 0: none.
static CURRENT: AtomicUsize = AtomicUsize::new(0);

/// Index of the next recorder. Written by `begin`: by one thread, while MPI is initialised.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Recorder {
    pub(super) fn create(folder: &Path, process: &Process<'_>) -> io::Result<Recorder> {
        let pid = std::process::id();
        let path = folder.join(leftovers::file_name(process.job, process.rank, pid));
        let unfinished = folder.join(format!(".{}", leftovers::file_name(process.job, process.rank, pid)));
        // A process with the same id may have left it, if it died while it made its file.
        let _ = fs::remove_file(&unfinished);
        let words = shared::create(&unfinished, WORDS)?;
        let recorder = Recorder { words, path, pid, reason: Mutex::new(()) };
        recorder.write_header(pid, process);
        // A reader that finds the file finds it whole.
        fs::rename(&unfinished, &recorder.path).inspect_err(|_| _ = fs::remove_file(&unfinished))?;
        Ok(recorder)
    }

    fn write_header(&self, pid: u32, process: &Process<'_>) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let program = fs::read_link("/proc/self/exe").unwrap_or_default();
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        self.set(at::MAGIC, MAGIC);
        self.set(at::VERSION, VERSION);
        self.set(at::PROCESS, u64::from(process.rank) << 32 | u64::from(pid));
        self.set(at::JOB, process.job.into());
        self.set(at::STARTED, started(pid));
        self.set(at::MONOTONIC, monotonic());
        self.set(at::UNIX, unix.as_nanos() as u64);
        self.set(at::COUNTS, layout::fingerprint_of_counts());
        self.set(at::NAMES_INSTANCES, process.names_instances.into());
        self.set_all(at::HOST, pack::<NAME>(process.host));
        self.set_all(at::PROGRAM, pack::<NAME>(&program));
        self.set(at::SUM, layout::sum((0..at::SUM).map(|at| self.words[at].load(Ordering::Relaxed))));
    }

    pub(super) fn set(&self, at: usize, word: u64) {
        self.words[at].store(word, Ordering::Relaxed);
    }

    fn set_all<const N: usize>(&self, at: usize, words: [u64; N]) {
        words.iter().enumerate().for_each(|(index, word)| self.set(at + index, *word));
    }

    pub(super) fn write(&self, entry: &Entry) {
        let number = self.words[at::ENTRIES].fetch_add(1, Ordering::Relaxed);
        let place = at::RING + number as usize % ENTRIES * ENTRY;
        let Some([first, others @ ..]) = self.words.get(place..place + ENTRY) else { return };
        first.store(0, Ordering::Relaxed);
        // A reader that finds a word of the new entry no longer finds the first word of the old one.
        fence(Ordering::Release);
        for (word, value) in others.iter().zip(Entry { number, ..*entry }.encode()) {
            word.store(value, Ordering::Relaxed);
        }
        first.store(number + 1, Ordering::Release);
    }

    pub(super) fn name_port(&self, port: u8, name: &str, gid: [u8; 16]) {
        if usize::from(port) < PORTS {
            let [first, second] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| gid[at + byte])));
            self.set_all(at::GIDS + usize::from(port) * GID, [first, second]);
            self.set_all(at::PORTS + usize::from(port) * PORT_NAME, pack::<PORT_NAME>(name));
        }
    }

    pub(super) fn keep(&self, why: &str) -> &Path {
        // The last failure is most often the cause of a process's death. The lock keeps the words of two threads apart.
        let _one = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        self.words[at::KEPT].store(1, Ordering::Relaxed);
        self.set_all(at::REASON, pack::<REASON>(why));
        &self.path
    }

    pub(super) fn close(&self) {
        if self.words[at::KEPT].load(Ordering::Relaxed) == 0 {
            // It may have been removed as a leftover.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[inline]
pub(super) fn current() -> Option<&'static Recorder> {
    RECORDERS.get(CURRENT.load(Ordering::Acquire).wrapping_sub(1))?.get()
}

/// Begins to record, in a new file of this folder. Removes files that dead processes have left, except the newest.
///
/// # Errors
/// If no such file can be made.
pub fn begin(folder: &Path, process: &Process<'_>) -> io::Result<()> {
    if current().is_some() {
        return Ok(());
    }
    leftovers::clear(folder);
    let place = NEXT.load(Ordering::Relaxed);
    let free = RECORDERS.get(place).ok_or_else(|| io::Error::other("the process has had too many"))?;
    let recorder = Recorder::create(folder, process)?;
    NEXT.store(place + 1, Ordering::Relaxed);
    let _ = free.set(recorder);
    CURRENT.store(place + 1, Ordering::Release);
    Ok(())
}

/// Ends the recording after success, and removes the file unless it is to stay ([`keep`]). Does nothing in a forked
/// process: the file is its parent's.
pub fn end() {
    if let Some(recorder) = current().filter(|recorder| recorder.pid == std::process::id()) {
        CURRENT.store(0, Ordering::Release);
        recorder.close();
    }
}

/// Notes a failure, so that the file stays. Returns its path; `None`: there is no file.
#[cold]
#[must_use]
pub fn keep(why: &str) -> Option<&'static Path> {
    Some(current()?.keep(why))
}

/// Stores the name and the GID of the port with this index.
pub fn name_port(port: u8, name: &str, gid: [u8; 16]) {
    if let Some(recorder) = current() {
        recorder.name_port(port, name, gid);
        record((Kind::PortOpened, 0), port, NOBODY, Entry::text(name));
    }
}

/// Writes an entry: its kind and detail, the port, the peer, and its numbers ([`Kind`]).
#[cold]
#[inline(never)]
pub fn record((kind, detail): (Kind, u8), port: u8, peer: u32, numbers: [u64; 4]) {
    if let Some(recorder) = current() {
        recorder.write(&Entry { number: 0, time: monotonic(), kind: kind as u16, port, detail, peer, numbers });
    }
}

/// The counts of events over all sources, in the process's own block, behind the time of the copy.
pub const EVENTS: [&str; 4] = ["events_raised", "events_delivered", "events_dropped", "events_late"];

const _: () = assert!(EVENTS.len() < BLOCK);

/// Copies counts of a port, for `ibex top`, and of events, unless the last copy is less than `pause` ns old. A port
/// calls this when it checks its connections, so counting costs nothing more. Returns whether it copied.
#[cold]
pub fn show(port: u8, counters: &Counters, pause: u64) -> bool {
    let (Some(recorder), port) = (current(), usize::from(port)) else { return false };
    let Some(block) = recorder.words.get(at::COUNTED + port * BLOCK..).filter(|_| port < PORTS) else { return false };
    let now = monotonic();
    if now.saturating_sub(block[0].load(Ordering::Relaxed)) < pause {
        return false;
    }
    for (row, word) in COUNTERS.iter().zip(&block[1..BLOCK]) {
        // The adapter's own count is a file of the kernel, and reading it is a system call.
        let value = if row.name == "receiver_not_ready" { 0 } else { (row.read)(counters) };
        word.store(value, Ordering::Relaxed);
    }
    let mut sums = [0; EVENTS.len()];
    for counts in (0..events::source_count()).filter_map(events::SourceId::from_index).map(events::counts) {
        let each = [counts.raised, counts.delivered, counts.dropped, counts.late];
        sums.iter_mut().zip(each).for_each(|(sum, each)| *sum += each);
    }
    for (index, sum) in sums.into_iter().enumerate() {
        recorder.set(at::COUNTED + PORTS * BLOCK + 1 + index, sum);
    }
    recorder.set(at::COUNTED + PORTS * BLOCK, now);
    block[0].store(now, Ordering::Release);
    true
}

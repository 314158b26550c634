// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the memory of events to the file of the trace. [`Waiting`] has the events of each thread, until the writing
//! thread takes them. It also reads the clocks of the sources, and writes what a killed process shall not lose.
//!
//! Called by `mod.rs`. Grade: hot for [`Waiting::put`] while a trace is recorded, else pending. Threads: any, under
//! locks. Tests: below, and `hw-tests`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ibex::events;
use ibex_ffi::{clock, thread};
use ibex_trace::{BLOCK, ClockSample, Error, FLUSH, Head, MOST_SOURCES, Record, Room, SAMPLE, Source, Writer};
use parking_lot::Mutex;

use super::Recording;

/// Most records that wait: 32 MiB. Further events are lost, and counted.
const MOST: usize = 1 << 20;

/// Time that the writing thread sleeps between two passes.
const PAUSE: Duration = Duration::from_millis(5);

const TOO_FAST: &str = "Events were lost: they came faster than they were written: record fewer (ibex trace --events, \
                        IBEX_TRACE_EVENTS).";

/// Events that the file does not have yet.
#[derive(Default)]
pub(super) struct Waiting {
    /// The records of each thread.
    threads: Vec<(u32, Vec<Record>)>,
    count: usize,
    /// Lost events of each type.
    lost: BTreeMap<u8, u64>,
}

impl Waiting {
    /// Adds an event of a thread, which `pack` packs, or counts it as lost.
    #[inline]
    pub(super) fn put(&mut self, thread: u32, event_type: u8, pack: impl FnOnce(&mut Room) -> usize) {
        if self.count >= MOST {
            return self.lose(event_type, 1);
        }
        let mut room = Room::default();
        let used = pack(&mut room);
        self.count += used;
        let known = self.threads.iter_mut().find(|(known, _)| *known == thread);
        let records = match known {
            Some((_, records)) => records,
            None => &mut self.threads.push_mut((thread, Vec::new())).1,
        };
        records.extend_from_slice(&room[..used]);
    }

    #[cold]
    pub(super) fn lose(&mut self, event_type: u8, count: u64) {
        *self.lost.entry(event_type).or_default() += count;
    }
}

/// The file, for one thread at a time.
struct Output {
    writer: Writer<File>,
    /// For each source in the file, whether its ticks are those of the host's monotonic clock.
    sources: Vec<bool>,
    sampled: Option<Instant>,
    flushed: Instant,
    has_lost: bool,
    has_failed: bool,
}

pub(super) struct Writing {
    /// `None` once the trace has ended.
    output: Mutex<Option<Output>>,
    thread: Mutex<Option<(SyncSender<()>, JoinHandle<()>)>>,
}

/// Returns the monotonic clock, nanoseconds.
pub(super) fn monotonic() -> i64 {
    clock::monotonic().cast_signed()
}

impl Writing {
    pub(super) fn create(folder: &Path, head: &Head) -> Result<Writing, String> {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let writer = Writer::create(folder, head, BLOCK).map_err(|error| error.to_string())?;
        let (sampled, flushed) = (None, Instant::now());
        let output = Output { writer, sources: Vec::new(), sampled, flushed, has_lost: false, has_failed: false };
        Ok(Writing { output: Mutex::new(Some(output)), thread: Mutex::default() })
    }

    /// Adds a sentence for the readers of the trace.
    pub(super) fn note(&self, text: String) {
        if let Some(output) = &mut *self.output.lock() {
            output.writer.note(text);
        }
    }

    /// Starts the writing thread, unless it was started.
    pub(super) fn start(&self, recording: &'static Recording) {
        let mut started = self.thread.lock();
        if started.is_some() || self.output.lock().is_none() {
            return;
        }
        let (stop, is_stopped) = sync_channel(0);
        let run = move || {
            while is_stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                recording.writing.pass(recording, false);
            }
        };
        *started = thread::without_signals(|| std::thread::Builder::new().name("ibex-trace".to_owned()).spawn(run))
            .map(|thread| (stop, thread))
            .ok();
    }

    /// Writes all that waits to the file.
    pub(super) fn flush(&self, recording: &Recording) {
        self.pass(recording, true);
    }

    /// Ends the writing thread, writes the rest, and ends the file.
    pub(super) fn end(&self, recording: &Recording) {
        if let Some((stop, thread)) = self.thread.lock().take() {
            drop(stop);
            let _ = thread.join();
        }
        self.pass(recording, true);
        if let Some(output) = self.output.lock().take()
            && !output.has_failed
            && let Err(error) = output.writer.finish()
        {
            complain(&error);
        }
    }

    /// Writes what waits. `now`: to the file, not only to the blocks that are collected.
    fn pass(&self, recording: &Recording, now: bool) {
        let mut output = self.output.lock();
        let Some(output) = &mut *output else { return };
        // These events are older than the samples that follow, so their times lie between samples.
        let Waiting { threads, lost, .. } = std::mem::take(&mut *recording.waiting.lock());
        output.sample(now);
        if !lost.is_empty() && !std::mem::replace(&mut output.has_lost, true) {
            output.writer.note(TOO_FAST.to_owned());
        }
        for (event_type, count) in lost {
            output.writer.lost(event_type, count);
        }
        let mut written = threads.iter().try_for_each(|(thread, records)| output.writer.write(*thread, records));
        if now || output.flushed.elapsed() >= FLUSH {
            output.flushed = Instant::now();
            written = written.and_then(|()| output.writer.flush());
        }
        if let Err(error) = written
            && !std::mem::replace(&mut output.has_failed, true)
        {
            complain(&error);
        }
    }
}

fn complain(error: &Error) {
    eprintln!("ibex: {error}: later events are not recorded");
}

impl Output {
    /// Adds new sources, and reads the clocks of all if that is due.
    fn sample(&mut self, now: bool) {
        let known = self.sources.len();
        for index in known..events::source_count().min(MOST_SOURCES) {
            let Some(info) = events::SourceId::from_index(index).map(events::source_info) else { break };
            let source = Source {
                name: info.name,
                description: info.description,
                ticks_per_second: info.ticks_per_second,
                max_ticks: info.max_ticks,
                ordered: info.ordered,
            };
            self.sources.push(source.is_host());
            if self.writer.add_source(source).is_err() {
                break;
            }
        }
        // A new source has raised events already: early samples make their times more exact.
        if now || self.sources.len() > known || self.sampled.is_none_or(|sampled| sampled.elapsed() >= SAMPLE) {
            self.sampled = Some(Instant::now());
            for (index, is_host) in self.sources.iter().enumerate() {
                let read = || events::timestamp(events::SourceId::from_index(index)?)?.try_into().ok();
                if let Some(sample) = ClockSample::of_source(index as u8, *is_host, monotonic, read) {
                    self.writer.clock(sample);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_wait_by_thread_in_their_order_and_too_many_are_counted_as_lost() {
        let mut waiting = Waiting::default();
        let event = |value: u64| {
            move |room: &mut Room| {
                room[0].words[0] = value;
                1
            }
        };
        for (thread, value) in [(3, 1), (5, 2), (3, 3)] {
            waiting.put(thread, 0, event(value));
        }
        let ticks = waiting.threads.iter().map(|(of, records)| (*of, records.iter().map(Record::ticks).collect()));
        assert_eq!(ticks.collect::<Vec<(u32, Vec<u64>)>>(), [(3, vec![1, 3]), (5, vec![2])]);
        waiting.count = MOST;
        waiting.put(3, 7, event(4));
        waiting.lose(7, 2);
        assert_eq!((waiting.lost, waiting.threads[0].1.len()), (BTreeMap::from([(7, 3)]), 2));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a trace: collects the records of each thread, and makes blocks of them. Called by the recorder's writing
//! thread. It writes a block with one call when that is full, or at [`Writer::flush`]; the block stays readable
//! whatever happens to the process. After a failed write the writer writes nothing more and returns the error each
//! time, because blocks after half a block would be hard to find. Path: pending; under 100 ns of a processor per event
//! (benches/throughput.rs). Threads: one at a time. Tests: `tests/round_trip.rs`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{self, ClockSample};
use crate::error::Error;
use crate::events::{Encoder, whole};
use crate::frame::{self, CLOCKS, END, EVENTS, Framer, HEAD, NAMES};
use crate::head::{Head, MOST_SOURCES, Names, Source};
use crate::record::{Layout, Record};
use crate::storage::refused;
use crate::summary::{MOST_EVENTS, Summary, TypeCount};

/// Events per block, as the recorder writes them. Larger blocks compress better, but a killed process loses more.
pub const BLOCK: usize = 8192;

/// Longest time until a recorder writes the block of an event. The trace of a killed process lacks no more than this.
pub const FLUSH: Duration = Duration::from_secs(1);

/// Writes a trace.
pub struct Writer<W: Write> {
    out: W,
    name: PathBuf,
    /// Events per block.
    most: usize,
    layouts: Vec<Layout>,
    sources: usize,
    threads: BTreeMap<u32, Gathered>,
    names: Names,
    clocks: Vec<ClockSample>,
    /// Unreported losses of each type.
    lost: BTreeMap<u8, u64>,
    /// Events of each type that could not be written.
    unwritten: BTreeMap<u8, u64>,
    encoder: Encoder,
    framer: Framer,
    payload: Vec<u8>,
    block: Vec<u8>,
    failed: Option<Error>,
}

#[derive(Default)]
struct Gathered {
    records: Vec<Record>,
    /// The index of each event's first record.
    begins: Vec<u32>,
}

impl Gathered {
    fn clear(&mut self) {
        self.records.clear();
        self.begins.clear();
    }
}

impl Writer<File> {
    /// Makes a file in `folder`, named after the process ([`Head::file_name`]), with up to `most` events per block
    /// ([`BLOCK`]). Does not overwrite one of that name.
    ///
    /// # Errors
    /// The file cannot be made or written, or the head has more than a trace can hold.
    pub fn create(folder: &Path, head: &Head, most: usize) -> Result<Writer<File>, Error> {
        let name = folder.join(head.file_name());
        let file = File::create_new(&name).map_err(|cause| refused("make", &name, cause))?;
        Writer::new(file, &name, head, most)
    }
}

impl<W: Write> Writer<W> {
    /// Writes to `out`, which errors call `name`, with up to `most` events per block ([`BLOCK`]). Each call of
    /// `write_all` is a whole block, so a buffer is useless.
    ///
    /// # Errors
    /// It cannot be written, or the head has more than a trace can hold.
    pub fn new(out: W, name: &Path, head: &Head, most: usize) -> Result<Writer<W>, Error> {
        if let Some(what) = head.fault() {
            return Err(Error::Refused { file: name.to_owned(), what });
        }
        let mut writer = Writer {
            out,
            name: name.to_owned(),
            most: most.clamp(1, MOST_EVENTS),
            layouts: head.layouts(),
            sources: head.sources.len(),
            threads: BTreeMap::new(),
            names: Names::default(),
            clocks: Vec::new(),
            lost: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            encoder: Encoder::default(),
            framer: Framer::new(),
            payload: Vec::new(),
            block: frame::preamble().to_vec(),
            failed: None,
        };
        writer.put_json(HEAD, head)?;
        Ok(writer)
    }

    /// Adds a source; returns its number.
    ///
    /// # Errors
    /// There are too many.
    pub fn add_source(&mut self, source: Source) -> Result<u8, Error> {
        if self.sources == MOST_SOURCES {
            return Err(self.refuse(format!("more than {MOST_SOURCES} sources")));
        }
        if self.names.sources.is_empty() {
            self.names.first_source = self.sources as u32;
        }
        self.names.sources.push(source);
        self.sources += 1;
        Ok((self.sources - 1) as u8)
    }

    /// Adds a sentence for the reader of the trace.
    pub fn note(&mut self, sentence: String) {
        self.names.notes.push(sentence);
    }

    /// Adds a sample of a clock, in the order of their times.
    pub fn clock(&mut self, sample: ClockSample) {
        self.clocks.push(sample);
    }

    /// Counts events of a type that were lost since the last call.
    pub fn lost(&mut self, event_type: u8, count: u64) {
        if count > 0 {
            let lost = self.lost.entry(event_type).or_default();
            *lost = lost.saturating_add(count);
        }
    }

    /// Adds events of a thread, each with all its records, in the order in which they were raised.
    ///
    /// # Errors
    /// These are not whole events of known types and sources (full blocks before them are written), or a write fails.
    pub fn write(&mut self, thread: u32, records: &[Record]) -> Result<(), Error> {
        let mut rest = records;
        while !rest.is_empty() {
            let taken = self.write_some(thread, rest)?;
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// As [`Writer::write`], but takes no more than fit in the thread's block, which it writes when it is full. Returns
    /// the number of records that it took, whose memory the caller can give back.
    ///
    /// # Errors
    /// As [`Writer::write`]. None of these records is taken then, and their events count as [`Writer::unwritten`].
    pub fn write_some(&mut self, thread: u32, records: &[Record]) -> Result<usize, Error> {
        let mut gathered = self.threads.remove(&thread).unwrap_or_default();
        let before = gathered.begins.len();
        let outcome = match &self.failed {
            Some(failed) => Err(failed.clone()),
            None => self.take(thread, &mut gathered, records),
        };
        if outcome.is_err() {
            gathered.begins.truncate(before);
            if self.failed.is_some() {
                self.give_up(&gathered.records, &gathered.begins);
                gathered.clear();
            }
            let mut rest = records;
            while let Some(first) = rest.first() {
                *self.unwritten.entry(first.event_type()).or_default() += 1;
                rest = rest.get(first.records()..).unwrap_or_default();
            }
        }
        self.threads.insert(thread, gathered);
        outcome
    }

    /// The number of events of each type that could not be written; complete after [`Writer::flush`].
    pub fn unwritten(&self) -> impl Iterator<Item = (u8, u64)> {
        self.unwritten.iter().map(|(event_type, count)| (*event_type, *count))
    }

    /// Counts events that no block has or will have.
    fn give_up(&mut self, records: &[Record], begins: &[u32]) {
        for &place in begins {
            *self.unwritten.entry(records[place as usize].event_type()).or_default() += 1;
        }
    }

    /// Writes the collected events, in blocks of any size, so that they stay if the process is killed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> Result<(), Error> {
        let mut outcome = self.put_names();
        let mut threads = std::mem::take(&mut self.threads);
        // Forgets threads without events, which may have ended: a process can have any number of them.
        threads.retain(|_, gathered| !gathered.begins.is_empty());
        for (thread, gathered) in &mut threads {
            outcome = outcome.and_then(|()| self.put_events(*thread, &gathered.records, &gathered.begins));
            if outcome.is_err() {
                self.give_up(&gathered.records, &gathered.begins);
            }
            gathered.clear();
        }
        self.threads = threads;
        outcome?;
        if !self.lost.is_empty() {
            self.put_events(0, &[], &[])?;
        }
        self.out.flush().map_err(|cause| self.fail(cause))
    }

    /// Writes the collected events, and the last block.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> Result<(), Error> {
        self.flush()?;
        self.payload.clear();
        self.put(END, &Summary::default())?;
        self.out.flush().map_err(|cause| self.fail(cause))
    }

    /// Adds records to the collected ones, up to a whole block, and writes a whole block.
    fn take(&mut self, thread: u32, gathered: &mut Gathered, records: &[Record]) -> Result<usize, Error> {
        let (known, before) = ((self.layouts.len(), self.sources), gathered.begins.len());
        let room = self.most - before;
        let taken = match whole(records, room, known, gathered.records.len(), &mut gathered.begins) {
            Ok(0) if !records.is_empty() => {
                return Err(self.refuse("half an event at the end of a batch".to_owned()));
            }
            Ok(taken) => taken,
            Err(at) => return Err(self.refuse_record(&records[at])),
        };
        let is_full = gathered.begins.len() == self.most;
        let outcome = if is_full && before == 0 {
            // The batch has a whole block, which saves a copy.
            self.put_names().and_then(|()| self.put_events(thread, &records[..taken], &gathered.begins))
        } else {
            gathered.records.extend_from_slice(&records[..taken]);
            if !is_full {
                return Ok(taken);
            }
            self.put_names().and_then(|()| self.put_events(thread, &gathered.records, &gathered.begins))
        };
        outcome?;
        gathered.clear();
        Ok(taken)
    }

    fn put_events(&mut self, thread: u32, records: &[Record], begins: &[u32]) -> Result<(), Error> {
        self.payload.clear();
        let mut summary = self.encoder.encode(&self.layouts, thread, (records, begins), &mut self.payload);
        for (event_type, lost) in std::mem::take(&mut self.lost) {
            match summary.types.binary_search_by_key(&event_type, |of| of.event_type) {
                Ok(place) => summary.types[place].lost = lost,
                Err(place) => summary.types.insert(place, TypeCount { event_type, events: 0, lost }),
            }
        }
        self.put(EVENTS, &summary)
    }

    /// Writes names and samples before the events that need them.
    fn put_names(&mut self) -> Result<(), Error> {
        if self.names != Names::default() {
            let mut names = std::mem::take(&mut self.names);
            if names.sources.is_empty() {
                names.first_source = self.sources as u32;
            }
            self.put_json(NAMES, &names)?;
        }
        if !self.clocks.is_empty() {
            self.payload.clear();
            clock::encode(&self.clocks, &mut self.payload);
            self.clocks.clear();
            self.put(CLOCKS, &Summary::default())?;
        }
        Ok(())
    }

    fn put_json(&mut self, kind: u8, value: &impl serde::Serialize) -> Result<(), Error> {
        self.payload.clear();
        serde_json::to_writer(&mut self.payload, value).map_err(|error| self.refuse(error.to_string()))?;
        self.put(kind, &Summary::default())
    }

    fn put(&mut self, kind: u8, summary: &Summary) -> Result<(), Error> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let mut bytes = Vec::new();
        if kind == EVENTS {
            summary.encode(&mut bytes);
        }
        if !self.framer.frame(kind, &bytes, &self.payload, &mut self.block) {
            return Err(self.refuse(format!("a block of {} bytes", self.payload.len())));
        }
        let written = self.out.write_all(&self.block);
        self.block.clear();
        written.map_err(|cause| self.fail(cause))
    }

    fn fail(&mut self, cause: std::io::Error) -> Error {
        let error = refused("write", &self.name, cause);
        self.failed = Some(error.clone());
        error
    }

    fn refuse_record(&self, record: &Record) -> Error {
        let (event_type, source) = (record.event_type(), record.source());
        let (types, sources) = (self.layouts.len(), self.sources);
        self.refuse(format!(
            "an event of type {event_type} and source {source}: there are {types} types and {sources} sources"
        ))
    }

    fn refuse(&self, what: String) -> Error {
        Error::Refused { file: self.name.clone(), what }
    }
}

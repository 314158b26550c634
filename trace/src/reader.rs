// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a trace: its metadata, and its events, block by block. Opening reads all headers, the head, names and clock
//! samples; it reads events on demand. Damage costs only its own block: iterators yield an error in its place and
//! continue. Path: pending. Threads: any. Tests: `tests/round_trip.rs`, `tests/damage.rs`.

use std::path::Path;

use serde::Serialize;

use crate::clock::{self, Clock, ClockSample, Relation};
use crate::contents::{self, Entry, Place, settle};
use crate::error::{Error, Readable};
use crate::events::{Block, Event};
use crate::frame::{CLOCKS, EVENTS, Fault, HEAD, HEADER, NAMES, OPTIONAL};
use crate::head::{Head, MOST_SOURCES, Names, Source};
use crate::merge::Merge;
use crate::record::Layout;
use crate::storage::Storage;
use crate::summary::Summary;

/// A trace of one process.
#[derive(Debug)]
pub struct Reader {
    storage: Storage,
    head: Head,
    notes: Vec<String>,
    layouts: Vec<Layout>,
    samples: Vec<ClockSample>,
    relations: Vec<Relation>,
    entries: Vec<Entry>,
    finished: bool,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, is no trace, or its head is damaged, without which the rest has no meaning.
    pub fn open(file: &Path) -> Result<Reader, Error> {
        Reader::new(Storage::open(file)?)
    }

    /// Reads bytes; errors call them `name`.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Reader, Error> {
        Reader::new(Storage::memory(name, bytes))
    }

    fn new(storage: Storage) -> Result<Reader, Error> {
        contents::check_preamble(&storage)?;
        let (mut entries, finished) = contents::read(&storage)?;
        settle(&mut entries);
        let head = read_head(&storage, &entries)?;
        let layouts = head.layouts();
        let (notes, samples, relations) = (Vec::new(), Vec::new(), Vec::new());
        let mut reader = Reader { storage, head, notes, layouts, samples, relations, entries, finished };
        reader.read_names();
        settle(&mut reader.entries);
        reader.relations = reader.head.sources.iter().map(|of| Relation::new(of.ticks_per_second)).collect();
        for sample in &reader.samples {
            if let Clock::Source(source) = sample.clock
                && let Some(relation) = reader.relations.get_mut(usize::from(source))
            {
                relation.add(*sample);
            }
        }
        reader.relations.iter_mut().for_each(Relation::settle);
        Ok(reader)
    }

    /// Reads all blocks of names and clock samples. Unreadable ones become faults.
    fn read_names(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        for entry in entries.iter_mut().skip(1) {
            let Entry::Block(place) = entry else { continue };
            let outcome = match place.header.kind {
                NAMES => self.take_names(place),
                CLOCKS => self.take_samples(place),
                EVENTS | OPTIONAL.. => continue,
                kind => {
                    let fault = Fault::new("a kind of block that this ibex knows", format!("kind {kind}"));
                    Err(place.damaged(&self.storage, fault))
                }
            };
            if let Err(error) = outcome {
                *entry = Entry::Fault(error);
            }
        }
        self.entries = entries;
    }

    fn take_names(&mut self, place: &Place) -> Result<(), Error> {
        let bytes = payload(&self.storage, place)?;
        let read = serde_json::from_slice::<Names>(&bytes);
        let names = read.map_err(|error| bad_json(&self.storage, place, &error))?;
        let end = names.first_source as usize + names.sources.len();
        if (names.first_source as usize) < self.head.sources.len() || end > MOST_SOURCES {
            let expected = format!("sources from {} on, up to {MOST_SOURCES}", self.head.sources.len());
            let found = format!("{} from {} on", names.sources.len(), names.first_source);
            return Err(place.damaged(&self.storage, Fault::new(expected, found)));
        }
        // A gap is the place of a damaged block of names.
        self.head.sources.resize_with(names.first_source as usize, Source::unknown);
        self.head.sources.extend(names.sources);
        self.notes.extend(names.notes);
        Ok(())
    }

    fn take_samples(&mut self, place: &Place) -> Result<(), Error> {
        let read = clock::decode(&payload(&self.storage, place)?);
        self.samples.extend(read.map_err(|malformed| place.damaged(&self.storage, malformed))?);
        Ok(())
    }

    /// The metadata of the process, including sources that became known later.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Path of the file.
    pub fn file(&self) -> &Path {
        self.storage.name()
    }

    /// The recorder's remarks about the trace, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The samples of clocks, in the order in which they were taken.
    pub fn samples(&self) -> &[ClockSample] {
        &self.samples
    }

    /// The relation of a source's clock to the host's.
    pub fn relation(&self, source: u8) -> Option<&Relation> {
        self.relations.get(usize::from(source))
    }

    /// Whether the process finished its trace.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The faults known without reading events. Iterators of events yield these as well.
    pub fn faults(&self) -> impl Iterator<Item = &Error> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Fault(error) => Some(error),
            Entry::Block(_) => None,
        })
    }

    /// The summary of each block of events, in the order of the file.
    pub fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.places().map(|place| &place.summary)
    }

    /// The numbers of recorded and lost events of each type.
    pub fn counts(&self) -> Vec<Counts> {
        let mut counts = vec![Counts::default(); self.head.types.len()];
        for of in self.summaries().flat_map(|summary| &summary.types) {
            if let Some(counts) = counts.get_mut(usize::from(of.event_type)) {
                counts.events += u64::from(of.events);
                counts.lost = counts.lost.saturating_add(of.lost);
            }
        }
        counts
    }

    /// All events in the order of the file: those of a thread as they were raised.
    pub fn events(&self) -> impl Iterator<Item = Result<Event, Error>> {
        self.entries.iter().flat_map(move |entry| {
            let (block, fault) = match entry {
                Entry::Fault(error) => (None, Some(error.clone())),
                Entry::Block(place) if place.header.kind == EVENTS => match self.block(place) {
                    Ok(block) => (Some(block), None),
                    Err(error) => (None, Some(error)),
                },
                Entry::Block(_) => (None, None),
            };
            let events = block.into_iter().flat_map(move |block| {
                let mut near = vec![0; self.relations.len()];
                (0..block.len()).map(move |event| {
                    let (source, ticks) = block.stamp(event);
                    Ok(block.event(&self.layouts, event, self.time(source, ticks, &mut near)))
                })
            });
            events.chain(fault.map(Err))
        })
    }

    /// All events: a thread's as it raised them, those of several threads by times on the host's monotonic clock.
    pub fn interleaved(&self) -> impl Iterator<Item = Result<Event, Error>> {
        Merge::of(self)
    }

    pub(crate) fn close(&mut self) {
        self.storage.close();
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Block(place) if place.header.kind == EVENTS => Some(place),
            _ => None,
        })
    }

    pub(crate) fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    /// The time at a source's ticks; `near` is a cache with an entry per source.
    pub(crate) fn time(&self, source: u8, ticks: u64, near: &mut [usize]) -> Option<i64> {
        let source = usize::from(source);
        self.relations.get(source)?.time_near(ticks, near.get_mut(source)?)
    }

    pub(crate) fn block(&self, place: &Place) -> Result<Block, Error> {
        let read = payload(&self.storage, place).and_then(|payload| {
            Block::decode(&self.layouts, &place.summary, &payload)
                .map_err(|malformed| place.damaged(&self.storage, malformed))
        });
        read.map_err(|mut error| {
            let offset = |entry: &Entry| if let Entry::Block(place) = entry { Some(place.offset) } else { None };
            let before = self.entries.iter().filter_map(offset).filter(|offset| *offset < place.offset).count();
            let all = self.entries.iter().filter_map(offset).count();
            if let Some(readable) = error.readable_mut() {
                *readable = Readable { before, after: all - before - 1 };
            }
            error
        })
    }
}

/// Numbers of events of a type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Number of events in the trace.
    pub events: u64,
    /// Number of lost events.
    pub lost: u64,
}

/// The head is the first block. Without it nothing else has a meaning.
fn read_head(storage: &Storage, entries: &[Entry]) -> Result<Head, Error> {
    let read = |place: &Place| {
        let bytes = payload(storage, place)?;
        let head: Head = serde_json::from_slice(&bytes).map_err(|error| bad_json(storage, place, &error))?;
        match head.fault() {
            None => Ok(head),
            Some(found) => Err(place.damaged(storage, Fault::new("a head as a trace can have", found))),
        }
    };
    let mut error = match entries.first() {
        Some(Entry::Block(place)) if place.header.kind == HEAD && place.header.number == 0 => match read(place) {
            Ok(head) => return Ok(head),
            Err(error) => error,
        },
        Some(Entry::Fault(error)) => error.clone(),
        Some(Entry::Block(place)) => {
            let found = format!("a block {} of kind {}", place.header.number, place.header.kind);
            place.damaged(storage, Fault::new(format!("the head: block 0 of kind {HEAD}"), found))
        }
        None => Error::Unfinished {
            file: storage.name().to_owned(),
            length: storage.length(),
            readable: Readable::default(),
        },
    };
    if let Some(readable) = error.readable_mut() {
        *readable = Readable::default();
    }
    Err(error)
}

fn bad_json(storage: &Storage, place: &Place, error: &serde_json::Error) -> Error {
    place.damaged(storage, Fault::new("JSON as the format says", error.to_string()))
}

fn payload(storage: &Storage, place: &Place) -> Result<Vec<u8>, Error> {
    let Place { header, offset, .. } = place;
    let stored = storage.read(offset + (HEADER as u64) + u64::from(header.summary), header.stored.into())?;
    header.unpack(&stored).map_err(|fault| place.damaged(storage, fault))
}

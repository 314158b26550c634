// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the blocks of a file, from header to header. After a damaged header it searches the next marker, so that one
//! bad block costs no other. Called by `reader.rs`, once. Path: setup. Threads: one. Tests: tests/damage.rs.

use crate::error::{Error, Hex, Part, Readable};
use crate::frame::{self, END, EVENTS, Fault, HEADER, Header, MARKER, MOST_SUMMARY, PREAMBLE};
use crate::parse::Bytes;
use crate::storage::Storage;
use crate::summary::Summary;

/// Bytes read at once in the search for a marker.
const WINDOW: u64 = 1 << 16;

/// Number of bytes after the last block of a trace of an older ibex, which have no meaning.
const FORMER_TRAILER: u64 = 24;

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) header: Header,
    pub(crate) offset: u64,
    pub(crate) summary: Summary,
}

impl Place {
    pub(crate) fn damaged(&self, storage: &Storage, fault: impl Into<Fault>) -> Error {
        damaged(storage, Part::Block(self.header.number), self.offset, fault.into())
    }
}

/// A block, or a fault in its place.
#[derive(Debug)]
pub(crate) enum Entry {
    Block(Place),
    Fault(Error),
}

/// Checks from the first bytes that the file is a trace of a known format.
pub(crate) fn check_preamble(storage: &Storage) -> Result<(), Error> {
    let file = storage.name().to_owned();
    let bytes = storage.read(0, PREAMBLE as u64)?;
    if bytes.is_empty() {
        return Err(Error::Empty { file });
    }
    let there = bytes.len().min(frame::MAGIC.len());
    if bytes[..there] != frame::MAGIC[..there] {
        return Err(Error::Foreign { file, found: Hex(bytes[..there].to_vec()), expected: Hex(frame::MAGIC.to_vec()) });
    }
    let (block, offset, readable) = (Part::Preamble, 0, Readable::default());
    let Ok(bytes) = <[u8; PREAMBLE]>::try_from(bytes.as_slice()) else {
        let (expected, found) = (PREAMBLE as u64, bytes.len() as u64);
        return Err(Error::Truncated { file, block, offset, expected, found, readable });
    };
    match frame::version(&bytes) {
        Ok(frame::VERSION) => Ok(()),
        Ok(version) => Err(Error::Future { file, version, known: frame::VERSION }),
        Err((computed, stored)) => {
            let fault = Fault::new(format!("the checksum {computed:08x}"), format!("{stored:08x}"));
            Err(damaged(storage, block, offset, fault))
        }
    }
}

/// The blocks and faults of a file, and whether its process finished it.
pub(crate) fn read(storage: &Storage) -> Result<(Vec<Entry>, bool), Error> {
    let mut scan = Scan { storage, offset: PREAMBLE as u64, next: 0, entries: Vec::new() };
    let finished = scan.run()?;
    Ok((scan.entries, finished))
}

/// A fault at an offset; [`settle`] fills in the readable part.
fn damaged(storage: &Storage, block: Part, offset: u64, fault: Fault) -> Error {
    let Fault { expected, found } = fault;
    Error::Damaged { file: storage.name().to_owned(), block, offset, expected, found, readable: Readable::default() }
}

/// Sets in each fault the number of blocks before and after it.
pub(crate) fn settle(entries: &mut [Entry]) {
    let all = entries.iter().filter(|entry| matches!(entry, Entry::Block(_))).count();
    let mut before = 0;
    for entry in entries {
        match entry {
            Entry::Block(_) => before += 1,
            Entry::Fault(error) => {
                if let Some(readable) = error.readable_mut() {
                    *readable = Readable { before, after: all - before };
                }
            }
        }
    }
}

struct Scan<'a> {
    storage: &'a Storage,
    offset: u64,
    /// The number that the next block should have.
    next: u32,
    entries: Vec<Entry>,
}

impl Scan<'_> {
    /// Scans to the end. Returns whether the file was finished.
    fn run(&mut self) -> Result<bool, Error> {
        let length = self.storage.length();
        while self.offset < length {
            let place = match self.place(self.offset)? {
                Ok(place) => place,
                Err(fault) => {
                    let Some(found) = self.find()? else {
                        self.end(fault)?;
                        return Ok(false);
                    };
                    self.fault(fault);
                    self.offset = found;
                    // Skipped numbers belong to damaged blocks.
                    if let Ok(place) = self.place(found)? {
                        self.next = place.header.number;
                    }
                    continue;
                }
            };
            let header = place.header;
            if header.number != self.next {
                self.fault(Fault::new(format!("block {}", self.next), format!("block {}", header.number)));
            }
            let end = self.offset + header.length();
            if end > length {
                self.truncated(Part::Block(header.number), header.length());
                return Ok(false);
            }
            self.next = header.number.wrapping_add(1);
            self.offset = end;
            if header.kind == END {
                let more = length - end;
                let is_last = more == 0 || more == FORMER_TRAILER;
                if !is_last {
                    self.fault(Fault::new("the end of the file", format!("{more} more bytes")));
                }
                return Ok(is_last);
            }
            self.entries.push(Entry::Block(place));
        }
        let (file, readable) = (self.storage.name().to_owned(), Readable::default());
        self.entries.push(Entry::Fault(Error::Unfinished { file, length, readable }));
        Ok(false)
    }

    fn place(&self, offset: u64) -> Result<Result<Place, Fault>, Error> {
        let mut bytes = self.storage.read(offset, 512)?;
        let read = |bytes: &[u8]| {
            let header = Header::decode(bytes)?;
            header.check(bytes)?;
            let summary = if header.kind == EVENTS {
                Summary::decode(Bytes(&bytes[HEADER..HEADER + header.summary as usize]))?
            } else {
                Summary::default()
            };
            Ok(Place { header, offset, summary })
        };
        if Header::decode(&bytes).is_ok_and(|header| HEADER + header.summary as usize > bytes.len()) {
            bytes = self.storage.read(offset, (HEADER + MOST_SUMMARY) as u64)?;
        }
        Ok(read(&bytes))
    }

    fn find(&self) -> Result<Option<u64>, Error> {
        let mut window = self.offset + 1;
        while window + (HEADER as u64) <= self.storage.length() {
            let bytes = self.storage.read(window, WINDOW + MARKER.len() as u64 - 1)?;
            for (at, _) in bytes.windows(MARKER.len()).enumerate().filter(|(_, four)| **four == MARKER) {
                if self.place(window + at as u64)?.is_ok() {
                    return Ok(Some(window + at as u64));
                }
            }
            window += WINDOW;
        }
        Ok(None)
    }

    /// No block follows: the file is truncated within a header, or damaged.
    fn end(&mut self, fault: Fault) -> Result<(), Error> {
        let left = self.storage.read(self.offset, (HEADER + MOST_SUMMARY) as u64)?;
        let marker = left.len().min(MARKER.len());
        let wanted = Header::decode(&left).map_or(HEADER, |header| HEADER + header.summary as usize);
        if left.len() < wanted && left[..marker] == MARKER[..marker] {
            self.truncated(Part::Block(self.next), wanted as u64);
        } else {
            self.fault(fault);
        }
        Ok(())
    }

    fn fault(&mut self, fault: Fault) {
        self.entries.push(Entry::Fault(damaged(self.storage, Part::Block(self.next), self.offset, fault)));
    }

    fn truncated(&mut self, block: Part, expected: u64) {
        let (file, offset, readable) = (self.storage.name().to_owned(), self.offset, Readable::default());
        let found = self.storage.length() - offset;
        self.entries.push(Entry::Fault(Error::Truncated { file, block, offset, expected, found, readable }));
    }
}

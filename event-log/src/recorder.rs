// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves records from the threads' rings to the trace file, as whole events. Called by the recorder's writing thread,
//! and at the end of the process (`recording.rs`). If the file cannot be written, it still empties the rings, and
//! counts the lost events. Grade: pending; it must keep up with all threads. Threads: the owner's. Tests: below.

use std::io::Write;
use std::time::Instant;

use ibex_trace::{ClockSample, Error, FLUSH, Record, Writer};

use crate::rings::{FIRST, Ring, Rings};

pub(crate) struct Recorder<W: Write> {
    writer: Writer<W>,
    flushed: Instant,
    failed: Option<Error>,
    /// Waiting records of each ring, during a pass; kept for its memory.
    found: Vec<(&'static Ring, &'static [Record])>,
}

impl<W: Write> Recorder<W> {
    pub(crate) fn new(writer: Writer<W>) -> Recorder<W> {
        Recorder { writer, flushed: Instant::now(), failed: None, found: Vec::with_capacity(FIRST) }
    }

    /// Writes the waiting records of the rings, after `prepare` has added sources and samples. Returns their number.
    pub(crate) fn pass(&mut self, rings: &Rings, prepare: impl FnOnce(&mut Writer<W>)) -> usize {
        // The records are older than the samples that `prepare` takes, so their times lie between samples.
        self.found.extend(rings.readable().map(|ring| (ring, ring.waiting())));
        prepare(&mut self.writer);
        let mut taken = 0;
        for (ring, mut waiting) in self.found.drain(..) {
            taken += waiting.len();
            while !waiting.is_empty() {
                // The writer counts the events that it cannot write.
                let count = self.writer.write_some(ring.thread(), waiting).unwrap_or_else(|error| {
                    self.failed.get_or_insert(error);
                    waiting.len()
                });
                waiting = &waiting[count..];
                // Releases block by block, so that threads get room during the write of the next block.
                ring.release(count);
            }
        }
        let is_due = self.flushed.elapsed() >= FLUSH;
        if is_due {
            self.flush();
        }
        if is_due || rings.are_few() {
            rings.recycle();
        }
        taken
    }

    /// Writes the collected block, so that it is in the file if the process is killed.
    pub(crate) fn flush(&mut self) {
        self.flushed = Instant::now();
        if let Err(error) = self.writer.flush() {
            self.failed.get_or_insert(error);
        }
    }

    pub(crate) fn clock(&mut self, sample: ClockSample) {
        self.writer.clock(sample);
    }

    pub(crate) fn failed(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Returns the number of taken events of each type that could not be written; after a flush, all of them.
    pub(crate) fn unwritten(&self) -> impl Iterator<Item = (u8, u64)> {
        self.writer.unwritten()
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        match self.failed {
            Some(error) => Err(error),
            None => self.writer.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rings::Task;
    use ibex_trace::{BLOCK, Element, ElementKind, EventType, Head, Reader, Room, Source};
    use std::path::Path;

    fn head() -> Head {
        let elements = ["a", "b", "c"].map(|name| Element::new(name, ElementKind::U64, "")).to_vec();
        let of = EventType { name: "t".into(), description: String::new(), elements };
        let source = Source {
            name: "host:0".into(),
            description: String::new(),
            ticks_per_second: 1_000_000_000,
            max_ticks: 0,
            ordered: true,
        };
        Head { types: vec![of], sources: vec![source], ..Head::default() }
    }

    #[test]
    fn the_trace_has_the_events_of_each_thread_in_their_order() {
        let (rings, head, mut file) = (Rings::new(Task::Trace, 1 << 12).expect("memory"), head(), Vec::new());
        let layout = head.layouts()[0];
        let writer = Writer::new(&mut file, Path::new("memory"), &head, BLOCK).expect("begun");
        let mut recorder = Recorder::new(writer);
        let each = 20_000_u64;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let ring = rings.mine().expect("one of few threads");
                        for number in 0..each {
                            let mut values = [0; ibex_trace::MOST_ELEMENTS];
                            // An event of one, two or three records.
                            values[..3].copy_from_slice(&[number, number << (number % 3 * 20), u64::MAX]);
                            let pack = |room: &mut Room| layout.pack_into(0, number, |element| values[element], room);
                            // SAFETY: `mine` gave the ring, so this thread owns it.
                            while !unsafe { ring.put(pack) } {
                                std::thread::yield_now();
                            }
                        }
                    })
                })
                .collect();
            while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                recorder.pass(&rings, |_| {});
            }
        });
        while recorder.pass(&rings, |_| {}) > 0 {}
        assert!(recorder.failed().is_none());
        recorder.finish().expect("written");
        let reader = Reader::from_bytes("memory", file).expect("a trace");
        let mut next = std::collections::BTreeMap::new();
        for event in reader.events().map(|event| event.expect("whole")) {
            let next = next.entry(event.thread).or_insert(0);
            assert_eq!((event.ticks, event.values[0], event.values[2]), (*next, *next, u64::MAX));
            *next += 1;
        }
        assert_eq!(next.into_values().collect::<Vec<_>>(), [each; 3]);
    }

    /// Accepts the first write, and fails afterwards.
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += 1;
            if self.0 > 1 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_does_not_keep_the_rings_full() {
        let (rings, head) = (Rings::new(Task::Trace, 16).expect("memory"), head());
        let layout = head.layouts()[0];
        let writer = Writer::new(Full(0), Path::new("full"), &head, 1);
        let mut recorder = Recorder::new(writer.expect("begun"));
        let ring = rings.mine().expect("one of few threads");
        for number in 0..100 {
            // SAFETY: `mine` gave the ring, so this thread owns it.
            assert!(unsafe { ring.put(|room| layout.pack_into(0, number, |_| 0, room)) }, "{number}");
            recorder.pass(&rings, |_| {});
        }
        assert!(recorder.failed().is_some_and(|error| error.to_string().contains("full")));
        recorder.flush();
        assert_eq!(recorder.unwritten().collect::<Vec<_>>(), [(0, 100)], "each is counted");
        assert!(recorder.finish().is_err());
    }
}

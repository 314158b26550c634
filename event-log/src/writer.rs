// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes events as lines: converts them to the common clock, sorts, writes and counts them.
//!
//! Called by the writing thread every few milliseconds, and at the end of the process (`session.rs`). A line is
//! `seconds source name element=value ...`; other lines begin with `#`. Each batch is sorted by time; an event
//! delivered late can follow a younger one. Grade: pending. Threads: its owner's. Tests: tests/log.rs; with a device,
//! hw-tests/tests/device/tools.rs.

use crate::catalogue::EventType;
use crate::clock::Clocks;
use crate::mpi;
use crate::output::{Output, push_number, push_seconds};
use crate::pairs::{self, Pair};
use crate::queues::Longest;
use crate::ring::{LoggedEvent, Ring};

/// Writes lines, and collects the statistics.
pub(crate) struct Writer {
    types: Vec<EventType>,
    pub(crate) clocks: Clocks,
    output: Option<Output>,
    pairs: Vec<Pair>,
    counts: Vec<u64>,
    longest: Longest,
    batch: Vec<(i64, LoggedEvent)>,
    /// Time since which the program has stopped the logging.
    stopped: Option<i64>,
    /// Number of earlier stops, and their total duration in nanoseconds.
    stops: (u32, i64),
}

impl Writer {
    /// Makes a writer for events of these types, in the order of their numbers.
    pub(crate) fn new(types: Vec<EventType>) -> Writer {
        let (pairs, counts, longest) = (pairs::among(&types), vec![0; types.len()], Longest::new(&types));
        let (batch, stopped, stops) = (Vec::new(), None, (0, 0));
        Writer { types, clocks: Clocks::new(), output: None, pairs, counts, longest, batch, stopped, stops }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.output.is_some()
    }

    /// Writes lines there from now on; before, events wait. The first lines name the process: `whose`.
    pub(crate) fn open(&mut self, output: Output, whose: &str) {
        self.output.get_or_insert(output);
        let (seconds, rest) = (self.clocks.offset / 1_000_000_000, self.clocks.offset % 1_000_000_000);
        self.remark(&[
            whose.to_owned(),
            format!("time: seconds since 1970, by the host's CLOCK_MONOTONIC + {seconds}.{rest:09}"),
        ]);
    }

    /// Takes at most as many events as the ring can hold, and writes them. Returns their number.
    pub(crate) fn pass(&mut self, ring: &Ring) -> usize {
        let Some(output) = &mut self.output else { return 0 };
        self.batch.extend(std::iter::from_fn(|| ring.take()).take(ring.room()).map(|record| (0, record)));
        let taken = self.batch.len();
        if taken == 0 {
            return 0;
        }
        // After the events were taken, so that their times lie between the last sample and this one.
        self.clocks.sample();
        for (time, record) in &mut self.batch {
            *time = self.clocks.time(record.source, record.ticks).unwrap_or(0);
            let kind = record.kind as usize;
            self.counts[kind] += 1;
            self.longest.see(&self.types[kind], &record.data);
            // In the order of delivery, because an end on another clock may seem to be slightly before its beginning.
            for pair in &mut self.pairs {
                pair.see(&self.types, kind, &record.data, *time);
            }
        }
        // Stable, so the events of a source keep their order.
        self.batch.sort_by_key(|(time, _)| *time);
        for (time, record) in self.batch.drain(..) {
            let kind = &self.types[record.kind as usize];
            let line = output.line();
            push_seconds(line, time);
            for word in [self.clocks.name(record.source), &kind.name] {
                line.push(b' ');
                line.extend_from_slice(word.as_bytes());
            }
            for element in &kind.elements {
                line.push(b' ');
                line.extend_from_slice(element.name.as_bytes());
                line.push(b'=');
                push_number(line, element.value(&record.data));
            }
            output.end();
        }
        output.flush();
        taken
    }

    /// Notes that the program has stopped the logging.
    pub(crate) fn stop(&mut self) {
        let now = self.now();
        self.stopped = Some(now);
        self.remark_at(now, "MPI_Pcontrol(0): events are not written from here on");
    }

    /// Notes that the program has resumed the logging.
    pub(crate) fn resume(&mut self) {
        let now = self.now();
        self.end_stop(now);
        // An operation that ended meanwhile must not be paired with a later end.
        self.pairs.iter_mut().for_each(Pair::forget_unnumbered);
        self.remark_at(now, "MPI_Pcontrol(1): events are written again");
    }

    fn end_stop(&mut self, now: i64) {
        if let Some(since) = self.stopped.take() {
            self.stops = (self.stops.0 + 1, self.stops.1 + now - since);
        }
    }

    /// Returns the host's clock in the time of lines.
    fn now(&self) -> i64 {
        mpi::monotonic() + self.clocks.offset
    }

    fn remark_at(&mut self, time: i64, what: &str) {
        let Some(output) = &mut self.output else { return };
        let line = output.line();
        line.extend_from_slice(b"# ");
        push_seconds(line, time);
        line.push(b' ');
        line.extend_from_slice(what.as_bytes());
        output.end();
        output.flush();
    }

    /// Writes the statistics; `lost` has the losses of each type.
    pub(crate) fn summary(&mut self, lost: &[u64]) {
        self.end_stop(self.now());
        let (stops, stopped) = self.stops;
        let Some(output) = &mut self.output else { return };
        if stops > 0 {
            let seconds = stopped as f64 / 1e9;
            output.say(&format!(
                "# MPI_Pcontrol(0): nothing was written {stops} time(s), {seconds:.6} s together; the times below are without what began or ended then"
            ));
        }
        let all_lost: u64 = lost.iter().sum();
        if all_lost > 0 {
            output.say(&format!(
                "# {all_lost} events lost: name fewer in IBEX_LOG_EVENTS. The times below do not include them, and can be wrong where events have no number"
            ));
        } else if stops == 0 && !self.counts.is_empty() && self.counts.iter().all(|count| *count == 0) {
            output.say(
                "# none of these occurred. If ibex should have carried messages: --mca pml ob1 --mca btl self,ibex (on one host vader carries them)",
            );
        }
        output.say(&format!("# {:<40} {:>10} {:>10}", "event", "written", "lost"));
        for ((kind, count), lost) in self.types.iter().zip(&self.counts).zip(lost) {
            output.say(&format!("# {:<40} {count:>10} {lost:>10}", kind.short()));
        }
        for line in self.longest.lines() {
            output.say(&line);
        }
        if self.pairs.is_empty() {
            output.flush();
            return;
        }
        output.say("# time from one event to the other, microseconds");
        let [count, min, mean, max, total, open, unbegun] = ["count", "min", "mean", "max", "total", "open", "unbegun"];
        output.say(&format!(
            "# {:<40} {count:>10} {min:>12} {mean:>12} {max:>12} {total:>14} {open:>7} {unbegun:>7}",
            "pair"
        ));
        let micro = |nanoseconds: f64| nanoseconds / 1e3;
        for (name, found) in self.pairs.iter().flat_map(|pair| pair.found(&self.types)) {
            output.say(&format!(
                "# {name:<40} {:>10} {:>12.3} {:>12.3} {:>12.3} {:>14.3} {:>7} {:>7}",
                found.count,
                micro(found.min as f64),
                micro(found.mean()),
                micro(found.max as f64),
                micro(found.total as f64),
                found.open,
                found.unbegun
            ));
        }
        output.flush();
    }

    /// Writes other lines, each with a `#` before it.
    pub(crate) fn remark(&mut self, lines: &[String]) {
        let Some(output) = &mut self.output else { return };
        for line in lines {
            output.say(&format!("# {line}"));
        }
        output.flush();
    }
}

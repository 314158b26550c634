// SPDX-License-Identifier: MIT OR Apache-2.0
//! From records to lines: puts them on the common clock, in its order, and writes and counts them.
//!
//! Called by the writing thread every few milliseconds, and by who ends the process (`session.rs`). A line is
//! `seconds source name element=value ...`; what is not an event begins with `#`. Grade: pending. Threads: its owner's.
//! Tests: with a job, hw-tests/tests/device/logger.rs.

use std::fmt::Write as _;

use crate::catalogue::EventType;
use crate::clock::Clocks;
use crate::output::Output;
use crate::pairs::{self, Pair};
use crate::ring::{Record, Ring};

/// Who writes, and what it has seen.
pub(crate) struct Writer {
    types: Vec<EventType>,
    pub(crate) clocks: Clocks,
    output: Option<Output>,
    pairs: Vec<Pair>,
    counts: Vec<u64>,
    batch: Vec<(i64, Record)>,
}

impl Writer {
    /// For records of these types, in the order of their numbers.
    pub(crate) fn new(types: Vec<EventType>) -> Writer {
        let (pairs, counts) = (pairs::among(&types), vec![0; types.len()]);
        Writer { types, clocks: Clocks::new(), output: None, pairs, counts, batch: Vec::new() }
    }

    /// Whether lines have a place to go.
    pub(crate) fn is_open(&self) -> bool {
        self.output.is_some()
    }

    /// Lines go there from now on; until then they wait.
    pub(crate) fn open(&mut self, output: Output) {
        self.output.get_or_insert(output);
    }

    /// Takes up to as many records as there is room for in the ring, and writes them.
    pub(crate) fn pass(&mut self, ring: &Ring) {
        let Some(output) = &mut self.output else { return };
        self.batch.extend(std::iter::from_fn(|| ring.take()).take(ring.room()).map(|record| (0, record)));
        if self.batch.is_empty() {
            return;
        }
        // After the records were taken: their times lie between the last sample and this one.
        self.clocks.sample();
        for (time, record) in &mut self.batch {
            *time = self.clocks.time(record.source, record.ticks).unwrap_or(0);
            let kind = record.kind as usize;
            self.counts[kind] += 1;
            // In the order of delivery: an ending on another clock may seem to be a little before its beginning.
            for pair in &mut self.pairs {
                pair.see(&self.types, kind, &record.data, *time);
            }
        }
        // Stable, so that a source's events keep their order.
        self.batch.sort_by_key(|(time, _)| *time);
        for (time, record) in self.batch.drain(..) {
            let kind = &self.types[record.kind as usize];
            let line = output.line();
            let (seconds, rest) = (time.div_euclid(1_000_000_000), time.rem_euclid(1_000_000_000));
            let _ = write!(line, "{seconds}.{rest:09} {} {}", self.clocks.name(record.source), kind.name);
            for element in &kind.elements {
                let _ = write!(line, " {}={}", element.name, element.value(&record.data));
            }
            output.end();
        }
        output.flush();
    }

    /// The statistics of what was written; `lost` has the losses of each type.
    pub(crate) fn summary(&mut self, lost: &[u64]) {
        let Some(output) = &mut self.output else { return };
        output.say(&format!("# {:<46} {:>10} {:>10}", "event", "written", "lost"));
        for ((kind, count), lost) in self.types.iter().zip(&self.counts).zip(lost) {
            output.say(&format!("# {:<46} {count:>10} {lost:>10}", kind.short()));
        }
        if self.pairs.is_empty() {
            output.flush();
            return;
        }
        output.say("# time from one event to the other, microseconds");
        let [count, min, mean, max, total, open] = ["count", "min", "mean", "max", "total", "open"];
        output.say(&format!("# {:<46} {count:>10} {min:>12} {mean:>12} {max:>12} {total:>14} {open:>6}", "pair"));
        let micro = |nanoseconds: f64| nanoseconds / 1e3;
        for (name, found) in self.pairs.iter().flat_map(|pair| pair.found(&self.types)) {
            output.say(&format!(
                "# {name:<46} {:>10} {:>12.3} {:>12.3} {:>12.3} {:>14.3} {:>6}",
                found.count,
                micro(found.min as f64),
                micro(found.mean()),
                micro(found.max as f64),
                micro(found.total as f64),
                found.open
            ));
        }
        output.flush();
    }

    /// Other lines, each with a `#` before it.
    pub(crate) fn remark(&mut self, lines: &[String]) {
        let Some(output) = &mut self.output else { return };
        for line in lines {
            output.say(&format!("# {line}"));
        }
        output.flush();
    }
}

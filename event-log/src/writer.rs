// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the events in the rings as lines: converts them to the common clock, sorts, writes and counts them. Called by
//! the writing thread every few milliseconds, and at the end of the process (`session.rs`). An event's line has
//! seconds, source, name, elements; others begin with `#`. It sorts each batch by time; an event delivered late can
//! follow a younger one. Grade: pending. Threads: its owner's. Tests: below; tests/log.rs;
//! hw-tests/tests/device/tools.rs.

use std::time::{Duration, Instant};

use ibex_trace::{Layout, Values};

use crate::catalogue::EventType;
use crate::clock::Clocks;
use crate::mpi;
use crate::output::{Output, push_number, push_seconds};
use crate::pairs::{self, Pair};
use crate::rings::Rings;

/// Time between two searches for rings whose threads have ended.
const RECYCLE: Duration = Duration::from_secs(1);

pub(crate) struct Writer {
    types: Vec<ibex_trace::EventType>,
    layouts: Vec<Layout>,
    pub(crate) clocks: Clocks,
    output: Option<Output>,
    pairs: Vec<Pair>,
    counts: Vec<u64>,
    longest: Longest,
    batch: Vec<LoggedEvent>,
    recycled: Instant,
    /// Time since which the program has stopped the logging.
    stopped: Option<i64>,
    /// Number of earlier stops, and their total duration in nanoseconds.
    stops: (u32, i64),
}

/// An event, at a time of the common clock.
struct LoggedEvent {
    time: i64,
    event_type: usize,
    source: u8,
    values: Values,
}

impl Writer {
    pub(crate) fn new(types: &[EventType]) -> Writer {
        let types: Vec<_> = types.iter().map(EventType::recorded).collect();
        Writer {
            layouts: types.iter().enumerate().map(|(number, of)| Layout::new(number as u8, of)).collect(),
            clocks: Clocks::new(),
            output: None,
            pairs: pairs::among(&types),
            counts: vec![0; types.len()],
            longest: Longest::new(&types),
            batch: Vec::new(),
            recycled: Instant::now(),
            stopped: None,
            stops: (0, 0),
            types,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.output.is_some()
    }

    /// Writes lines to `output` from now on; events have waited until now. The first line is `whose`, the process.
    pub(crate) fn open(&mut self, output: Output, whose: &str) {
        self.output.get_or_insert(output);
        let (seconds, rest) = (self.clocks.offset / 1_000_000_000, self.clocks.offset % 1_000_000_000);
        self.remark(&[
            whose.to_owned(),
            format!("time: seconds since 1970, by the host's CLOCK_MONOTONIC + {seconds}.{rest:09}"),
        ]);
    }

    /// Writes the waiting events of each thread, up to the end of its ring's lap. Returns their number.
    pub(crate) fn pass(&mut self, rings: &Rings) -> usize {
        let Some(output) = &mut self.output else { return 0 };
        let found: Vec<_> = rings.readable().map(|ring| (ring, ring.waiting())).collect();
        if !found.is_empty() {
            // After the events were taken, so that their times lie between the last sample and this one.
            self.clocks.sample();
        }
        for (ring, waiting) in found {
            let mut rest = waiting;
            while let Some(first) = rest.first() {
                let (event_type, source) = (usize::from(first.event_type()), first.source());
                let time = self.clocks.time(source, first.ticks()).unwrap_or(0);
                let values = self.layouts[event_type].values(rest);
                self.batch.push(LoggedEvent { time, event_type, source, values });
                rest = &rest[first.records()..];
            }
            ring.release(waiting.len());
        }
        if rings.are_few() || self.recycled.elapsed() >= RECYCLE {
            self.recycled = Instant::now();
            rings.recycle();
        }
        // Stable, so the events of a source keep their order.
        self.batch.sort_by_key(|event| event.time);
        let taken = self.batch.len();
        for LoggedEvent { time, event_type, source, values } in self.batch.drain(..) {
            self.counts[event_type] += 1;
            self.longest.see(&self.types[event_type], &values);
            for pair in &mut self.pairs {
                pair.see(event_type, &values, time);
            }
            let line = output.line();
            push_seconds(line, time);
            for word in [self.clocks.name(source), &self.types[event_type].name] {
                line.push(b' ');
                line.extend_from_slice(word.as_bytes());
            }
            for (element, value) in self.types[event_type].elements.iter().zip(values) {
                line.push(b' ');
                line.extend_from_slice(element.name.as_bytes());
                line.push(b'=');
                push_number(line, element.kind.number(value));
            }
            output.end();
        }
        output.flush();
        taken
    }

    pub(crate) fn stop(&mut self) {
        let now = self.now();
        self.stopped = Some(now);
        self.remark_at(now, "MPI_Pcontrol(0): events are not written from here on");
    }

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
            output.say(&format!("# {:<40} {count:>10} {lost:>10}", ibex_trace::short(&kind.name)));
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
        for (name, found) in self.pairs.iter().flat_map(Pair::found) {
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

/// Names of elements with the lengths of matching queues, and of their largest values.
const ELEMENTS: [(&str, &str); 2] =
    [("posted", "most receives that waited"), ("unexpected", "most messages unexpected")];

/// Largest values; `None` if no type has the element.
struct Longest([Option<u64>; ELEMENTS.len()]);

impl Longest {
    fn new(types: &[ibex_trace::EventType]) -> Longest {
        Longest(ELEMENTS.map(|(name, _)| types.iter().any(|kind| kind.element(name).is_some()).then_some(0)))
    }

    fn see(&mut self, kind: &ibex_trace::EventType, values: &Values) {
        for (longest, (name, _)) in self.0.iter_mut().zip(ELEMENTS) {
            if let Some(longest) = longest
                && let Some(place) = kind.element(name)
            {
                *longest = (*longest).max(values[place]);
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let said = |(longest, (_, what)): (&Option<u64>, (&str, &str))| longest.map(|most| format!("# {what}: {most}"));
        self.0.iter().zip(ELEMENTS).filter_map(said).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::tests::made;

    #[test]
    fn the_summary_has_the_maximum_of_each_queue_if_events_have_its_length() {
        let types = [made("a", &["posted"]), made("b", &["other"])];
        let mut longest = Longest::new(&types);
        for (kind, length) in [(0, 3), (0, 7), (1, 99), (0, 2)] {
            let mut values = Values::default();
            values[0] = length;
            longest.see(&types[kind], &values);
        }
        assert_eq!(longest.lines(), ["# most receives that waited: 7"]);
        assert!(Longest::new(&types[1..]).lines().is_empty());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as Chrome's trace events in JSON, for `chrome://tracing`, ui.perfetto.dev, Speedscope and others.
//!
//! Source: the document "Trace Event Format" of the Chromium project (JSON object format). Rules of the format: times
//! are microseconds with a fraction, from the job's first time; complete events (`X`) of a thread nest, hence the
//! lanes, each a separate thread; a flow (`s`, `f` with `bp`:`e`) binds to the event of its thread at its time.
//!
//! A process is a rank (its pid is its index in the job); its threads are those of the rank, then its lanes. For large
//! jobs the Perfetto export is a third of this size. Path: pending. Threads: one. Memory: a line. Tests:
//! tests/chrome.rs.

use std::io::{self, Write};
use std::path::Path;

use ibex_messages::Job;

use crate::counters::{Change, Counters, Owner};
use crate::error::ExportError;
use crate::file;
use crate::life::{Item, Moment};
use crate::names;
use crate::threads::{Threads, rank_name, thread_name};
use crate::walk::{Step, Walk};

/// Lanes of a thread and direction.
const MOST_LANES: u32 = 256;

/// Writes the file.
pub(crate) fn write(job: &Job, out: &Path) -> Result<(), ExportError> {
    let threads = Threads::of(job);
    file::write(out, |file| {
        write!(file, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut writer = Writer { job, threads: &threads, file, is_first: true };
        let mut counters = Counters::of(job);
        let mut walk = Walk::new(job, &threads, MOST_LANES);
        while let Some(step) = walk.next() {
            writer.step(&step, &walk)?;
            for change in counters.step(job, &step) {
                writer.counter(step.time, &change)?;
            }
        }
        writer.names(&walk)?;
        writeln!(writer.file, "\n]}}")
    })
}

struct Writer<'a, W> {
    job: &'a Job,
    threads: &'a Threads,
    file: W,
    is_first: bool,
}

impl<W: Write> Writer<'_, W> {
    /// Begins an event.
    fn begin(&mut self, kind: &str, rank: u32) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.is_first, false) { "" } else { "," };
        write!(self.file, "{comma}\n{{\"ph\":\"{kind}\",\"pid\":{rank}")
    }

    fn time(&mut self, key: &str, nanoseconds: u64) -> io::Result<()> {
        write!(self.file, ",\"{key}\":{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
    }

    fn step(&mut self, step: &Step, walk: &Walk<'_>) -> io::Result<()> {
        if let Item::Incident(place) = step.item {
            return self.incident(step.time, place);
        }
        let Some(lane) = step.lane else { return Ok(()) };
        let rank = self.threads.all()[walk.lanes()[lane as usize].thread as usize].rank;
        let thread = self.threads.all().len() as u32 + lane;
        if let Some((phase, until)) = step.begins {
            self.begin("X", rank)?;
            self.time("ts", step.time)?;
            self.time("dur", until - step.time)?;
            write!(self.file, ",\"tid\":{thread},\"name\":\"{}\",\"args\":{{", phase.name())?;
            self.arguments(step.item)?;
            write!(self.file, "}}}}")?;
            self.flow(step, rank, thread)?;
        }
        Ok(())
    }

    /// The flow from the departure of the first bytes to the arrival.
    fn flow(&mut self, step: &Step, rank: u32, thread: u32) -> io::Result<()> {
        let (Item::Send(place) | Item::Receive(place)) = step.item else { return Ok(()) };
        let message = &self.job.messages[place as usize];
        let known = message.send.and_then(|side| side.begun).zip(message.receive.and_then(|side| side.arrived));
        let kind = match (step.item, step.moment) {
            (Item::Send(_), Moment::Begun) => "s",
            (Item::Receive(_), Moment::Arrived) => "f",
            _ => return Ok(()),
        };
        if known.is_none() {
            return Ok(());
        }
        self.begin(kind, rank)?;
        self.time("ts", step.time)?;
        let binding = if kind == "f" { ",\"bp\":\"e\"" } else { "" };
        write!(self.file, ",\"tid\":{thread},\"cat\":\"message\",\"name\":\"message\",\"id\":{place}{binding}}}")
    }

    fn arguments(&mut self, item: Item) -> io::Result<()> {
        match item {
            Item::Send(place) | Item::Receive(place) => {
                let message = &self.job.messages[place as usize];
                let (from, to, tag, bytes) = (message.sender, message.receiver, message.tag, message.bytes);
                write!(self.file, "\"message\":{place},\"from\":{from},\"to\":{to},\"tag\":{tag},\"bytes\":{bytes}")?;
                write!(self.file, ",\"communicator\":{}", message.communicator)?;
                if let Some(protocol) = message.protocol {
                    write!(self.file, ",\"protocol\":\"{}\"", names::protocol(protocol))?;
                }
                if let Some(reason) = message.reason {
                    write!(self.file, ",\"reason\":\"{}\"", names::reason(reason))?;
                }
                Ok(())
            }
            Item::Operation(place) => {
                let operation = &self.job.operations[place as usize];
                write!(self.file, "\"to\":{},\"bytes\":{}", operation.peer, operation.bytes)
            }
            Item::Connection(place) => {
                let connection = &self.job.connections[place as usize];
                write!(self.file, "\"to\":{},\"queue_pair\":{}", connection.peer, connection.queue_pair)
            }
            Item::Incident(_) => Ok(()),
        }
    }

    fn incident(&mut self, time: u64, place: u32) -> io::Result<()> {
        let incident = &self.job.incidents[place as usize];
        let thread = self.threads.first_of(incident.rank);
        self.begin("i", incident.rank)?;
        self.time("ts", time)?;
        let name = names::incident(incident.kind);
        write!(
            self.file,
            ",\"tid\":{thread},\"s\":\"p\",\"name\":\"{name}\",\"args\":{{\"value\":{}}}}}",
            incident.value
        )
    }

    fn counter(&mut self, time: u64, change: &Change) -> io::Result<()> {
        let (rank, name) = match change.owner {
            Owner::Rank(rank) => (rank, change.counter.name().to_owned()),
            Owner::Port(port) => {
                let port = &self.job.ports[port as usize];
                (port.rank, format!("{} {}", names::port(port), change.counter.name()))
            }
        };
        self.begin("C", rank)?;
        self.time("ts", time)?;
        write!(self.file, ",\"name\":{},\"args\":{{\"value\":{}}}}}", text(&name)?, change.value)
    }

    fn names(&mut self, walk: &Walk<'_>) -> io::Result<()> {
        let (job, threads) = (self.job, self.threads);
        for (place, rank) in job.ranks.iter().enumerate() {
            let name = text(&format!("{} ({}, pid {})", rank_name(rank), rank.host, rank.pid))?;
            self.begin("M", place as u32)?;
            write!(self.file, ",\"name\":\"process_name\",\"args\":{{\"name\":{name}}}}}")?;
            self.begin("M", place as u32)?;
            write!(self.file, ",\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{place}}}}}")?;
        }
        for (place, thread) in threads.all().iter().enumerate() {
            self.thread(thread.rank, place, &thread_name(thread))?;
        }
        for (place, lane) in walk.lanes().iter().enumerate() {
            let thread = &threads.all()[lane.thread as usize];
            let name = format!("{} {} {}", thread_name(thread), lane.used_for.name(), lane.number);
            self.thread(thread.rank, threads.all().len() + place, &name)?;
        }
        Ok(())
    }

    fn thread(&mut self, rank: u32, number: usize, name: &str) -> io::Result<()> {
        self.begin("M", rank)?;
        write!(self.file, ",\"tid\":{number},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}", text(name)?)
    }
}

/// A text as JSON has it.
fn text(text: &str) -> io::Result<String> {
    serde_json::to_string(text).map_err(io::Error::other)
}

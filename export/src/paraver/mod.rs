// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as a Paraver trace (BSC): `.prv` has the records, `.pcf` names and colours, `.row` the objects' names.
//!
//! Source: "Paraver: Parallel Program Visualization and Analysis tool, tracefile description" (BSC tools), and the
//! parser of Paraver's kernel. Rules of the format: the header has the date, the last time, the nodes with their
//! processors, the application with its tasks, threads and nodes, and the number of communicators, whose lines follow
//! (application, number, number of tasks, tasks); a state is `1:cpu:appl:task:thread:begin:end:state`, an event
//! `2:cpu:appl:task:thread:time:type:value..`, a communication `3:cpu:appl:task:thread:logical send:physical
//! send:cpu:appl:task:thread:logical receive:physical receive:size:tag`; numbers of objects count from 1, and have 16
//! bits in the usual build of Paraver; the processor of a record belongs to its task's node; records are in the order
//! of their (first) times; states of a thread do not overlap, hence the lanes; types and values of events in the `.pcf`
//! have 31 bits; each line of the `.row` is one name.
//!
//! A task is a rank, its first threads are its own, the others its lanes. The states of its own threads are the MPI
//! calls (`calls.rs`), those of lanes the phases. A communication, for messages of which both sides are known, lasts
//! from the call of the send to the completion of the receive (logical), from the departure of the first bytes or of
//! the rendezvous request to the arrival (physical). Path: pending; the job is walked twice, as the header has the
//! number of lanes, and once more for each halving of too many lanes. Threads: one. Memory: the states and events of
//! calls and the flags of `beside.rs`, otherwise a line. Tests: tests/paraver.rs.

mod beside;
mod calls;
mod labels;
mod peruse;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use chrono::DateTime;
use ibex_messages::{Job, Time};

use crate::counters::{Change, Counter, Counters, Owner};
use crate::file;
use crate::lanes::Lane;
use crate::life::Item;
use crate::regions::{Edge, Region};
use crate::threads::{Threads, rank_name};
use crate::walk::{self, Step, Walk};
use beside::{Beside, OfThread};

/// Most lanes of a thread and direction.
const MOST_LANES: u32 = 64;
/// Number of threads that Paraver can number. It refuses the records of others.
const MOST_THREADS: usize = 65_535;
/// The first state of a phase; lower ones have a meaning in Paraver.
const FIRST_STATE: u32 = 20;
/// Other types of events than calls: protocol of a send, incident and its value, searches, counters of ranks, of ports.
const PROTOCOL: u32 = 77_000_001;
const INCIDENT: u32 = 77_000_002;
const INCIDENT_VALUE: u32 = 77_000_003;
const SEARCH: u32 = 77_000_004;
const COUNTER: u32 = 77_000_010;
const COUNTER_OF_PORT: u32 = 77_000_100;

/// Writes `OUT.prv`, `OUT.pcf` and `OUT.row`; an `OUT` that ends in `.prv` stays as it is.
pub(crate) fn write(job: &Job, out: &Path) -> Result<()> {
    let [records, labels, rows] = ["prv", "pcf", "row"].map(|extension| beside(out, extension));
    for path in [&records, &labels, &rows] {
        ensure!(path.symlink_metadata().is_err(), file::exists(path));
    }
    let threads = Threads::of(job);
    let beside = Beside::of(job, &threads);
    let mut most_lanes = MOST_LANES;
    let (last, objects) = loop {
        let mut first = Walk::new(job, &threads, most_lanes);
        let last = first.by_ref().map(|step| step.time).last().unwrap_or(0).max(beside.last);
        if threads.all().len() + first.lanes().len() <= MOST_THREADS || most_lanes == 0 {
            break (last, Objects::of(job, &threads, first.lanes()));
        }
        most_lanes /= 2;
    };
    file::write(&records, |file| write_records(job, &threads, &objects, (last, most_lanes), beside, file))?;
    file::write(&labels, |file| file.write_all(labels::labels_of(job).as_bytes()))?;
    file::write(&rows, |file| file.write_all(rows_of(job, &objects).as_bytes()))
}

fn beside(out: &Path, extension: &str) -> PathBuf {
    let mut name = if out.extension().is_some_and(|extension| extension == "prv") {
        out.with_extension("").into_os_string()
    } else {
        out.as_os_str().to_owned()
    };
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

struct Objects {
    /// Name of each node, and its number of ranks.
    nodes: Vec<(String, u32)>,
    /// Node and processor of each rank. Each rank has its own, because the real one is unknown.
    ranks: Vec<(u32, u32)>,
    /// Number of each lane's thread in its task.
    lanes: Vec<u32>,
    /// Names of each task's threads in the whole job.
    tasks: Vec<Vec<String>>,
}

impl Objects {
    fn of(job: &Job, threads: &Threads, lanes: &[Lane]) -> Objects {
        let mut nodes: Vec<(String, u32)> = Vec::new();
        let mut places = Vec::with_capacity(job.ranks.len());
        let mut known = std::collections::HashMap::new();
        for rank in &job.ranks {
            let node = *known.entry(rank.host.as_str()).or_insert_with(|| {
                nodes.push((rank.host.clone(), 0));
                nodes.len() - 1
            });
            nodes[node].1 += 1;
            places.push((node, nodes[node].1));
        }
        let before = |node: usize| nodes[..node].iter().map(|(_, ranks)| ranks).sum::<u32>();
        let firsts: Vec<u32> = (0..nodes.len()).map(before).collect();
        let ranks = places.into_iter().map(|(node, place)| (node as u32 + 1, firsts[node] + place)).collect();
        let names = |rank: u32| threads.of_rank(rank).map(|place| threads.name_in_job(job, place)).collect();
        let mut tasks: Vec<Vec<String>> = (0..job.ranks.len() as u32).map(names).collect();
        let mut numbers = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let thread = &threads.all()[lane.thread as usize];
            let task = &mut tasks[thread.rank as usize];
            task.push(format!("{} {} {}", threads.name_in_job(job, lane.thread), lane.used_for.name(), lane.number));
            numbers.push(task.len() as u32);
        }
        Objects { nodes, ranks, lanes: numbers, tasks }
    }

    /// Returns `cpu:appl:task:thread`.
    fn object(&self, rank: u32, thread: u32) -> String {
        format!("{}:1:{}:{thread}", self.ranks[rank as usize].1, rank + 1)
    }
}

fn write_records(
    job: &Job,
    threads: &Threads,
    objects: &Objects,
    (last, most_lanes): (u64, u32),
    mut beside: Beside,
    file: &mut dyn Write,
) -> io::Result<()> {
    file.write_all(header(job, objects, last).as_bytes())?;
    let mut records = Records { job, threads, objects, file, first: walk::first(job) };
    let mut counters = Counters::of(job);
    let mut walk = Walk::new(job, threads, most_lanes);
    while let Some(step) = walk.next() {
        while let Some(of_thread) = beside.before(step.time) {
            records.of_thread(of_thread, &beside.functions)?;
        }
        records.step(&step, walk.lanes())?;
        for change in counters.step(job, &step) {
            records.counter(step.time, &change)?;
        }
    }
    while let Some(of_thread) = beside.before(u64::MAX) {
        records.of_thread(of_thread, &beside.functions)?;
    }
    Ok(())
}

fn header(job: &Job, objects: &Objects, end: u64) -> String {
    let list = |items: Vec<String>| items.join(",");
    let processors = list(objects.nodes.iter().map(|(_, ranks)| ranks.to_string()).collect());
    let tasks = objects.tasks.iter().zip(&objects.ranks).map(|(task, (node, _))| format!("{}:{node}", task.len()));
    let (nodes, ranks, communicators) = (objects.nodes.len(), job.ranks.len(), job.communicators.len());
    let tasks = list(tasks.collect());
    let date = date(walk::first(job));
    let mut text = format!("#Paraver ({date}):{end}_ns:{nodes}({processors}):1:{ranks}({tasks}),{communicators}\n");
    for (number, communicator) in job.communicators.iter().enumerate() {
        let members = communicator.members.iter().chain(&communicator.remote);
        let members: Vec<String> = members.map(|place| (place + 1).to_string()).collect();
        let _ = writeln!(text, "c:1:{}:{}:{}", number + 1, members.len(), members.join(":"));
    }
    text
}

/// Formats nanoseconds since 1970 in UTC as `dd/mm/yy at hh:mm`.
fn date(nanoseconds: i64) -> String {
    DateTime::from_timestamp_nanos(nanoseconds).format("%d/%m/%y at %H:%M").to_string()
}

struct Records<'a> {
    job: &'a Job,
    threads: &'a Threads,
    objects: &'a Objects,
    file: &'a mut dyn Write,
    first: i64,
}

impl Records<'_> {
    fn step(&mut self, step: &Step, lanes: &[Lane]) -> io::Result<()> {
        if let (Some(lane), Some((phase, until))) = (step.lane, step.begins) {
            let rank = self.threads.all()[lanes[lane as usize].thread as usize].rank;
            let object = self.objects.object(rank, self.objects.lanes[lane as usize]);
            writeln!(self.file, "1:{object}:{}:{until}:{}", step.time, FIRST_STATE + phase.number())?;
        }
        if let Some(event) = peruse::event(self.job, step.item, step.moment) {
            let thread = self.threads.of_item(self.job, step.item);
            self.flag(step.time, thread, event)?;
        }
        match step.item {
            Item::Send(place) if step.is_first => self.send(place, step.time),
            Item::Incident(place) => {
                let incident = &self.job.incidents[place as usize];
                let object = self.objects.object(incident.rank, 1);
                let (kind, value) = (incident.kind as u32 + 1, incident.value);
                writeln!(self.file, "2:{object}:{}:{INCIDENT}:{kind}:{INCIDENT_VALUE}:{value}", step.time)
            }
            _ => Ok(()),
        }
    }

    fn of_thread(&mut self, of_thread: OfThread, functions: &[calls::Function]) -> io::Result<()> {
        match of_thread {
            OfThread::State(calls::Span { begin, end, thread, state }) => {
                let object = self.object(thread);
                writeln!(self.file, "1:{object}:{begin}:{end}:{state}")
            }
            OfThread::Flag((time, thread, event)) => self.flag(time, thread, event),
            OfThread::Edge(Edge { time, thread, region, is_begin }) => {
                let (kind, value) = match region {
                    Region::Call(place) => {
                        let call = &self.job.calls[place as usize];
                        let function = calls::function(functions, call.function);
                        (function.kind, function.value)
                    }
                    Region::Search(place) => (SEARCH, self.job.searches[place as usize].queue as u32 + 1),
                    // A pause is a state.
                    Region::Pause(_) => return Ok(()),
                };
                let object = self.object(thread);
                writeln!(self.file, "2:{object}:{time}:{kind}:{}", if is_begin { value } else { 0 })
            }
        }
    }

    fn flag(&mut self, time: u64, thread: u32, (kind, value, message): peruse::Event) -> io::Result<()> {
        let number = message.map_or_else(String::new, |of| format!(":{}:{}", peruse::MESSAGE, u64::from(of) + 1));
        writeln!(self.file, "2:{}:{time}:{kind}:{value}{number}", self.object(thread))
    }

    fn object(&self, thread: u32) -> String {
        let rank = self.threads.all()[thread as usize].rank;
        self.objects.object(rank, thread - self.threads.first_of(rank) + 1)
    }

    fn send(&mut self, place: u32, time: u64) -> io::Result<()> {
        let message = &self.job.messages[place as usize];
        let Some(send) = &message.send else { return Ok(()) };
        let from = self.object(self.threads.find(message.sender, send.thread));
        if let Some(protocol) = message.protocol {
            writeln!(self.file, "2:{from}:{time}:{PROTOCOL}:{}", protocol as u32 + 1)?;
        }
        let Some(receive) = &message.receive else { return Ok(()) };
        let Some(received) = receive.completed.or(receive.notified) else { return Ok(()) };
        let since = |moment: Option<Time>| moment.map(|time| walk::since(self.first, time));
        // If clocks of two hosts disagree, nothing is received before it is sent.
        let left = since(send.left()).unwrap_or(time).max(time);
        let arrived = since(receive.arrived).unwrap_or(left).max(left);
        let done = since(Some(received)).unwrap_or(arrived).max(arrived);
        let to = self.object(self.threads.find(message.receiver, receive.thread));
        let (bytes, tag) = (message.bytes, message.tag);
        writeln!(self.file, "3:{from}:{time}:{left}:{to}:{done}:{arrived}:{bytes}:{tag}")
    }

    fn counter(&mut self, time: u64, change: &Change) -> io::Result<()> {
        let (rank, kind) = match change.owner {
            Owner::Rank(rank) => (rank, COUNTER + change.counter.number()),
            Owner::Port(port) => {
                let port = &self.job.ports[port as usize];
                (port.rank, counter_of_port(port.index, change.counter))
            }
        };
        writeln!(self.file, "2:{}:{time}:{kind}:{}", self.objects.object(rank, 1), change.value)
    }
}

/// Ports of different ranks with the same index share a type: the rank is in the record.
fn counter_of_port(index: u32, counter: Counter) -> u32 {
    COUNTER_OF_PORT + index * 10 + counter.number()
}

fn rows_of(job: &Job, objects: &Objects) -> String {
    let host = |name: &str| if name.is_empty() { "unknown host".to_owned() } else { name.to_owned() };
    let processors = objects.nodes.iter().flat_map(|(name, ranks)| {
        let name = host(name);
        (1..=*ranks).map(move |number| format!("{number}.{name}"))
    });
    let nodes = objects.nodes.iter().map(|(name, _)| host(name));
    let tasks = job.ranks.iter().map(rank_name);
    let mut text = String::new();
    level(&mut text, "CPU", &processors.collect::<Vec<_>>());
    level(&mut text, "NODE", &nodes.collect::<Vec<_>>());
    level(&mut text, "TASK", &tasks.collect::<Vec<_>>());
    level(&mut text, "THREAD", &objects.tasks.concat());
    text
}

fn level(text: &mut String, level: &str, names: &[String]) {
    let _ = writeln!(text, "LEVEL {level} SIZE {}", names.len());
    for name in names {
        // A name must be one line, even if a host's name contains line ends.
        let _ = writeln!(text, "{}", name.replace(|letter: char| letter.is_control(), " "));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "01/01/70 at 00:00");
        assert_eq!(date(951_782_400_000_000_000), "29/02/00 at 00:00");
        assert_eq!(date(1_700_000_000_000_000_000), "14/11/23 at 22:13");
        assert_eq!(date(1_735_689_599_000_000_000), "31/12/24 at 23:59");
    }

    #[test]
    fn the_three_files_stand_beside_each_other() {
        assert_eq!(beside(Path::new("a/run.1"), "row"), Path::new("a/run.1.row"));
        assert_eq!(beside(Path::new("a/run.prv"), "row"), Path::new("a/run.row"));
        assert_eq!(beside(Path::new("a/run.prv"), "prv"), Path::new("a/run.prv"));
    }
}

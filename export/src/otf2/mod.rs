// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as an OTF2 archive (Open Trace Format 2, VI-HPS), for Vampir, Scalasca, `otf2-print` and others. Its own C
//! library writes it (`library/`).
//!
//! Source: the OTF2 3.0 reference manual and headers. Rules of the format: the events of a location are in the order of
//! time; ENTER and LEAVE nest, hence the lanes; each definition comes after those that it names; ranks in events are
//! those of the communicator, whose group has indexes in the one group of MPI's locations; times count from the first
//! tick.
//!
//! A host is a node of the system tree, a rank a process on it, a thread a location with the message events
//! (`MPI_ISEND` and its completion, `MPI_IRECV_REQUEST`, `MPI_IRECV`), MPI calls and searches as regions, and counters
//! as metrics; each lane of a thread is a further location with the phases as regions. Path: pending. Threads: one.
//! Memory: a quarter of a MiB for each location, in the library. Tests: tests/otf2.rs.

mod define;
#[allow(unsafe_code)] // calls of a C library
mod library;

use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use ibex_messages::{Job, Message, Protocol, Queue, Reason};

use crate::counters::{Change, Counter, Counters, Owner};
use crate::life::{Item, Moment, Phase};
use crate::names;
use crate::peers::Peers;
use crate::regions::{Edge, Region, Regions};
use crate::threads::Threads;
use crate::walk::{Step, Walk};
use define::define;
use library::{Archive, Communication, Value};

/// Approximate number of lanes in all, because each is a file and a quarter of a MiB.
const MOST_LANES: u32 = 512;

/// Numbers of the attributes of message events.
const PROTOCOL: u32 = 0;
const REASON: u32 = 1;
const PORT: u32 = 2;
const QUEUE_PAIR: u32 = 3;
const RAILS: u32 = 4;
// Attributes of searches.
const PEER: u32 = 5;
const TAG: u32 = 6;
const LENGTH: u32 = 7;

/// Numbers of regions: first the phases, then the searches, then the functions of MPI.
const SEARCH: [(Queue, u32); 2] = [(Queue::Posted, Phase::COUNT), (Queue::Unexpected, Phase::COUNT + 1)];
const FIRST_FUNCTION: u32 = Phase::COUNT + SEARCH.len() as u32;

pub(crate) fn write(job: &Job, out: &Path) -> Result<()> {
    library::available()?;
    let threads = Threads::of(job);
    let most_lanes = (MOST_LANES / (2 * threads.all().len() as u32).max(1)).clamp(2, 32);
    // The files of all locations are open at once.
    library::raise_open_files();
    let mut walk = Walk::new(job, &threads, most_lanes);
    let mut writer = Writer::new(job, &threads, out)?;
    let mut regions = Regions::of(job, &threads);
    while let Some(step) = walk.next() {
        writer.edges(&mut regions, step.time)?;
        writer.add_locations(walk.lanes().len())?;
        writer.step(&step)?;
    }
    writer.edges(&mut regions, u64::MAX)?;
    writer.describe(&walk)?;
    let Writer { archive, strings, last, .. } = writer;
    archive.finish(|definitions| define(job, &threads, &walk, (last, strings), definitions))
}

struct Writer<'a> {
    job: &'a Job,
    threads: &'a Threads,
    archive: Archive,
    locations: usize,
    peers: Peers,
    counters: Counters,
    strings: Strings,
    ports: Vec<u32>,
    last: u64,
}

impl<'a> Writer<'a> {
    fn new(job: &'a Job, threads: &'a Threads, out: &Path) -> Result<Self> {
        let mut strings = Strings::default();
        let ports = job.ports.iter().map(|port| strings.number(&names::port(port))).collect();
        let archive = Archive::create(out, "traces")?;
        let (peers, counters) = (Peers::of(job), Counters::of(job));
        let mut writer = Writer { job, threads, archive, locations: 0, peers, counters, strings, ports, last: 0 };
        writer.add_locations(0)?;
        Ok(writer)
    }

    /// Adds locations for new lanes, after those of threads.
    fn add_locations(&mut self, lanes: usize) -> Result<()> {
        while self.locations < self.threads.all().len() + lanes {
            self.archive.location()?;
            self.locations += 1;
        }
        Ok(())
    }

    /// Writes the edges of regions that come before an event at this time.
    fn edges(&mut self, regions: &mut Regions, time: u64) -> Result<()> {
        while let Some(edge) = regions.before(time) {
            self.last = edge.time;
            self.edge(edge)?;
        }
        Ok(())
    }

    fn edge(&mut self, Edge { time, thread, region, is_begin }: Edge) -> Result<()> {
        let (region, attributes) = match region {
            Region::Call(place) => (region_of(self.job, self.job.calls[place as usize].function), Vec::new()),
            Region::Search(place) => {
                let search = &self.job.searches[place as usize];
                let number = SEARCH.iter().find(|(queue, _)| *queue == search.queue).map_or(0, |(_, number)| *number);
                let mut attributes = vec![(PEER, Value::Signed(search.peer)), (TAG, Value::Signed(search.tag as i32))];
                attributes.extend(search.length.map(|length| (LENGTH, Value::Number(length))));
                (number, attributes)
            }
            Region::Pause(place) => {
                let mut threads = self.threads.of_rank(self.job.pauses[place as usize].rank);
                return threads.try_for_each(|thread| self.archive.measurement(thread, time, !is_begin));
            }
        };
        if is_begin {
            self.archive.enter(thread, time, region, &attributes)
        } else {
            self.archive.leave(thread, time, region)
        }
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        self.last = step.time;
        if let Some(lane) = step.lane {
            let location = self.threads.all().len() as u32 + lane;
            if let Some(phase) = step.ends {
                self.archive.leave(location, step.time, phase.number())?;
            }
            if let Some((phase, _)) = step.begins {
                self.archive.enter(location, step.time, phase.number(), &[])?;
            }
        }
        match step.item {
            Item::Send(place) => self.send(place, step)?,
            Item::Receive(place) => self.receive(place, step)?,
            _ => {}
        }
        for change in self.counters.step(self.job, step) {
            let (rank, metric) = self.metric(&change);
            self.archive.metric(self.threads.first_of(rank), step.time, metric, change.value)?;
        }
        Ok(())
    }

    fn send(&mut self, place: u32, step: &Step) -> Result<()> {
        let message = &self.job.messages[place as usize];
        let Some(side) = &message.send else { return Ok(()) };
        let location = self.threads.find(message.sender, side.thread);
        let request = u64::from(place) * 2;
        if step.is_first {
            let to = communication(message, self.peers.receiver(message), request);
            let attributes = self.attributes(message);
            self.archive.isend(location, step.time, &to, &attributes)?;
        }
        let done = if side.completed.is_some() { Moment::Completed } else { Moment::Notified };
        if step.moment == done {
            self.archive.isend_complete(location, step.time, request)?;
        }
        Ok(())
    }

    fn receive(&mut self, place: u32, step: &Step) -> Result<()> {
        let message = &self.job.messages[place as usize];
        let Some(side) = &message.receive else { return Ok(()) };
        let location = self.threads.find(message.receiver, side.thread);
        let request = u64::from(place) * 2 + 1;
        let is_done = side.completed.or(side.notified).is_some();
        if step.moment == Moment::Activated || (step.is_first && side.activated.is_none() && is_done) {
            self.archive.irecv_request(location, step.time, request)?;
        }
        let done = if side.completed.is_some() { Moment::Completed } else { Moment::Notified };
        if step.moment == done {
            let of = communication(message, self.peers.sender(message), request);
            let attributes = self.attributes(message);
            self.archive.irecv(location, step.time, &of, &attributes)?;
        }
        Ok(())
    }

    fn attributes(&mut self, message: &Message) -> Vec<(u32, Value)> {
        let mut attributes = Vec::with_capacity(5);
        let protocol = message.protocol.map(Protocol::name).map(|name| self.strings.number(name));
        attributes.extend(protocol.map(|string| (PROTOCOL, Value::String(string))));
        let reason = message.reason.map(Reason::name).map(|name| self.strings.number(name));
        attributes.extend(reason.map(|string| (REASON, Value::String(string))));
        let port = message.port.and_then(|port| self.ports.get(port as usize));
        attributes.extend(port.map(|string| (PORT, Value::String(*string))));
        attributes.extend(message.queue_pair.map(|number| (QUEUE_PAIR, Value::Number(number))));
        attributes.extend((message.rails > 1).then_some((RAILS, Value::Number(message.rails))));
        attributes
    }

    /// Returns rank and number of a metric: first those of ranks, then two of each port.
    fn metric(&self, change: &Change) -> (u32, u32) {
        match change.owner {
            Owner::Rank(rank) => (rank, change.counter.number()),
            Owner::Port(port) => (self.job.ports[port as usize].rank, metric_of_port(port, change.counter)),
        }
    }

    fn describe(&mut self, walk: &Walk<'_>) -> Result<()> {
        let creator = format!("ibex {}", env!("CARGO_PKG_VERSION"));
        self.archive.describe(&creator, &format!("messages of {}", self.job.name))?;
        self.archive.property("IBEX::messages", &self.job.messages.len().to_string())?;
        self.archive.property("IBEX::not_drawn", &walk.not_drawn().to_string())?;
        let lost = self.job.losses.iter().map(|loss| loss.count).fold(0, u64::saturating_add);
        self.archive.property("IBEX::lost_events", &lost.to_string())
    }
}

fn communication(message: &Message, peer: u32, request: u64) -> Communication {
    let Message { communicator, tag, bytes, .. } = *message;
    // The format has 32 bits; of a tag of libfabric's, the lower half.
    let tag = tag as u32;
    Communication { peer, communicator, tag, bytes, request }
}

/// Returns the region of a function; functions without a name share one.
fn region_of(job: &Job, function: u32) -> u32 {
    FIRST_FUNCTION + function.min(job.functions.len() as u32)
}

/// Numbers counters of ports after those of ranks, without gaps, as readers require.
fn metric_of_port(port: u32, counter: Counter) -> u32 {
    port * Counter::OF_PORTS + counter.number()
}

#[derive(Default)]
struct Strings {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Strings {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        self.texts.push(text.to_owned());
        number
    }
}

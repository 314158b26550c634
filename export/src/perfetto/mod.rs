// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as a Perfetto trace, for ui.perfetto.dev and `trace_processor`.
//!
//! Source: the Perfetto documentation (perfetto.dev/docs/reference/synthetic-track-event). Rules of the format: a file
//! is a `Trace`, which is its packets one after the other, each as field 1 with its length; a track is described before
//! its events; slices of a track nest, hence the lanes; names are interned, in the packet that says that it begins a
//! new state; a flow joins the slices that name it, in the order of time.
//!
//! A rank is a process track (its pid is its index in the job, as pids of several hosts may be the same), a thread a
//! track in it with slices for MPI calls and searches, a lane a track of a thread with a slice for each item and in it
//! one for each phase. Ports are tracks of the rank with incidents as instants; counters are tracks of ranks and ports.
//! A flow leads from the departure of a message's first bytes to its arrival. Path: pending. Threads: one. Memory: a
//! packet. Tests: tests/perfetto.rs.

mod packets;

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use ibex_messages::{IncidentKind, Job, Message, Protocol, Queue, Reason};
use prost::Message as _;

use crate::counters::{Change, Counter, Counters, Owner};
use crate::file;
use crate::lanes::Lane;
use crate::life::{Item, Moment, Phase, left};
use crate::names;
use crate::regions::{Edge, Region, Regions};
use crate::threads::{Threads, rank_name};
use crate::walk::{self, Step, Walk};
use packets::{
    Annotation, Clock, ClockSnapshot, CounterDescriptor, InternedData, Named, ProcessDescriptor, ThreadDescriptor,
    TracePacket, TrackDescriptor, TrackEvent,
};

/// Largest number of lanes of a thread and direction: Perfetto shows thousands of tracks, people do not look at them.
const MOST_LANES: u32 = 256;

const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

/// Names of annotations; the number of each is its index plus 1.
const ANNOTATIONS: [&str; 13] = [
    "message",
    "from rank",
    "to rank",
    "communicator",
    "tag",
    "bytes",
    "protocol",
    "reason",
    "queue pair",
    "rails",
    "value",
    "peer",
    "queue length",
];

/// Names of slices that hold the phases; their numbers come after those of phases.
const ITEMS: [&str; 4] = ["send", "receive", "one-sided operation", "connection"];

/// Names of slices of threads, numbered after those of incidents and of searches, before the functions of MPI.
const PAUSED: &str = "not recorded";
const UNNAMED: &str = "MPI call";

pub(crate) fn write(job: &Job, out: &Path) -> Result<()> {
    let threads = Threads::of(job);
    file::write(out, |file| {
        let mut writer = Writer { job, threads: &threads, file, buffer: Vec::new(), described: 0 };
        writer.head()?;
        writer.tracks()?;
        let mut counters = Counters::of(job);
        let mut walk = Walk::new(job, &threads, MOST_LANES);
        let mut regions = Regions::of(job, &threads);
        while let Some(step) = walk.next() {
            writer.edges(&mut regions, step.time)?;
            writer.lanes(walk.lanes())?;
            writer.step(&step)?;
            for change in counters.step(job, &step) {
                writer.counter(step.time, &change)?;
            }
        }
        writer.edges(&mut regions, u64::MAX)
    })
}

struct Writer<'a, W> {
    job: &'a Job,
    threads: &'a Threads,
    file: W,
    buffer: Vec<u8>,
    /// Number of lanes with a track.
    described: usize,
}

/// Tracks are numbered by their kind (upper bits) and index (lower bits).
#[derive(Clone, Copy)]
enum Track {
    Rank(u32),
    Thread(u32),
    Port(u32),
    Lane(u32),
    RankCounter(u32, Counter),
    PortCounter(u32, Counter),
}

impl Track {
    fn uuid(self) -> u64 {
        let (kind, place) = match self {
            Track::Rank(place) => (1, place),
            Track::Thread(place) => (2, place),
            Track::Port(place) => (3, place),
            Track::Lane(place) => (4, place),
            Track::RankCounter(place, counter) => (0x10 + u64::from(counter.number()), place),
            Track::PortCounter(place, counter) => (0x20 + u64::from(counter.number()), place),
        };
        kind << 32 | u64::from(place)
    }
}

impl<W: Write> Writer<'_, W> {
    fn packet(&mut self, mut packet: TracePacket) -> io::Result<()> {
        const FIELD_1: u8 = 1 << 3 | 2;
        packet.sequence = Some(1);
        self.buffer.clear();
        self.buffer.push(FIELD_1);
        packet.encode_length_delimited(&mut self.buffer).map_err(io::Error::other)?;
        self.file.write_all(&self.buffer)
    }

    fn head(&mut self) -> io::Result<()> {
        const REALTIME: u32 = 1;
        const BOOTTIME: u32 = 6;
        let first = walk::first(self.job).max(0).cast_unsigned();
        let clock = |clock, timestamp| Clock { clock: Some(clock), timestamp: Some(timestamp) };
        let clocks = vec![clock(BOOTTIME, 0), clock(REALTIME, first)];
        let clock_snapshot = Some(ClockSnapshot { clocks, primary: Some(BOOTTIME as i32) });
        self.packet(TracePacket { clock_snapshot, timestamp: Some(0), ..TracePacket::default() })?;

        let functions = self.job.functions.iter().map(String::as_str);
        let searches = Queue::ALL.iter().map(|queue| names::search(*queue));
        let incidents = IncidentKind::NAMES.iter().copied();
        let events = Phase::ALL.iter().map(|phase| phase.name()).chain(ITEMS).chain(incidents);
        let events = events.chain(searches).chain([PAUSED, UNNAMED]).chain(functions);
        let texts = Protocol::NAMES.iter().chain(Reason::NAMES).copied();
        let interned_data = Some(InternedData {
            event_names: numbered(events),
            annotation_names: numbered(ANNOTATIONS),
            annotation_texts: numbered(texts),
        });
        self.packet(TracePacket { interned_data, sequence_flags: Some(1), ..TracePacket::default() })
    }

    fn track(&mut self, track: Track, parent: Option<Track>, descriptor: TrackDescriptor) -> io::Result<()> {
        let (uuid, parent) = (Some(track.uuid()), parent.map(Track::uuid));
        let track_descriptor = Some(TrackDescriptor { uuid, parent, ..descriptor });
        self.packet(TracePacket { track_descriptor, ..TracePacket::default() })
    }

    fn tracks(&mut self) -> io::Result<()> {
        let (job, threads) = (self.job, self.threads);
        for (place, rank) in job.ranks.iter().enumerate() {
            let (place, pid) = (place as u32, pid(place as u32));
            let name = Some(format!("{} ({}, pid {})", rank_name(rank), rank.host, rank.pid));
            let process = Some(ProcessDescriptor { pid, name });
            self.track(Track::Rank(place), None, TrackDescriptor { process, ..TrackDescriptor::default() })?;
            for counter in Counter::of_ranks() {
                self.track(Track::RankCounter(place, counter), Some(Track::Rank(place)), counter_track(counter))?;
            }
        }
        for (place, thread) in threads.all().iter().enumerate() {
            let name = Some(format!("thread {}", thread.number));
            let (pid, tid) = (pid(thread.rank), Some(place as i64 + 1));
            let thread = Some(ThreadDescriptor { pid, tid, name });
            self.track(Track::Thread(place as u32), None, TrackDescriptor { thread, ..TrackDescriptor::default() })?;
        }
        for (place, port) in job.ports.iter().enumerate() {
            let (place, rank) = (place as u32, Track::Rank(port.rank));
            let name = Some(format!("port {}", names::port(port)));
            self.track(Track::Port(place), Some(rank), TrackDescriptor { name, ..TrackDescriptor::default() })?;
            for counter in Counter::of_ports() {
                self.track(Track::PortCounter(place, counter), Some(Track::Port(place)), counter_track(counter))?;
            }
        }
        Ok(())
    }

    /// Describes the tracks of lanes that are new since the last step.
    fn lanes(&mut self, lanes: &[Lane]) -> io::Result<()> {
        for lane in &lanes[self.described..] {
            let name = Some(lane.used_for.name().to_owned());
            let descriptor = TrackDescriptor { name, ..TrackDescriptor::default() };
            self.track(Track::Lane(self.described as u32), Some(Track::Thread(lane.thread)), descriptor)?;
            self.described += 1;
        }
        Ok(())
    }

    fn event(&mut self, time: u64, track: Track, event: TrackEvent) -> io::Result<()> {
        let track_event = Some(TrackEvent { track: Some(track.uuid()), ..event });
        let timestamp = Some(time);
        self.packet(TracePacket { timestamp, track_event, sequence_flags: Some(2), ..TracePacket::default() })
    }

    fn counter(&mut self, time: u64, change: &Change) -> io::Result<()> {
        let track = match change.owner {
            Owner::Rank(rank) => Track::RankCounter(rank, change.counter),
            Owner::Port(port) => Track::PortCounter(port, change.counter),
        };
        let counter = Some(change.value.cast_signed());
        self.event(time, track, TrackEvent { kind: Some(COUNTER), counter, ..TrackEvent::default() })
    }

    /// Writes the edges of regions that come before an event at this time.
    fn edges(&mut self, regions: &mut Regions, time: u64) -> io::Result<()> {
        while let Some(edge) = regions.before(time) {
            self.edge(edge)?;
        }
        Ok(())
    }

    fn edge(&mut self, Edge { time, thread, region, is_begin }: Edge) -> io::Result<()> {
        // As `head` numbers them.
        let queues = Phase::COUNT as usize + ITEMS.len() + IncidentKind::ALL.len();
        let (track, name, annotations) = match region {
            Region::Call(place) => {
                let function = self.job.calls[place as usize].function as usize;
                let place = if function < self.job.functions.len() { function + 2 } else { 1 };
                (Track::Thread(thread), queues + Queue::ALL.len() + place, Vec::new())
            }
            Region::Search(place) => {
                let search = &self.job.searches[place as usize];
                let mut annotations = vec![number("peer", i64::from(search.peer)), number("tag", search.tag)];
                annotations.extend(search.length.map(|length| number("queue length", i64::from(length))));
                (Track::Thread(thread), queues + search.queue as usize, annotations)
            }
            Region::Pause(place) => {
                (Track::Rank(self.job.pauses[place as usize].rank), queues + Queue::ALL.len(), Vec::new())
            }
        };
        if !is_begin {
            return self.event(time, track, TrackEvent { kind: Some(END), ..TrackEvent::default() });
        }
        let (kind, name) = (Some(BEGIN), Some(name as u64 + 1));
        self.event(time, track, TrackEvent { annotations, kind, name, ..TrackEvent::default() })
    }

    fn step(&mut self, step: &Step) -> io::Result<()> {
        if let Item::Incident(place) = step.item {
            return self.incident(step.time, place);
        }
        let Some(lane) = step.lane.map(Track::Lane) else { return Ok(()) };
        let end = || TrackEvent { kind: Some(END), ..TrackEvent::default() };
        if step.is_first {
            let (kind, name) = (Some(BEGIN), Some(item_name(step.item)));
            let annotations = self.annotations(step.item);
            self.event(step.time, lane, TrackEvent { annotations, kind, name, ..TrackEvent::default() })?;
        }
        if step.ends.is_some() {
            self.event(step.time, lane, end())?;
        }
        let (flows, ended_flows) = self.flows(step);
        if let Some((phase, _)) = step.begins {
            let (kind, name) = (Some(BEGIN), Some(u64::from(phase.number()) + 1));
            self.event(step.time, lane, TrackEvent { kind, name, flows, ended_flows, ..TrackEvent::default() })?;
        } else {
            self.event(step.time, lane, end())?;
        }
        Ok(())
    }

    /// Returns the flows that begin and end with a step: from the departure of the first bytes or rendezvous request to
    /// the arrival, if both sides are known.
    fn flows(&self, step: &Step) -> (Vec<u64>, Vec<u64>) {
        let (Item::Send(place) | Item::Receive(place)) = step.item else { return (Vec::new(), Vec::new()) };
        let message = &self.job.messages[place as usize];
        match (step.item, &message.send, &message.receive) {
            (Item::Send(_), Some(send), Some(_)) => (flow(place, step, left(send)), Vec::new()),
            (Item::Receive(_), Some(_), Some(receive)) => {
                (Vec::new(), flow(place, step, receive.arrived.map(|_| Moment::Arrived)))
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    fn incident(&mut self, time: u64, place: u32) -> io::Result<()> {
        let incident = &self.job.incidents[place as usize];
        let track = incident.port.map_or(Track::Rank(incident.rank), Track::Port);
        let name = Some((Phase::COUNT as usize + ITEMS.len() + incident.kind as usize) as u64 + 1);
        let mut annotations = vec![number("value", incident.value.cast_signed())];
        annotations.extend(incident.peer.map(|peer| number("to rank", self.rank(peer))));
        self.event(time, track, TrackEvent { kind: Some(INSTANT), name, annotations, ..TrackEvent::default() })
    }

    fn rank(&self, place: u32) -> i64 {
        self.job.ranks.get(place as usize).map_or(i64::from(place), |rank| i64::from(rank.rank))
    }

    fn annotations(&self, item: Item) -> Vec<Annotation> {
        match item {
            Item::Send(place) | Item::Receive(place) => self.of_message(place, &self.job.messages[place as usize]),
            Item::Operation(place) => {
                let operation = &self.job.operations[place as usize];
                let (peer, bytes) = (self.rank(operation.peer), operation.bytes.cast_signed());
                vec![number("to rank", peer), number("bytes", bytes)]
            }
            Item::Connection(place) => {
                let connection = &self.job.connections[place as usize];
                let (peer, queue_pair) = (self.rank(connection.peer), i64::from(connection.queue_pair));
                vec![number("to rank", peer), number("queue pair", queue_pair)]
            }
            Item::Incident(_) => Vec::new(),
        }
    }

    fn of_message(&self, place: u32, message: &Message) -> Vec<Annotation> {
        let mut annotations = vec![
            number("message", i64::from(place)),
            number("from rank", self.rank(message.sender)),
            number("to rank", self.rank(message.receiver)),
            number("communicator", i64::from(message.communicator)),
            number("tag", message.tag),
            number("bytes", message.bytes.cast_signed()),
            number("rails", i64::from(message.rails)),
        ];
        let text = |name, place| Annotation { name: annotation(name), number: None, text: Some(place as u64 + 1) };
        annotations.extend(message.protocol.map(|protocol| text("protocol", protocol as usize)));
        annotations.extend(message.reason.map(|reason| text("reason", Protocol::ALL.len() + reason as usize)));
        annotations.extend(message.queue_pair.map(|queue_pair| number("queue pair", i64::from(queue_pair))));
        annotations
    }
}

/// Returns the flow if the step is this moment of the message, or the first of its side if the moment is unknown.
fn flow(place: u32, step: &Step, moment: Option<Moment>) -> Vec<u64> {
    let is_here = moment.map_or(step.is_first, |moment| moment == step.moment);
    if is_here { vec![u64::from(place) + 1] } else { Vec::new() }
}

fn numbered<'t>(texts: impl IntoIterator<Item = &'t str>) -> Vec<Named> {
    let named = |(place, text): (usize, &str)| Named { number: Some(place as u64 + 1), text: Some(text.to_owned()) };
    texts.into_iter().enumerate().map(named).collect()
}

fn counter_track(counter: Counter) -> TrackDescriptor {
    let unit = Some(if counter.is_bytes() { 3 } else { 2 });
    let name = Some(counter.name().to_owned());
    TrackDescriptor { name, counter: Some(CounterDescriptor { unit }), ..TrackDescriptor::default() }
}

fn annotation(name: &str) -> Option<u64> {
    ANNOTATIONS.iter().position(|known| *known == name).map(|place| place as u64 + 1)
}

fn number(name: &str, value: i64) -> Annotation {
    Annotation { name: annotation(name), number: Some(value), text: None }
}

fn item_name(item: Item) -> u64 {
    let place = match item {
        Item::Send(_) => 0,
        Item::Receive(_) => 1,
        Item::Operation(_) => 2,
        Item::Connection(_) | Item::Incident(_) => 3,
    };
    u64::from(Phase::COUNT) + place + 1
}

fn pid(rank: u32) -> Option<i32> {
    i32::try_from(rank).ok().and_then(|rank| rank.checked_add(1))
}

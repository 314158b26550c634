// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated process: the engine's messenger over the engine's ports, and what a host adds to them.
//!
//! [`calls`] has what a program calls, [`communicators`] their communicators, [`progress`] the poll, [`host`] and [`ports`] what the messenger calls,
//! [`rails`] the routes to peers, [`failover`] the moves between them, [`request`] and [`data`] the requests. Called by
//! `world`, which never reaches into the state of one process from another. Grade: test. Threads: one. Tests: those of
//! the crate.

mod calls;
mod communicators;
mod data;
mod failover;
mod host;
mod ports;
mod progress;
mod rails;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ibex::counters::Counters;
use ibex::messenger;
use ibex::messenger::flow_control::state::Flow;
use ibex::messenger::matching::Matching;
use ibex::messenger::rails::MultiRail;
use ibex::messenger::receive::arrived::Arrived;
use ibex::messenger::route::Route;
use ibex::peer::PeerName;
use ibex::transport::adapter::simulated::{Adapter, Fabric, Sizes};
use ibex::transport::{Batch, Port};
use ibex::tunables::Tunables;

use crate::memory::Memory;
use failover::Held;
use ports::Buffers;
use request::Requests;

pub(crate) use calls::{Found, Wanted};
pub(crate) use data::{Data, laid_out};
pub(crate) use request::{Ended, Handle};

/// Limits of a process.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) sizes: Sizes,
    /// Longest eager message, header included, bytes.
    pub(crate) eager: usize,
    /// Longest RDMA read, bytes.
    pub(crate) read: u32,
    /// Bytes of unexpected messages beyond which senders are held back.
    pub(crate) unexpected_memory: u64,
    /// Most unanswered announcements to a peer in a communicator.
    pub(crate) window: u32,
    /// Most send buffers of each size.
    pub(crate) buffers: u32,
    pub(crate) rails: usize,
    /// Size of the buffer for buffered sends, bytes.
    pub(crate) attached: usize,
    /// Whether the numbers of requests wrap soon.
    pub(crate) wraps: bool,
    /// Seconds between two probes of idle peers; 0: none.
    pub(crate) probe_interval: u64,
}

/// Tag of all messages at the ports.
const TAG: u8 = 1;

/// A port of a process.
struct Rail {
    /// `None` while it polls.
    port: Option<Box<Port<Adapter>>>,
    /// Its number in the fabric.
    place: usize,
    mbps: u32,
    counters: Arc<Counters>,
    /// Completions of the last poll.
    batch: Option<Box<Batch>>,
    buffers: Buffers,
    /// Number of messages to each endpoint since it became its peer's home, with several rails.
    sent: Vec<u32>,
}

/// The queues of a communicator. A rank is the same in all communicators.
#[derive(Default)]
struct Communicator {
    queues: Matching<Handle, Arrived>,
    /// Ranks of peers to which short messages may bypass the messenger.
    open: BTreeSet<i32>,
    is_freed: bool,
}

pub(crate) struct Process {
    rank: u32,
    pub(crate) settings: Settings,
    memory: Memory,
    fabric: Fabric,
    rails: Vec<Rail>,
    messenger: messenger::State<Process>,
    requests: Requests,
    /// Communicators by context number, which the messenger knows them by as well.
    communicators: BTreeMap<u32, Communicator>,
    /// Routes by rank, of the peers that it has sent to.
    routes: BTreeMap<u32, Route>,
    multi_rail: MultiRail<Held>,
    /// Number of communicators that are freed and not dropped.
    freed: usize,
    /// Bytes of the attached buffer that are taken.
    attached: usize,
    /// Requests that have ended since they were last taken.
    finished: Vec<Ended>,
    /// Whether a peer is lost, which ends an MPI job.
    pub(crate) has_failed: bool,
    /// Ranks of the peers whose connections have failed, and no other port could go on.
    pub(crate) lost: BTreeSet<u32>,
    /// Ranks that this process holds back, and those that hold it back, with the number of their last word.
    holds_back: BTreeSet<i32>,
    held_by: BTreeMap<i32, (u64, bool)>,
}

/// Returns the name of the process with this rank.
pub(crate) const fn name(rank: u32) -> PeerName {
    PeerName { job: 1, rank }
}

impl Process {
    /// Makes the next process. It opens its ports in the fabric.
    pub(crate) fn new(fabric: &Fabric, memory: &Memory, rank: u32, settings: Settings) -> Self {
        let rails: Vec<Rail> = (0..settings.rails).map(|index| Rail::open(fabric, rank, index, settings)).collect();
        let flow = Flow::new(settings.unexpected_memory, settings.window, Arc::clone(&rails[0].counters));
        Process {
            rank,
            settings,
            memory: memory.clone(),
            fabric: fabric.clone(),
            messenger: messenger::State::new(flow),
            requests: Requests::default(),
            communicators: BTreeMap::new(),
            routes: BTreeMap::new(),
            multi_rail: MultiRail::new(rails.len()),
            freed: 0,
            attached: 0,
            finished: Vec::new(),
            has_failed: false,
            lost: BTreeSet::new(),
            holds_back: BTreeSet::new(),
            held_by: BTreeMap::new(),
            rails,
        }
    }

    fn port(&mut self, rail: usize) -> &mut Port<Adapter> {
        self.rails[rail].port.as_mut().expect("nothing is called while the port polls")
    }

    /// Lets the numbers of new connections' requests wrap soon, in worlds where they do.
    pub(crate) fn wind(&mut self) {
        if self.settings.wraps {
            let requests = u32::MAX - 5 - self.rank % 32;
            (0..self.rails.len()).for_each(|rail| self.port(rail).skip_requests(requests));
        }
    }

    fn is_multi_rail(&self) -> bool {
        self.rails.len() > 1
    }

    /// Returns what is not as it was before the first message: `None` if all is given back.
    pub(crate) fn left(&self) -> Option<String> {
        let flow = &self.messenger.flow;
        if flow.kept.bytes() != 0 {
            return Some(format!("{} bytes of unexpected messages", flow.kept.bytes()));
        }
        if !flow.outgoing.is_free() || !flow.turns.is_empty() {
            return Some("flow control limits a peer".to_owned());
        }
        if !self.messenger.starved.is_empty() {
            return Some("a send waits for a buffer".to_owned());
        }
        let queues = self.communicators.values().map(|of| of.queues.posted() + of.queues.unexpected()).sum::<u32>();
        if queues > 0 {
            return Some(format!("{queues} entries in queues"));
        }
        (self.attached > 0).then(|| format!("{} attached bytes", self.attached))
    }

    /// [`Self::left`] of a process that may have lost peers, and has so many requests that do not end.
    pub(crate) fn left_of_all(&self, requests: usize) -> Option<String> {
        if self.requests.in_use() > requests {
            return Some(format!("{} requests", self.requests.in_use() - requests));
        }
        self.rails.iter().find_map(Rail::left)
    }

    /// Describes its connections, for a failure.
    pub(crate) fn describe(&mut self) -> String {
        let mut lines = Vec::new();
        for route in self.routes.clone().into_values().filter(|route| *route != Route::LOOPBACK) {
            lines.push(self.port(route.rail()).describe(route.to()));
        }
        lines.join("\n")
    }
}

impl Rail {
    fn open(fabric: &Fabric, rank: u32, index: usize, settings: Settings) -> Rail {
        let mbps = 100_000 * (index as u32 + 1);
        let tunables = Tunables { probe_interval: settings.probe_interval, ..Tunables::default() };
        let (mut port, place, _) = fabric.open(name(rank), mbps, settings.sizes, &tunables);
        if settings.rails > 1 {
            port.keep_unposted(TAG);
        }
        Rail {
            place,
            mbps,
            counters: port.counters(),
            batch: Some(Box::default()),
            buffers: Buffers::new(settings.eager as u32, settings.sizes.receive, settings.buffers),
            sent: Vec::new(),
            port: Some(Box::new(port)),
        }
    }

    fn left(&self) -> Option<String> {
        let waiting = self.counters.waiting.load(std::sync::atomic::Ordering::Relaxed);
        if waiting > 0 {
            return Some(format!("{waiting} requests wait at a port"));
        }
        let in_use = self.buffers.in_use();
        (in_use > 0).then(|| format!("{in_use} send buffers"))
    }
}

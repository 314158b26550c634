// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated process: the engine's messenger over the engine's ports, and what a host adds to them.
//!
//! [`calls`] has what a program calls, [`communicators`] its communicators, [`progress`] the poll, [`host`] and
//! [`ports`] what the messenger calls, [`shared_memory`] the processes of the same machine, [`request`] and [`data`]
//! the requests, [`tools`] what is recorded, [`paths`] what it is told of paths, [`rails`] checks of its rails. Called
//! by `world`, which never reaches into the state of one process from another. Grade: test. Threads: one. Tests: those
//! of the crate.

mod calls;
mod communicators;
mod data;
mod host;
mod paths;
mod ports;
mod progress;
mod rails;
mod request;
mod shared_memory;
mod tools;

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use ibex::counters::Counters;
use ibex::messenger;
use ibex::messenger::flow_control::state::Flow;
use ibex::messenger::header::MAX_SIZE;
use ibex::messenger::host::Process as _;
use ibex::messenger::matching::lengths::Lengths;
use ibex::messenger::rails::Rails;
use ibex::messenger::rails::send_buffers::SendBuffers;
use ibex::messenger::receive::queues::Queues;
use ibex::messenger::route::Route;
use ibex::peer::PeerName;
use ibex::transport::adapter::simulated::{Adapter, Fabric, Sizes};
use ibex::transport::{Batch, EndpointId, Port};
use ibex::tunables::Tunables;

use crate::memory::Memory;
use crate::recorder::Recorder;
use request::Requests;

pub(crate) use calls::Wanted;
pub(crate) use data::{Data, laid_out};
pub(crate) use paths::ReportedPath;
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
    /// Number of processes on each machine.
    pub(crate) per_host: u32,
    /// Size of the buffer for buffered sends, bytes.
    pub(crate) attached: usize,
    /// Whether the numbers of requests wrap soon.
    pub(crate) wraps: bool,
    /// Seconds between two probes of idle peers; 0: none.
    pub(crate) probe_interval: u64,
    /// Whether a process goes on when it has lost a peer, and ends the requests that need the peer.
    pub(crate) outlives: bool,
}

/// What the messenger may use while the process is borrowed: its ports and settings.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    rails: Vec<Rail>,
}

/// A port of a process.
struct Rail {
    port: RefCell<Box<Port<Adapter>>>,
    /// Its number in the fabric.
    place: usize,
    counters: Arc<Counters>,
    properties: messenger::host::Rail,
}

impl messenger::host::Process for Shared {
    const TAG: u8 = 1;

    type Adapter = Adapter;
    type Entered<'a> = RefMut<'a, Port<Adapter>>;

    fn rail_count(&self) -> usize {
        self.rails.len()
    }

    fn rail(&self, rail: usize) -> Option<&messenger::host::Rail> {
        self.rails.get(rail).map(|rail| &rail.properties)
    }

    fn eager_limit(&self, route: Route) -> usize {
        if route.as_local().is_some() { shared_memory::EAGER } else { self.settings.eager - MAX_SIZE }
    }

    fn enter_port(&self, rail: usize) -> Option<RefMut<'_, Port<Adapter>>> {
        let port = self.rails.get(rail)?.port.try_borrow_mut();
        Some(RefMut::map(port.expect("a port is entered once at a time"), Box::as_mut))
    }
}

/// An endpoint of a port.
struct End {
    rank: u32,
    route: Route,
    has_failed: bool,
    has_lost: bool,
    is_usable: bool,
}

impl Shared {
    /// Returns the endpoints of all ports.
    fn ends(&self) -> Vec<End> {
        let of = |rail| {
            let port = self.port(rail);
            let end = |(to, name): (EndpointId, PeerName)| {
                let (has_failed, has_lost) = (port.failure(to).is_some(), port.has_lost(to));
                let (rank, route, is_usable) = (name.rank, Route::new(rail, to), port.is_usable(to));
                End { rank, route, has_failed, has_lost, is_usable }
            };
            endpoints(&port).map(end).collect::<Vec<_>>()
        };
        (0..self.rails.len()).flat_map(of).collect()
    }

    fn port(&self, rail: usize) -> RefMut<'_, Port<Adapter>> {
        self.enter_port(rail).expect("the process has this rail")
    }
}

/// Returns the endpoints of a port, with their peers.
fn endpoints(port: &Port<Adapter>) -> impl Iterator<Item = (EndpointId, PeerName)> {
    (0..).map(EndpointId::from_index).map_while(|to| Some((to, port.peer_name(to)?)))
}

/// The queues of a communicator. A rank is the same in all communicators.
#[derive(Default)]
struct Communicator {
    queues: Queues<Handle>,
    lengths: Lengths,
    /// Ranks of peers to which short messages may bypass the messenger.
    open: BTreeSet<i32>,
    is_freed: bool,
}

pub(crate) struct Process {
    rank: u32,
    pub(crate) settings: Settings,
    memory: Memory,
    fabric: Fabric,
    shared: Rc<Shared>,
    /// Completions of the last poll of each rail.
    batches: Vec<Option<Box<Batch>>>,
    messenger: messenger::State<Process>,
    requests: Requests,
    /// Communicators by context number, which the messenger knows them by as well.
    communicators: BTreeMap<u32, Communicator>,
    /// Processes of this machine for which messages wait.
    held_up: BTreeSet<u32>,
    /// Copies that the kernel has begun, and the number of all.
    copies: Vec<shared_memory::Copy>,
    copied: usize,
    /// Number of communicators that are freed and not dropped.
    freed: usize,
    /// Bytes of the attached buffer that are taken.
    attached: usize,
    /// Requests that have ended since they were last taken.
    finished: Vec<Ended>,
    /// Ranks that this process has met as a process of another job.
    dynamic_processes: BTreeSet<u32>,
    /// Whether a peer is lost, which ends an MPI job.
    pub(crate) has_failed: bool,
    /// Ranks of the peers that it has lost, and whether messages must have been: a port still reached the peer.
    pub(crate) lost: BTreeMap<u32, bool>,
    /// Ranks that this process holds back, and those that hold it back, with the number of their last word.
    holds_back: BTreeSet<i32>,
    held_by: BTreeMap<i32, (u64, bool)>,
    /// Records its events; `None`: nobody wants them.
    recorder: Option<Box<Recorder>>,
    /// Whether it delivers a message while a port polls, and records that.
    is_taking: bool,
    /// Ports that it has given up, each with the rank of the peer.
    given_up: Vec<(usize, u32)>,
    /// What it is told of paths, each with the number of its request; `None`: it does not listen.
    pub(crate) paths: Option<Vec<(usize, ReportedPath)>>,
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
        let shared = Shared { settings, rails };
        let mut rails = Rails::new(shared.rails.iter().map(|rail| &rail.properties), settings.buffers);
        let first = rank / settings.per_host * settings.per_host;
        let near = |near| if near == rank { Route::LOOPBACK } else { Route::local(near) };
        rails.known.extend((first..first + settings.per_host).map(|other| (name(other), near(other))));
        Process {
            rank,
            settings,
            memory: memory.clone(),
            fabric: fabric.clone(),
            messenger: messenger::State::new(flow, rails),
            requests: Requests::default(),
            communicators: BTreeMap::new(),
            batches: shared.rails.iter().map(|_| Some(Box::default())).collect(),
            held_up: BTreeSet::new(),
            copies: Vec::new(),
            copied: 0,
            freed: 0,
            attached: 0,
            finished: Vec::new(),
            dynamic_processes: BTreeSet::new(),
            has_failed: false,
            lost: BTreeMap::new(),
            holds_back: BTreeSet::new(),
            held_by: BTreeMap::new(),
            recorder: None,
            is_taking: false,
            given_up: Vec::new(),
            paths: None,
            shared: Rc::new(shared),
        }
    }

    /// Returns the ports and settings, to be used beside the rest of the process.
    pub(crate) fn shared(&self) -> Rc<Shared> {
        Rc::clone(&self.shared)
    }

    /// Lets the numbers of new connections' requests wrap soon, in worlds where they do.
    pub(crate) fn wind(&mut self) {
        if self.settings.wraps {
            let requests = u32::MAX - 5 - self.rank % 32;
            (0..self.shared.rail_count()).for_each(|rail| self.shared.port(rail).skip_requests(requests));
        }
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
        let messenger = &self.messenger;
        if self.settings.outlives && (messenger.transfers.in_use() > 0 || !messenger.starved.is_empty()) {
            return Some(format!("{} transfers, or sends that wait for a buffer", messenger.transfers.in_use()));
        }
        if !self.messenger.rails.backlog.is_empty() || !self.held_up.is_empty() {
            return Some("a message waits for room in shared memory".to_owned());
        }
        if self.messenger.rails.buffers.iter().any(|buffers| buffers.in_use() > 0) {
            let in_use: Vec<_> = self.messenger.rails.buffers.iter().map(SendBuffers::in_use).collect();
            return Some(format!("send buffers, by rail: {in_use:?}"));
        }
        self.shared.rails.iter().find_map(Rail::left)
    }

    /// Describes its connections, for a failure.
    pub(crate) fn describe(&mut self) -> String {
        let mut lines = Vec::new();
        for route in self.messenger.rails.known.values().filter(|route| route.rail() < self.settings.rails) {
            lines.push(self.shared.port(route.rail()).describe(route.to()));
        }
        lines.sort();
        lines.join("\n")
    }
}

impl Rail {
    fn open(fabric: &Fabric, rank: u32, index: usize, settings: Settings) -> Rail {
        let mbps = 100_000 * (index as u32 + 1);
        let tunables = Tunables { probe_interval: settings.probe_interval, ..Tunables::default() };
        let (mut port, place, _) = fabric.open(name(rank), mbps, settings.sizes, &tunables);
        if settings.rails > 1 {
            port.keep_unposted(Shared::TAG);
        }
        let properties = messenger::host::Rail {
            port: index as u8,
            mbps,
            max_inline: settings.sizes.inline as usize,
            copy_size: settings.eager,
            receive_size: settings.sizes.receive as usize,
            read_limit: settings.read,
        };
        Rail { place, counters: port.counters(), properties, port: RefCell::new(Box::new(port)) }
    }

    fn left(&self) -> Option<String> {
        let waiting = self.counters.waiting.load(std::sync::atomic::Ordering::Relaxed);
        (waiting > 0).then(|| format!("{waiting} requests wait at a port"))
    }
}

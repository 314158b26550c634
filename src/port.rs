// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port that is used: its queues, its memory, its peers.
//!
//! Owns everything ibex has on one port of one adapter. Opened, described and closed here (setup grade); sends are in
//! `send.rs`, completions in `poll.rs`, connections in `connecting.rs`, all methods of [`Port`]. The plugin gives one thread
//! at a time the port (`&mut`); counters and the protection domain are shared. Nothing here calls back.
//! Tests: the device tests in `hw-tests`.

mod error;

pub use error::PortError;

use crate::address::PortEntry;
use crate::bounce::Bounce;
use crate::connector::Connector;
use crate::counters::{Counters, add, subtract};
use crate::device::PortChoice;
use crate::divert::Diversion;
use crate::endpoint::{Connection, Endpoint};
use crate::event::{Batch, EndpointId, Event, Late};
use crate::events::SourceId;

use crate::peer::PeerName;
use crate::poll::Rare;
use crate::posted::Posted;
use crate::receive::Receives;
use crate::tunables::Tunables;
use crate::watch;
use ibex_ffi::verbs::{
    Arena, CompletionQueue, Context, LocalSpan, ProtectionDomain, QueuePair, QueuePairLimits, atomic_cap,
};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the engine asks the upper layer about peers. Called while the port is borrowed: it must not call the port.
pub trait Directory: Send {
    /// What `peer` published of its port numbered `port`; `None` where it published none, or there is no such process.
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry>;
    /// The name of the host `peer` runs on, for messages.
    fn host(&self, peer: PeerName) -> String;
    /// A line for a user who wants to know more (`btl_ibex_verbose`). It is not called where none does.
    fn tell(&self, _line: &str) {}
}

/// How a port is to be used.
pub struct Setup {
    /// Its place among the ports this process publishes.
    pub index: u8,
    /// This process.
    pub me: PeerName,
    /// The largest message, bytes: the size of a receive slot.
    pub receive_size: u32,
    /// The largest message that may wait in memory of no registration, bytes: the size of a bounce buffer.
    pub bounce_size: u32,
    /// Whom to ask about peers.
    pub directory: Box<dyn Directory>,
}

/// Atomics an adapter can do on 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// None.
    None,
    /// Atomic among the queue pairs of the adapter.
    Adapter,
    /// Atomic also with the host's processors.
    Host,
}

/// What a port is and can.
#[derive(Debug, Clone)]
pub struct Attributes {
    /// The device's name.
    pub device: String,
    /// The port's number on it, from 1.
    pub port: u8,
    /// Its rate in Mb/s.
    pub mbps: u32,
    /// The largest message it carries, bytes.
    pub max_message: u64,
    /// The largest message it carries inside a work request, bytes.
    pub max_inline: u32,
    /// Its atomics.
    pub atomics: Atomics,
    /// Whether the kernel does its work on the host's processors (soft-RoCE).
    pub software: bool,
    /// `IBV_LINK_LAYER_*`.
    pub link_layer: u8,
}

impl Attributes {
    /// Device and port, as `rxe0:1`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }
}

/// How long requests that wait may hold up the end of a connection, or of all.
const PARTING: Duration = Duration::from_millis(100);

/// With fewer send slots than this, those of copied sends that nobody asked a completion for would soon be missed.
const FEW_SLOTS: u64 = 256;

/// A port in use.
pub struct Port {
    // Fields are dropped in this order: queue pairs, then queues, then the memory they name.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) connector: Connector,
    pub(crate) cq: CompletionQueue,
    pub(crate) receives: Receives,
    arenas: Vec<Arena>,
    pub(crate) domain: Arc<ProtectionDomain>,

    // Hot: what a post or a poll reads.
    /// Work requests that may still be posted before completions could overflow their queue.
    pub(crate) credits: u32,
    /// Below this many, every request asks for a completion.
    pub(crate) scarce_credits: u32,
    pub(crate) signal_interval: u32,
    /// Whether copied sends ask for a completion each, because their buffers are few.
    pub(crate) prompt_copies: bool,
    /// Polls until connections are looked after.
    pub(crate) countdown: u32,
    /// Room came since the backlog was last worked.
    pub(crate) freed: bool,
    pub(crate) posted: Posted,
    pub(crate) counters: Arc<Counters>,

    // Pending: what did not fit.
    /// Events that did not fit a batch.
    pub(crate) overflow: VecDeque<Late>,
    /// Peers with requests that wait.
    pub(crate) backlog: VecDeque<EndpointId>,
    pub(crate) bounce: Bounce,
    pub(crate) bounce_size: u32,
    pub(crate) rare: Vec<Rare>,
    /// Why connections failed, for who has not been told yet.
    pub(crate) untold: Vec<String>,
    pub(crate) diversion: Diversion,

    // Setup.
    pub(crate) attributes: Attributes,
    pub(crate) directory: Box<dyn Directory>,
    pub(crate) tunables: Tunables,
    pub(crate) choice: PortChoice,
    pub(crate) closing: bool,
    /// The source of the adapter's events, where it stamps completions.
    pub(crate) source: Option<SourceId>,
}

impl Port {
    /// Opens a port: its protection domain, completion queue, shared receive queue with its slots, and what the handshake
    /// goes by.
    ///
    /// # Errors
    /// [`PortError`]: what failed, with which values, and what to do.
    pub fn open(choice: &PortChoice, tunables: &Tunables, setup: Setup) -> Result<Port, PortError> {
        let place = format!("{}:{}", choice.device, choice.port);
        let failed = |doing: String| {
            let place = place.clone();
            move |error| PortError { place, doing, bytes: None, error }
        };
        let context = Context::open(&choice.device).map_err(failed("opening the device".into()))?;
        let device = context.attributes().map_err(failed("asking for the device's attributes".into()))?;
        let port = context.port(choice.port).map_err(failed("asking for the port's attributes".into()))?;
        let domain = ProtectionDomain::new(&context).map_err(failed("making a protection domain".into()))?;

        let receives = (tunables.receive_queue_depth as u32).min(device.max_srq_wr);
        if receives == 0 {
            let error = io::Error::from(io::ErrorKind::Unsupported);
            return Err(failed("making a shared receive queue, which this adapter does not have,".into())(error));
        }
        let entries = (tunables.completion_queue_depth as u32).max(receives + 256).min(device.max_cqe);
        let poll_batch = (tunables.poll_batch as usize).min(Batch::CAPACITY);
        // Not every adapter stamps completions, and not every one that does lets this process ask it to.
        let is_stamping = cfg!(feature = "events") && tunables.event_adapter_clock;
        let stamping = is_stamping.then(|| CompletionQueue::stamping(&context, entries, poll_batch));
        let cq = stamping
            .and_then(Result::ok)
            .map_or_else(|| CompletionQueue::new(&context, entries, poll_batch), Ok)
            .map_err(failed(format!("making a completion queue of {entries} entries")))?;
        let doing = format!("making a shared receive queue of {receives} slots of {} bytes", setup.receive_size);
        let batch = (tunables.receive_batch as usize).min(receives as usize / 2).max(1);
        let bytes = Some(u64::from(receives) * u64::from(setup.receive_size));
        let receives_side = Receives::new(&domain, setup.receive_size, receives, batch, setup.index)
            .map_err(|error| PortError { bytes, ..failed(doing)(error) })?;

        let bounce = Bounce::new(&domain, setup.bounce_size)
            .map_err(failed(format!("registering bounce buffers of {} bytes", setup.bounce_size)))?;

        let limits = queue_pair_limits(tunables, &device);
        let probe = QueuePair::new(&domain, &cq, receives_side.srq(), limits)
            .map_err(failed(format!("making a queue pair of {} sends", limits.sends)))?;
        let attributes = Attributes {
            device: choice.device.clone(),
            port: choice.port,
            mbps: port.rate_mbps,
            max_message: u64::from(port.max_message),
            max_inline: probe.max_inline().min(tunables.max_inline as u32),
            software: context.is_software(),
            atomics: match device.atomic_cap {
                atomic_cap::NONE => Atomics::None,
                atomic_cap::ADAPTER => Atomics::Adapter,
                _ => Atomics::Host,
            },
            link_layer: choice.link_layer,
        };
        drop(probe);
        let source = watch::open_source(&context, &cq, &place);
        let connector = Connector::open(&context, &domain, choice, tunables, &setup, &device)
            .map_err(failed("making the handshake's queue pair and listener".into()))?;
        let credits = cq.capacity().saturating_sub(receives).max(1);
        let counters = Arc::new(Counters::new(context.sysfs(), choice.port));
        add(&counters.send_memory, bounce.bytes() as u64);
        Ok(Port {
            endpoints: Vec::new(),
            connector,
            cq,
            receives: receives_side,
            arenas: Vec::new(),
            domain,
            credits,
            scarce_credits: credits / 2,
            signal_interval: tunables.signal_interval as u32,
            prompt_copies: (1..FEW_SLOTS).contains(&tunables.send_slots_max),
            countdown: 1,
            freed: false,
            posted: Posted::with_capacity(1024),
            counters,
            overflow: VecDeque::with_capacity(64),
            backlog: VecDeque::new(),
            bounce,
            bounce_size: setup.bounce_size,
            rare: Vec::new(),
            untold: Vec::new(),
            diversion: Diversion::default(),
            attributes,
            directory: setup.directory,
            tunables: tunables.clone(),
            choice: choice.clone(),
            closing: false,
            source,
        })
    }

    /// What it is and can.
    #[must_use]
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The source of the adapter's events; `None` where it does not stamp completions.
    #[must_use]
    pub fn source(&self) -> Option<SourceId> {
        self.source
    }

    /// Its protection domain, with which any thread may register memory.
    #[must_use]
    pub fn domain(&self) -> Arc<ProtectionDomain> {
        Arc::clone(&self.domain)
    }

    /// Its counts, which any thread may read.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Registers `count` more send slots of `size` bytes each. They are the caller's until the port is dropped. Pending grade.
    ///
    /// # Errors
    /// [`PortError`] where memory, or the limit of locked memory, does not suffice.
    pub fn grow(&mut self, size: u32, count: u32) -> Result<Vec<LocalSpan>, PortError> {
        let arena = Arena::new(&self.domain, size as usize, count as usize).map_err(|error| PortError {
            place: self.attributes.place(),
            doing: format!("registering {count} send slots of {size} bytes"),
            bytes: Some(u64::from(count) * u64::from(size)),
            error,
        })?;
        let spans = (0..arena.count()).filter_map(|index| arena.span(index)).collect();
        add(&self.counters.send_memory, arena.bytes() as u64);
        self.arenas.push(arena);
        Ok(spans)
    }

    /// The endpoint for the port numbered `remote_port` of the peer `name`: a new one, or the one that the peer's handshake
    /// already made. Setup.
    pub fn peer(&mut self, name: PeerName, remote_port: u8) -> EndpointId {
        if let Some(known) = self.connector.known(name, remote_port) {
            if let Some(endpoint) = self.endpoints.get_mut(known.index() as usize) {
                endpoint.forgotten = false;
            }
            return known;
        }
        let id = EndpointId::from_index(self.endpoints.len() as u32);
        let diverted = self.diversion.is_on;
        self.endpoints.push(Endpoint {
            name,
            remote_port,
            forgotten: false,
            diverted,
            connection: None,
            failure: None,
        });
        self.connector.learn(name, remote_port, id);
        id
    }

    /// Gives a peer up: its queue pair is destroyed, what waits for it is dropped. Setup.
    pub fn forget(&mut self, peer: EndpointId) {
        let Some(endpoint) = self.endpoints.get_mut(peer.index() as usize) else { return };
        endpoint.forgotten = true;
        self.drain(peer, Instant::now() + PARTING);
        self.fail_pending(peer);
        self.drop_connection(peer);
        self.connector
            .forget(self.endpoints[peer.index() as usize].name, self.endpoints[peer.index() as usize].remote_port);
    }

    /// Whether the upper layer has given the peer up: what fails then is nobody's concern.
    #[must_use]
    pub fn is_forgotten(&self, to: EndpointId) -> bool {
        self.endpoints.get(to.index() as usize).is_some_and(|endpoint| endpoint.forgotten)
    }

    /// Destroys a peer's queue pair. Its requests complete as failed, those the adapter had and those that waited.
    pub(crate) fn drop_connection(&mut self, peer: EndpointId) {
        self.fail_pending(peer);
        self.connector.take_successor(peer);
        let Some(endpoint) = self.endpoints.get_mut(peer.index() as usize) else { return };
        let Some(mut connection) = endpoint.connection.take() else { return };
        if connection.is_made() {
            subtract(&self.counters.connections, 1);
        }
        let last = connection.posted.wrapping_sub(1);
        self.credits += connection.in_flight();
        let mut bounced = std::mem::take(&mut connection.bounced);
        let mut tokens = std::mem::take(&mut connection.list);
        // The queue pair goes first: what is flushed with it was the adapter's until now.
        drop(connection);
        self.bounce.take_back(&mut bounced, last);
        while let Some((_, token)) = self.posted.pop_through(&mut tokens, last) {
            let outcome = Err(crate::event::Failed { status: ibex_ffi::verbs::Status::FLUSHED, posted: true });
            self.overflow.push_back(Event::Completed { token, to: peer, outcome }.into());
        }
    }

    /// Polls until nothing waits to be posted to a connected peer any more, at most until `end`. What was posted is the
    /// adapter's to deliver; it is not waited for, because a peer that has ended already acknowledges nothing.
    fn drain(&mut self, peer: EndpointId, end: Instant) {
        let waits = |port: &Port| port.connection(peer).is_some_and(|c| c.is_made() && !c.pending.is_empty());
        let mut held = Vec::new();
        while waits(self) && Instant::now() < end {
            let mut batch = Batch::new();
            if self.poll(&mut batch) > 0 {
                held.extend(batch.late());
            }
        }
        // What came meanwhile is still to be delivered.
        self.overflow.extend(held);
    }

    /// An endpoint in words: who, where, by which queue pair, how it stands.
    #[must_use]
    pub fn describe(&self, peer: EndpointId) -> String {
        let Some(endpoint) = self.endpoints.get(peer.index() as usize) else {
            return format!("no endpoint {}", peer.index());
        };
        let host = self.directory.host(endpoint.name);
        let who =
            format!("rank {} ({}) on host {host}, {}", endpoint.name.rank, endpoint.name, self.attributes.place());
        match &endpoint.connection {
            None => format!("{who}, never spoken to"),
            Some(c) => format!(
                "{who}, queue pair 0x{:06x}, {:?}, {} posted, {} in flight, {} waiting",
                c.qp.number(),
                c.state,
                c.posted,
                c.in_flight(),
                c.pending.len()
            ),
        }
    }

    /// The peer's name; `None` where there is no such endpoint.
    #[must_use]
    pub fn peer_name(&self, peer: EndpointId) -> Option<PeerName> {
        Some(self.endpoints.get(peer.index() as usize)?.name)
    }

    /// Ends all connections: gives what still waits a bounded time to be posted, then destroys the queue pairs. The adapter
    /// touches no memory of this process afterwards. Failures are not reported any more.
    pub fn close(&mut self) {
        self.closing = true;
        let end = Instant::now() + PARTING;
        for index in 0..self.endpoints.len() as u32 {
            let peer = EndpointId::from_index(index);
            self.drain(peer, end);
            self.drop_connection(peer);
        }
    }

    #[inline]
    pub(crate) fn connection(&self, peer: EndpointId) -> Option<&Connection> {
        self.endpoints.get(peer.index() as usize)?.connection.as_deref()
    }

    #[inline]
    pub(crate) fn connection_mut(&mut self, peer: EndpointId) -> Option<&mut Connection> {
        self.endpoints.get_mut(peer.index() as usize)?.connection.as_deref_mut()
    }

    /// Notes a new connection that both sides have.
    pub(crate) fn count_connection(&self) {
        add(&self.counters.connections, 1);
        add(&self.counters.connected, 1);
    }
}

/// What a queue pair of this port is asked to hold.
pub(crate) fn queue_pair_limits(tunables: &Tunables, device: &ibex_ffi::verbs::DeviceAttributes) -> QueuePairLimits {
    QueuePairLimits {
        sends: (tunables.send_queue_depth as u32).min(device.max_qp_wr),
        inline: tunables.max_inline as u32,
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port {} with {} peers", self.attributes.place(), self.endpoints.len())
    }
}

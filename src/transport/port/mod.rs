// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open port: combines the send side, the receive side and the connections; the plugin holds it.
//!
//! Opened in `port/open`. The plugin gives the port to one thread at a time (`&mut`); counters and the protection
//! domain are shared. The port calls back only the [`Directory`] and the handler of a poll. This file has the port's
//! definition and the life of a peer. Grade: setup; hot are `send.rs` and `poll.rs`. Tests: `port/tests`, over a
//! simulated adapter; the device tests in `hw-tests`.

mod admission;
mod closing;
mod connect;
mod divert;
mod establish;
mod fail;
mod open;
mod partner;
mod poll;
mod send;
mod waiting;

#[cfg(test)]
mod tests;

use admission::Admission;
use closing::Closing;

pub use divert::SentMessages;
#[cfg(any(test, feature = "stand-in"))]
pub(crate) use open::stand_in::StandIn;
pub use open::{Device, PortError};
pub use poll::Polled;
pub use send::{Refused, Sent};
pub use waiting::WhenDiverted;

use super::adapter::verbs::Verbs;
use super::adapter::{Adapter, SendSlots as _};
use super::completion::{Batch, TakesNone, Undelivered};
use super::connections::Connections;
use super::connections::failure::Failure;
use super::connections::handshakes::Handshakes;
use super::connections::probe::{Parted, Probes};
use super::kept::Kept;
use super::rx::Rx;
use super::tx::Tx;
use super::watch::Numbers;
use super::work_request::{EndpointId, Immediate};
use crate::connect::carriers::Carriers as _;
use crate::counters::{Counters, add};
use crate::events::SourceId;
use crate::peer::PeerName;
use crate::select::PortChoice;
use crate::select::address::{PortAddress, PortEntry};
use crate::tunables::Tunables;
use ibex_ffi::verbs::{Access, LocalSpan, WorkCompletion};
use std::sync::Arc;
use std::time::Duration;

/// The upper layer's answers to the engine's questions about peers. The port is borrowed meanwhile: do not call it.
pub trait Directory: Send {
    /// Returns the entry that `peer` published for its port `port`; `None` if there is none, or no such process.
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry>;
    /// Whether a process is admitted that has published no such port, but knows this port's key: `entry` is what its
    /// hello says of it, for later calls of [`Directory::entry`].
    fn admits(&self, _peer: PeerName, _port: u8, _entry: PortEntry) -> bool {
        false
    }
    /// Returns the ports of `peer` that this process' port numbered `port` may be connected to, best first
    /// ([`crate::select::partners`]). With fewer than two there is no choice.
    fn partners(&self, _peer: PeerName, _port: u8) -> Vec<u8> {
        Vec::new()
    }
    /// Returns the name of the host `peer` runs on, for messages.
    fn host(&self, peer: PeerName) -> String;
    /// Returns the present verbosity (`btl_ibex_verbose`).
    fn verbosity(&self) -> u64 {
        0
    }
    /// Prints a line for a verbose user. Not called if the verbosity is 0.
    fn print(&self, _line: &str) {}
}

/// The parameters for opening a port.
pub struct Setup {
    /// Index of the port among those that this process publishes.
    pub index: u8,
    /// This process.
    pub me: PeerName,
    /// Random number of this instance of the port, not 0, if `me` is made of it; `None`: the port draws one.
    pub instance: Option<u64>,
    /// Number of the job's processes on this host.
    pub processes: u32,
    /// Number of ports that this process opens, which share its receive slots.
    pub ports: u32,
    /// Size of a receive slot, bytes: the largest message.
    pub receive_size: u32,
    /// Size of a bounce buffer, bytes: the largest message that may wait in unregistered memory.
    pub bounce_size: u32,
    /// Whether threads may sleep until there is a completion ([`Port::arm`]).
    pub sleeps: bool,
    /// The answers about peers.
    pub directory: Box<dyn Directory>,
}

/// The 64-bit atomics of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// None.
    None,
    /// Atomic among operations of this adapter.
    Adapter,
    /// Atomic also with operations of the host's processors.
    Host,
}

/// The properties of a port.
#[derive(Debug, Clone)]
pub struct Attributes {
    /// Name of the device.
    pub device: String,
    /// Number of the port on the device, from 1.
    pub port: u8,
    /// Rate in Mb/s.
    pub mbps: u32,
    /// Largest message, bytes.
    pub max_message: u64,
    /// Largest message inside a work request, bytes.
    pub max_inline: u32,
    /// Whether a message may be gathered from two spans. Adapters need only support one.
    pub gathers: bool,
    /// The adapter's atomics.
    pub atomics: Atomics,
    /// Whether the kernel does the adapter's work on the host's processors (soft-RoCE).
    pub software: bool,
    /// Link layer: `IBV_LINK_LAYER_*`.
    pub link_layer: u8,
}

impl Attributes {
    /// Returns device and port, as `rxe0:1`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }

    /// Returns the operations that peers may do through a queue pair. Without atomics this excludes the right to them,
    /// because mlx5 refuses that right to every queue pair that also answers reads.
    pub(super) fn access(&self) -> Access {
        match self.atomics {
            Atomics::None => Access::RIGHTS.difference(Access::REMOTE_ATOMIC),
            Atomics::Adapter | Atomics::Host => Access::RIGHTS,
        }
    }
}

/// Longest time that waiting requests may delay the end of one connection, or of all connections.
const PARTING: Duration = Duration::from_millis(100);

/// Number of checks of connections between two queries for asynchronous events, which are system calls. Most checks
/// must not read the clock, so the port counts them.
const ASYNC_INTERVAL: u32 = 4096;

/// Number of checks between two readings of the clock, after which the port queries the device if [`ASYNC_PERIOD`] has
/// passed: if processes share a processor, a poll may take as long as the others run.
const CLOCK_INTERVAL: u32 = 16;

/// Approximate time of [`ASYNC_INTERVAL`] checks without interruption.
const ASYNC_PERIOD: Duration = Duration::from_millis(5);

/// Weight of an empty poll in the countdown to the next check of connections. So checks rarely delay a process with
/// messages to take, while a process that waits or rarely polls answers a connecting peer at once.
const EMPTY_POLL: u32 = 16;

/// Shortest time between two copies of the counters to the flight recorder's file, nanoseconds.
const COUNTS_INTERVAL: u64 = 100_000_000;
/// A rare completion, which the poll handles after its batch.
#[derive(Debug)]
enum Exceptional {
    /// A request that failed.
    Failed(WorkCompletion),
    /// A message that ibex did not send.
    Malformed { slot: u32 },
    /// A message that arrived while handshakes were in progress; it may replace the last hello of one.
    Early { immediate: Immediate, qp_num: u32 },
}

#[derive(Debug, Default)]
struct Diversion {
    /// The adapter has reported that the port has no link.
    is_down: bool,
    /// Some peers are diverted; new ones will be, too.
    is_on: bool,
}

/// An open port. The adapter is libibverbs, except in unit tests.
pub struct Port<A: Adapter = Verbs> {
    // Dropped in this order: queue pairs, then queues, then the memory that they name.
    connections: Connections<A::QueuePair>,
    closing: Closing<A::QueuePair>,
    handshakes: Handshakes<A::Carriers>,
    cq: A::CompletionQueue,
    rx: Rx<A::ReceiveQueue>,
    tx: Tx<A::SendSlots>,
    /// Send slots of the plugin.
    send_slots: Vec<A::SendSlots>,
    adapter: A,

    // Hot: fields that a poll reads.
    /// Polls until the next check of connections; an empty poll counts as [`EMPTY_POLL`].
    countdown: u32,
    undelivered: Undelivered,
    exceptional: Vec<Exceptional>,
    counters: Arc<Counters>,

    /// Polls between two checks while no handshake is in progress.
    look_pause: u32,
    /// Polls between the last two checks.
    look_interval: u32,
    /// Polls, and empty polls, until the last check.
    polls_at_look: [u64; 2],
    /// Checks until the port queries the device for asynchronous events.
    until_async: u32,
    /// Time at which the port queries the device at the latest.
    async_due: Duration,
    /// Its place in the flight recorder.
    place: u8,
    /// Index of the next endpoint to copy to the flight recorder.
    next_shown: u32,
    probes: Probes,
    /// Connected peers that this process has parted from.
    parted: Vec<Parted>,
    admission: Admission,
    diversion: Diversion,
    /// The caller's messages, by endpoint.
    sent: Vec<SentMessages>,
    kept: Kept,
    /// Reasons of failed connections that the caller has not taken yet.
    unprinted: Vec<String>,
    attributes: Attributes,
    bounce_size: u32,
    directory: Box<dyn Directory>,
    tunables: Tunables,
    choice: PortChoice,
    depth: u32,
    is_closing: bool,
    source: Option<SourceId>,
}

impl<A: Adapter> Port<A> {
    /// Returns the properties of the port.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the event source of the adapter; `None` if it does not stamp completions.
    pub fn source(&self) -> Option<SourceId> {
        self.source
    }

    /// Returns the port's counters, which any thread may read.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Returns a warning for the user about the opening of this port.
    pub fn warning(&self) -> Option<&str> {
        self.handshakes.carriers().warning()
    }

    /// Returns the address of this port.
    pub fn address(&self) -> &PortAddress {
        &self.handshakes.identity().address
    }

    /// Returns the entry that this port publishes about itself.
    pub fn entry(&self) -> PortEntry {
        self.handshakes.entry()
    }

    /// Returns its number among the ports of the process.
    pub fn index(&self) -> u8 {
        self.handshakes.identity().port
    }

    fn numbers(&self) -> Numbers {
        Numbers { index: self.index(), place: self.place }
    }

    /// Gives it another place in the flight recorder than its index, because other ports of the process have the same
    /// index.
    pub fn set_place(&mut self, place: u8) {
        self.place = place;
        self.rx.set_place(place);
    }

    /// Registers `count` more send slots of `size` bytes each, for the caller until the port is dropped. Grade:
    /// pending.
    ///
    /// # Errors
    /// [`PortError`] if memory, or the limit of locked memory, does not suffice.
    pub fn grow(&mut self, size: u32, count: u32) -> Result<Vec<LocalSpan>, PortError> {
        let slots = self.adapter.send_slots(size, count).map_err(|error| PortError {
            place: self.attributes.place(),
            doing: format!("registering {count} send slots of {size} bytes"),
            bytes: Some(u64::from(count) * u64::from(size)),
            error,
        })?;
        let spans = (0..slots.count()).filter_map(|slot| slots.span(slot)).collect();
        add(&self.counters.send_memory, slots.bytes());
        add(&self.counters.huge_memory, slots.explicit_bytes());
        self.send_slots.push(slots);
        Ok(spans)
    }

    /// Returns the endpoint for the port numbered `remote_port` of the peer `name`: a new one, or the one that the
    /// peer's handshake has made. Takes a peer back from which this process has parted. Setup.
    pub fn peer(&mut self, name: PeerName, remote_port: u8) -> EndpointId {
        let remote_port = self.answering(name, remote_port);
        let peer = self.connections.learn(name, remote_port, self.diversion.is_on);
        if self.connections.is_forgotten(peer) {
            self.rejoin(peer);
        }
        peer
    }

    /// Gives a peer up: drops its waiting requests. Later polls destroy its queue pair, once the adapter has flushed
    /// all posted requests. Setup.
    pub fn forget(&mut self, peer: EndpointId) {
        if self.connections.set_forgotten(peer, true) {
            self.drain(peer, self.adapter.now() + PARTING);
            self.drop_connection(peer);
            self.connections.forget_name(peer);
        }
    }

    /// Whether the upper layer has given the peer up, so that its failures are not reported.
    pub fn is_forgotten(&self, to: EndpointId) -> bool {
        self.connections.is_forgotten(to)
    }

    /// Polls until no request waits for a connected peer, or until `end`. Does not wait for posted requests: a peer
    /// that has ended acknowledges nothing.
    fn drain(&mut self, peer: EndpointId, end: Duration) {
        let waits = |port: &Self| {
            port.connections.get(peer).is_some_and(|connection| connection.is_made() && connection.queue.waiting() > 0)
        };
        let mut held = Undelivered::default();
        while waits(self) && self.adapter.now() < end {
            let mut batch = Batch::new();
            if self.poll_direct_watched(&mut batch, TakesNone).reported > 0 {
                held.hold(&mut batch, |_| false);
            }
        }
        self.undelivered.append(&mut held);
    }

    /// Describes an endpoint: peer, host, port, queue pair, state.
    pub fn describe(&self, peer: EndpointId) -> String {
        let Some(name) = self.connections.name(peer) else { return format!("no endpoint {}", peer.index()) };
        let host = self.directory.host(name);
        let who = format!("rank {} ({name}) on host {host}, {}", name.rank, self.attributes.place());
        match self.connections.get(peer) {
            None => format!("{who}, never spoken to"),
            Some(connection) => format!(
                "{who}, queue pair 0x{:06x}, {:?}, {} posted, {} in flight, {} waiting",
                connection.number(),
                connection.phase(),
                connection.queue.posted(),
                connection.queue.in_flight(),
                connection.queue.waiting()
            ),
        }
    }

    /// Returns the endpoint for a port of the process `name`; `None` if this port does not know the process.
    pub fn endpoint(&self, name: PeerName) -> Option<EndpointId> {
        self.connections.of_peer(name)
    }

    /// Returns all endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = EndpointId> + use<A> {
        self.connections.all()
    }

    /// Returns the peer's name; `None` if there is no such endpoint.
    pub fn peer_name(&self, peer: EndpointId) -> Option<PeerName> {
        self.connections.name(peer)
    }

    /// Returns why the connection to `peer` failed; `None` if it has not failed.
    pub fn failure(&self, peer: EndpointId) -> Option<&Failure> {
        self.connections.failure(peer)
    }

    /// Returns the longest time that a connection may take to be made.
    pub fn connect_timeout(&self) -> Duration {
        Duration::from_secs(self.tunables.connect_timeout)
    }

    /// Ends all connections: waiting requests get a bounded time to be posted, then the queue pairs are destroyed.
    /// After that the adapter touches no memory of this process, and no failure is reported.
    pub fn close(&mut self) {
        self.is_closing = true;
        let end = self.adapter.now() + PARTING;
        for peer in self.connections.all() {
            self.drain(peer, end);
            self.drop_connection(peer);
        }
        // No slot will be posted again, so there is no reason to wait for the flushed requests.
        self.destroy_closing();
    }
}

impl<A: Adapter> std::fmt::Debug for Port<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port {} with {} peers", self.attributes.place(), self.connections.count())
    }
}

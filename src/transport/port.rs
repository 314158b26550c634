// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open port: combines the send side, the receive side and the connections; the plugin holds it.
//!
//! Opened in `port/open.rs`. The plugin gives the port to one thread at a time (`&mut`); counters and the protection
//! domain are shared. Nothing here calls back, except the [`Directory`]. This file has the port's definition and the
//! life of a peer; setup grade. The other files:
//! - `send.rs` posts sends, puts, gets and atomics (hot); `waiting.rs` posts requests that had to wait.
//! - `poll.rs` takes completions and reports them (hot); `fail.rs` fails connections, `closing.rs` destroys their queue
//!   pairs.
//! - `connect.rs` drives handshakes and begins connections, `establish.rs` sets their queue pairs, `admission.rs` accepts
//!   or refuses hellos.
//! - `shown.rs` copies the state of peers to the flight recorder.
//! - `partner.rs` finds the port of a peer that is in our fabric, where several may be.
//! - `divert.rs` refuses messages while this port has no link, so that another port carries them; `rail.rs` is for a
//!   caller that chooses among ports itself.
//!
//! Tests: `port/tests.rs`, over a scripted adapter; the device tests in `hw-tests`.

mod admission;
mod closing;
mod connect;
mod divert;
mod error;
mod establish;
mod fail;
mod open;
mod parting;
mod partner;
mod poll;
mod rail;
mod send;
mod shown;
mod waiting;

#[cfg(test)]
mod tests;

pub use error::PortError;
pub use poll::Polled;
pub use send::{Refused, Sent};
pub use waiting::WhenDiverted;

use super::adapter::verbs::Verbs;
use super::adapter::{Adapter, SendSlots as _};
use super::completion::{Batch, Undelivered};
use super::connections::Connections;
use super::connections::admission::Admission;
use super::connections::closing::Closing;
use super::connections::failure::Failure;
use super::connections::handshakes::Handshakes;
use super::connections::parted::Parted;
use super::connections::probe::Probes;
use super::kept::Kept;
use super::rx::Rx;
use super::tx::Tx;
use super::work_request::{EndpointId, Immediate};
use crate::counters::{Counters, add};
use crate::events::SourceId;
use crate::peer::PeerName;
use crate::select::PortChoice;
use crate::select::address::{PortAddress, PortEntry};
use crate::tunables::Tunables;
use ibex_ffi::verbs::{Access, LocalSpan, WorkCompletion};
use std::sync::Arc;
use std::time::Duration;

/// What the engine asks the upper layer about peers. Called while the port is borrowed: it must not call the port.
pub trait Directory: Send {
    /// What `peer` published of its port numbered `port`; `None` where it published none, or there is no such process.
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry>;
    /// The ports of `peer` that this process' port numbered `port` may be connected to, best first
    /// ([`crate::select::partners`]). Fewer than two: there is no choice.
    fn partners(&self, _peer: PeerName, _port: u8) -> Vec<u8> {
        Vec::new()
    }
    /// The name of the host `peer` runs on, for messages.
    fn host(&self, peer: PeerName) -> String;
    /// How much a user wants to know (`btl_ibex_verbose`), now.
    fn verbosity(&self) -> u64 {
        0
    }
    /// A line for a user who wants to know more. It is not called where none does.
    fn tell(&self, _line: &str) {}
}

/// How a port is to be used.
pub struct Setup {
    /// Its place among the ports this process publishes.
    pub index: u8,
    /// This process.
    pub me: PeerName,
    /// Processes of the job on this host.
    pub processes: u32,
    /// Ports that this process opens, this one among them: they share out its receive slots.
    pub ports: u32,
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
    /// Whether it gathers a message from two spans. The least that an adapter may do is one.
    pub gathers: bool,
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

    /// What peers may do through a queue pair. An adapter without atomics need not take the right to them: mlx5 refuses
    /// it, to every queue pair that also answers reads.
    pub(super) fn access(&self) -> Access {
        match self.atomics {
            Atomics::None => Access::RIGHTS.difference(Access::REMOTE_ATOMIC),
            Atomics::Adapter | Atomics::Host => Access::RIGHTS,
        }
    }
}

/// How long requests that wait may hold up the end of a connection, or of all.
const PARTING: Duration = Duration::from_millis(100);

/// After how many looks the device is asked for asynchronous events: a system call each time. Counted, because a look
/// must not cost a reading of the clock.
const ASYNC_INTERVAL: u32 = 4096;

/// After how many looks the clock is read, and the device asked where [`ASYNC_PERIOD`] has passed: where processes take
/// turns on a processor, a poll takes as long as the others let it.
const CLOCK_INTERVAL: u32 = 16;

/// About as long as so many looks take that nothing holds up.
const ASYNC_PERIOD: Duration = Duration::from_millis(5);

/// As how many polls one counts that finds nothing, on the way to the next look after connections. Who has messages to
/// take is not held up by looks; who waits, or seldom asks, answers a peer that wants to connect as soon as ever.
const EMPTY_POLL: u32 = 16;

/// At most so often the counts are shown in the flight recorder's file, nanoseconds; looked at as often as that.
const COUNTS_INTERVAL: u64 = 100_000_000;
/// What seldom comes out of the completion queue, and is dealt with after the batch it came in.
#[derive(Debug)]
enum Exceptional {
    /// A request that did not succeed.
    Failed(WorkCompletion),
    /// A message that is not ibex's.
    Malformed { slot: u32 },
    /// A message that came while handshakes were under way, the last word of one of which it may stand for.
    Early { immediate: Immediate, qp_num: u32 },
}

/// Whether a port's peers are diverted.
#[derive(Debug, Default)]
struct Diversion {
    /// The adapter has said that the port has no link.
    is_down: bool,
    /// Some peers are diverted, and new ones are.
    is_on: bool,
}

/// A port in use, on an adapter that is libibverbs but in unit tests.
pub struct Port<A: Adapter = Verbs> {
    // Fields are dropped in this order: queue pairs, then queues, then the memory they name.
    connections: Connections<A::QueuePair>,
    closing: Closing<A::QueuePair>,
    handshakes: Handshakes<A::Carriers>,
    cq: A::CompletionQueue,
    rx: Rx<A::ReceiveQueue>,
    tx: Tx<A::SendSlots>,
    /// Slots of the plugin's.
    send_slots: Vec<A::SendSlots>,
    adapter: A,

    // Hot: what a poll reads.
    /// Polls until connections are looked after, of which an empty one counts as [`EMPTY_POLL`].
    countdown: u32,
    undelivered: Undelivered,
    /// Completions of the poll that is under way that seldom come.
    exceptional: Vec<Exceptional>,
    counters: Arc<Counters>,

    // Setup.
    /// Polls between two looks while nobody is being connected.
    look_pause: u32,
    /// Polls between this look and the last one.
    look_interval: u32,
    /// Polls until the last look, and those of them that found nothing.
    polls_at_look: [u64; 2],
    /// Looks until the device is asked for asynchronous events.
    until_async: u32,
    /// When that is by the clock.
    async_due: Duration,
    /// The place of the endpoint that the flight recorder is shown next.
    next_shown: u32,
    probes: Probes,
    /// Peers parted from that are still connected.
    parted: Vec<Parted>,
    admission: Admission,
    diversion: Diversion,
    /// For a caller with several ports.
    kept: Kept,
    /// Why connections failed, for who has not been told yet.
    untold: Vec<String>,
    attributes: Attributes,
    /// The largest message that may wait in memory of no registration, bytes.
    bounce_size: u32,
    directory: Box<dyn Directory>,
    tunables: Tunables,
    choice: PortChoice,
    /// Requests that a queue pair takes.
    depth: u32,
    is_closing: bool,
    /// The source of the adapter's events, where it stamps completions.
    source: Option<SourceId>,
}

impl<A: Adapter> Port<A> {
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

    /// Its counts, which any thread may read.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Where this port is reached.
    #[must_use]
    pub fn address(&self) -> &PortAddress {
        &self.handshakes.identity().address
    }

    /// What this port publishes about itself.
    #[must_use]
    pub fn entry(&self) -> PortEntry {
        self.handshakes.entry()
    }

    /// Its place among the ports that this process publishes.
    fn index(&self) -> u8 {
        self.handshakes.identity().port
    }

    /// Registers `count` more send slots of `size` bytes each. They are the caller's until the port is dropped. Pending
    /// grade.
    ///
    /// # Errors
    /// [`PortError`] where memory, or the limit of locked memory, does not suffice.
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

    /// The endpoint for the port numbered `remote_port` of the peer `name`: a new one, or the one that the peer's
    /// handshake already made. Setup.
    pub fn peer(&mut self, name: PeerName, remote_port: u8) -> EndpointId {
        let remote_port = self.answering(name, remote_port);
        self.connections.learn(name, remote_port, self.diversion.is_on)
    }

    /// Gives a peer up: what waits for it is dropped, its queue pair is destroyed when the adapter has let go of all
    /// that was posted to it. Polls look after that. Setup.
    pub fn forget(&mut self, peer: EndpointId) {
        if self.connections.give_up(peer) {
            self.drain(peer, self.adapter.now() + PARTING);
            self.drop_connection(peer);
            self.connections.forget_name(peer);
        }
    }

    /// Whether the upper layer has given the peer up: what fails then is nobody's concern.
    #[must_use]
    pub fn is_forgotten(&self, to: EndpointId) -> bool {
        self.connections.is_forgotten(to)
    }

    /// Polls until nothing waits to be posted to a connected peer any more, at most until `end`. What was posted is the
    /// adapter's to deliver; it is not waited for, because a peer that has ended already acknowledges nothing.
    fn drain(&mut self, peer: EndpointId, end: Duration) {
        let waits = |port: &Self| {
            port.connections.get(peer).is_some_and(|connection| connection.is_made() && connection.queue.waiting() > 0)
        };
        let mut held = Undelivered::default();
        while waits(self) && self.adapter.now() < end {
            let mut batch = Batch::new();
            if self.poll_watched(&mut batch) > 0 {
                held.hold(&batch, |_| false);
            }
        }
        // What came meanwhile is still to be delivered.
        self.undelivered.append(&mut held);
    }

    /// An endpoint in words: who, where, by which queue pair, how it stands.
    #[must_use]
    pub fn describe(&self, peer: EndpointId) -> String {
        let Some(name) = self.connections.name(peer) else {
            return format!("no endpoint {}", peer.index());
        };
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

    /// The peer's name; `None` where there is no such endpoint.
    #[must_use]
    pub fn peer_name(&self, peer: EndpointId) -> Option<PeerName> {
        self.connections.name(peer)
    }

    /// Why the connection to `peer` failed; `None` while it has not.
    #[must_use]
    pub fn failure(&self, peer: EndpointId) -> Option<&Failure> {
        self.connections.failure(peer)
    }

    /// Ends all connections: gives what still waits a bounded time to be posted, then destroys the queue pairs. The
    /// adapter touches no memory of this process afterwards. Failures are not reported any more.
    pub fn close(&mut self) {
        self.is_closing = true;
        let end = self.adapter.now() + PARTING;
        for peer in self.connections.all() {
            self.drain(peer, end);
            self.drop_connection(peer);
        }
        // No slot will be posted any more, so that there is nothing to wait for.
        self.destroy_closing();
    }
}

impl<A: Adapter> std::fmt::Debug for Port<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port {} with {} peers", self.attributes.place(), self.connections.count())
    }
}

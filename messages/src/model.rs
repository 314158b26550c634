// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structures of a [`Job`]. Plain data: the reader of traces fills them, commands and exports read them.
//!
//! Ranks, ports, communicators and messages are indexes into the vectors of the job. Unknown values are `None`, never
//! 0.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// A job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its name, from the launcher.
    pub name: String,
    /// Processes, ordered by world and rank.
    pub ranks: Vec<Rank>,
    /// Ports of adapters, by rank and index in it.
    pub ports: Vec<Port>,
    /// Communicators, in the order of their creation.
    pub communicators: Vec<Communicator>,
    /// Messages, ordered by their first known time.
    pub messages: Vec<Message>,
    /// MPI calls in which processes could wait for others, by rank; those of a thread ordered by their begins.
    pub calls: Vec<Call>,
    /// The names of the functions that were called: `MPI_Wait`.
    pub functions: Vec<String>,
    /// Fragments of messages after the first, by rank.
    pub fragments: Vec<Fragment>,
    /// Searches of the matching queues, by rank; none if they are not recorded.
    pub searches: Vec<Search>,
    /// Times in which processes recorded nothing, by rank.
    pub pauses: Vec<Pause>,
    /// Puts, gets and atomic operations, ordered by their begins.
    pub operations: Vec<Operation>,
    /// Connections, ordered by their begins.
    pub connections: Vec<Connection>,
    /// Rare events that cost time, ordered by time.
    pub incidents: Vec<Incident>,
    /// Lost events.
    pub losses: Vec<Loss>,
    /// Unreadable or missing data and the consequences, one sentence each.
    pub faults: Vec<String>,
    /// The first time and the last.
    pub span: Option<(Time, Time)>,
}

/// A process of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// Which `MPI_COMM_WORLD`: 0 is the first, others were spawned.
    pub world: u32,
    /// The rank in it.
    pub rank: u32,
    /// Its host; empty if it has no trace and is known only from others.
    pub host: String,
    /// The process's number there.
    pub pid: u32,
    /// The program.
    pub program: String,
    /// Threads with events: number and name, which may be empty.
    pub threads: Vec<(u32, String)>,
    /// Error bound of its clock relative to `ranks[0]`, nanoseconds; `None`: not measured.
    pub clock_error: Option<i64>,
    /// Whether its trace extends to the end of the process.
    pub is_whole: bool,
    /// Whether its trace has all MPI calls in which it could wait for others.
    pub has_calls: bool,
}

/// An MPI call in which a process could wait for others; of nested calls, the outermost. Those of a thread do not
/// overlap in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Whose.
    pub rank: u32,
    /// The thread of the call.
    pub thread: u32,
    /// What was called, an index in [`Job::functions`].
    pub function: u32,
    /// It begins.
    pub begun: Time,
    /// It returns; `None` if it had not when the trace ended.
    pub ended: Option<Time>,
}

/// A fragment of a message that follows the first: it has gone or come between the begin and the end of the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragment {
    /// Who saw it.
    pub rank: u32,
    /// The thread that did.
    pub thread: u32,
    /// The message, an index in [`Job::messages`].
    pub message: u32,
    /// Whether the receiver saw it.
    pub is_received: bool,
    /// When.
    pub time: Time,
    /// Whether the adapter's clock says so, not the host's.
    pub is_by_adapter: bool,
    /// Its offset in the message and its bytes, which only events of transfers tell.
    pub part: Option<(u64, u64)>,
}

/// A queue of the matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// Receives whose messages have not come.
    Posted,
    /// Messages whose receives have not been called.
    Unexpected,
}

/// A search of a queue: of the posted receives for a message, or of the unexpected messages for a receive or a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// Whose.
    pub rank: u32,
    /// The thread that searches.
    pub thread: u32,
    /// Where.
    pub queue: Queue,
    /// The message's sender, or that which the receive asks for, a rank in the communicator; negative: any.
    pub peer: i32,
    /// Its tag; -1: any.
    pub tag: i32,
    /// How long the queue is.
    pub length: Option<u32>,
    /// The message that it is for, or that its receive gets later: an index in [`Job::messages`]. None of a probe.
    pub message: Option<u32>,
    /// Whether it finds one; unknown of a probe that leaves the message where it is.
    pub is_found: Option<bool>,
    /// It begins.
    pub begun: Time,
    /// It ends.
    pub ended: Time,
}

/// A time in which a process recorded nothing but communicators and the ends of calls, because its program wanted that
/// (`MPI_Pcontrol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whose.
    pub rank: u32,
    /// The recording stops.
    pub from: Time,
    /// It goes on; `None` if it did not.
    pub to: Option<Time>,
}

/// A port that a rank has opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Whose.
    pub rank: u32,
    /// Its number among those of the rank.
    pub index: u32,
    /// The adapter as verbs name it, and the number of the port there: `mlx5_0`, 1.
    pub device: String,
    /// See `device`.
    pub number: u32,
    /// The GID in use, as text; empty if unknown.
    pub gid: String,
}

/// A communicator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Communicator {
    /// Its number on the wire. Another communicator may reuse it after this one is freed.
    pub context: u32,
    /// Its members in the order of their ranks; indexes in [`Job::ranks`]. For an intercommunicator, those of one side.
    pub members: Vec<u32>,
    /// The members of the other side of an intercommunicator; empty otherwise.
    pub remote: Vec<u32>,
    /// `MPI_COMM_WORLD`, its name from a tool or the application, or empty.
    pub name: String,
}

/// The protocol that carried a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Inline in the work request.
    Inline,
    /// Copied into a buffer of ibex, sent, and copied out.
    Copied,
    /// Rendezvous: the receiver reads the message.
    Read,
    /// Rendezvous: sent in copied fragments.
    Fragments,
    /// Through shared memory of the host.
    SharedMemory,
    /// From a process to itself: copied once.
    Loopback,
}

/// The reason for a message's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// By its size.
    Size,
    /// The send is synchronous (`MPI_Ssend`).
    Synchronous,
    /// Its data is not contiguous.
    Gaps,
    /// Its memory could not be registered with the adapter.
    NotRegistered,
    /// Flow control: the receiver's memory for unexpected messages is full.
    HeldBack,
    /// The adapter does not support a better protocol.
    Adapter,
    /// The receiver is the sender.
    Loopback,
    /// The receiver is on this host.
    SameHost,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The sender, an index in [`Job::ranks`].
    pub sender: u32,
    /// The receiver, an index in [`Job::ranks`].
    pub receiver: u32,
    /// Its communicator, an index in [`Job::communicators`].
    pub communicator: u32,
    /// Its tag; negative in collective operations.
    pub tag: i32,
    /// Its bytes.
    pub bytes: u64,
    /// Its protocol.
    pub protocol: Option<Protocol>,
    /// The reason for the protocol.
    pub reason: Option<Reason>,
    /// The sender's port, an index in [`Job::ports`]; the first of several rails.
    pub port: Option<u32>,
    /// The sender's queue pair.
    pub queue_pair: Option<u32>,
    /// The number of ports that carried it.
    pub rails: u32,
    /// What the sender saw.
    pub send: Option<SendSide>,
    /// What the receiver saw.
    pub receive: Option<ReceiveSide>,
}

/// What a sender saw of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SendSide {
    /// The number of the request in its process.
    pub request: u64,
    /// The thread of the call.
    pub thread: u32,
    /// The call begins.
    pub activated: Option<Time>,
    /// The first bytes leave.
    pub begun: Option<Time>,
    /// The adapter has the last bytes.
    pub ended: Option<Time>,
    /// The request is done.
    pub completed: Option<Time>,
    /// The caller is told so.
    pub notified: Option<Time>,
    /// In which call of MPI, a place in [`Job::calls`]: that which waited for it.
    pub call: Option<u32>,
}

/// What a receiver saw of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveSide {
    /// The number of the message in its process.
    pub message: u64,
    /// The number of the receive request; 0 if there is none.
    pub request: u64,
    /// The thread of the call.
    pub thread: u32,
    /// The message or its rendezvous request arrives.
    pub arrived: Option<Time>,
    /// It enters the unexpected message queue.
    pub unexpected: Option<Time>,
    /// The receive's call begins.
    pub activated: Option<Time>,
    /// The receive enters the posted receive queue.
    pub posted: Option<Time>,
    /// Message and receive are matched.
    pub matched: Option<Time>,
    /// The first bytes are in place.
    pub begun: Option<Time>,
    /// The last bytes are in place.
    pub ended: Option<Time>,
    /// The request is done.
    pub completed: Option<Time>,
    /// The caller is told so.
    pub notified: Option<Time>,
    /// In which call of MPI, a place in [`Job::calls`]: that which waited for it.
    pub call: Option<u32>,
}

/// The reason of a wait. The first three are waits in an MPI call, as Scalasca defines them; `late.rs` says when they
/// and late waits begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// The receiver waits, and the send has not been called.
    LateSender,
    /// The sender waits, and the receive has not been called.
    LateReceiver,
    /// The sender waits, both have been called, but the receiver is outside MPI, so the message makes no progress.
    NoProgress,
    /// The message waits: its data is at the receiver, which has called its receive and does not ask for it yet. No
    /// process waits.
    LateWait,
    /// A connection in progress.
    Connection,
    /// Room in a queue of the adapter.
    Queue,
}

/// A wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Its reason.
    pub kind: WaitKind,
    /// Its begin.
    pub from: Time,
    /// Its end.
    pub to: Time,
}

/// A one-sided operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// The initiator.
    pub rank: u32,
    /// The target.
    pub peer: u32,
    /// What it is.
    pub kind: OperationKind,
    /// Bytes.
    pub bytes: u64,
    /// ibex accepted it.
    pub begun: Option<Time>,
    /// It is complete, or has failed.
    pub completed: Option<Time>,
    /// The adapter's status (`enum ibv_wc_status`): 0 is success.
    pub status: u32,
}

/// What a one-sided operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// An RDMA write.
    Put,
    /// An RDMA read.
    Get,
    /// An atomic operation.
    Atomic,
}

/// A connection between two queue pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// The process of this side.
    pub rank: u32,
    /// The other process.
    pub peer: u32,
    /// The port, an index in [`Job::ports`].
    pub port: Option<u32>,
    /// This side's queue pair.
    pub queue_pair: u32,
    /// The other side's.
    pub remote_queue_pair: u32,
    /// ibex begins to connect.
    pub begun: Option<Time>,
    /// It is ready for messages.
    pub established: Option<Time>,
    /// It failed.
    pub failed: Option<Time>,
    /// The adapter's status (`enum ibv_wc_status`) with which it failed; 0 otherwise.
    pub status: u32,
}

/// A rare event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// Where.
    pub rank: u32,
    /// When.
    pub time: Time,
    /// What.
    pub kind: IncidentKind,
    /// The other process, if any.
    pub peer: Option<u32>,
    /// The port, an index in [`Job::ports`], if any.
    pub port: Option<u32>,
    /// Requests that wait, bytes of memory, or the adapter's number of the event, as `kind` says.
    pub value: u64,
}

/// What an [`Incident`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    /// A request cannot be posted; `value` requests wait.
    QueuedBegin,
    /// A queued request is posted; `value` requests still wait.
    QueuedEnd,
    /// This process had no receive posted.
    ReceiverNotReady,
    /// `value` bytes of memory were registered.
    RegistrationMiss,
    /// `value` bytes of memory were deregistered.
    RegistrationEvict,
    /// An asynchronous event of the adapter.
    DeviceAsync,
    /// An asynchronous event of a port.
    PortAsync,
}

/// Events that were lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Where.
    pub rank: u32,
    /// The event's name.
    pub event: String,
    /// How many.
    pub count: u64,
}

impl Job {
    /// The name of the function that was called.
    #[must_use]
    pub fn function(&self, call: &Call) -> &str {
        self.functions.get(call.function as usize).map_or("MPI call", String::as_str)
    }
}

impl Message {
    /// All its known times.
    pub fn moments(&self) -> impl Iterator<Item = Time> + '_ {
        let send = self.send.iter().flat_map(|s| [s.activated, s.begun, s.ended, s.completed, s.notified]);
        let receive = self.receive.iter().flat_map(|r| {
            [r.arrived, r.unexpected, r.activated, r.posted, r.matched, r.begun, r.ended, r.completed, r.notified]
        });
        send.chain(receive).flatten()
    }

    /// Nanoseconds from the departure of the first bytes to the arrival, with the error of both clocks. `None` also for
    /// a rendezvous whose bytes leave after the request has arrived, because no event tells when the request left.
    #[must_use]
    pub fn delay(&self) -> Option<i64> {
        let delay = self.receive?.arrived?.since(self.send?.begun?);
        match self.protocol {
            Some(Protocol::Fragments | Protocol::Loopback) => None,
            None if delay < 0 => None,
            _ => Some(delay),
        }
    }
}

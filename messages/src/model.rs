// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structures of a [`Job`]. The reader of traces (`read/`) fills them. Ranks, ports, communicators and messages are
//! indexes of the job's vectors. Unknown values are `None`, never 0.

use ibex_trace::{TAGGED, UNTAGGED};
use serde::{Deserialize, Serialize};

use crate::time::Time;

/// An enumeration whose values have names for people.
macro_rules! named {
    ($(#[$of:meta])* $name:ident: $($(#[$doc:meta])* $variant:ident $text:literal)*) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All values, by their numbers.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The names of all values, by their numbers.
            pub const NAMES: &[&str] = &[$($text),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                $name::NAMES[self as usize]
            }
        }
    };
}

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
    /// Names of the functions that were called, such as `MPI_Wait`.
    pub functions: Vec<String>,
    /// Fragments of messages after the first, by rank.
    pub fragments: Vec<Fragment>,
    /// Searches of the matching queues, by rank; none if they are not recorded.
    pub searches: Vec<Search>,
    /// Cancelled receives, which have no message, each with its process (an index in [`Job::ranks`]), ordered by rank.
    pub cancelled: Vec<(u32, ReceiveSide)>,
    /// Pauses of the recording, by rank.
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
    /// Number of its `MPI_COMM_WORLD`: 0 is the first, others were spawned.
    pub world: u32,
    /// Rank in that communicator.
    pub rank: u32,
    /// Its host; empty if it has no trace and is known only from others.
    pub host: String,
    /// Its process number on the host.
    pub pid: u32,
    /// The program.
    pub program: String,
    /// Numbers of its threads with events.
    pub threads: Vec<u32>,
    /// Error bound of its clock relative to `ranks[0]`, nanoseconds; `None`: not measured.
    pub clock_error: Option<i64>,
    /// Whether its trace extends to the end of the process.
    pub is_whole: bool,
    /// Whether its trace has all MPI calls in which it could wait for others.
    pub has_calls: bool,
}

/// The outermost MPI call in which a process could wait for others. The calls of a thread do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The calling process.
    pub rank: u32,
    /// The calling thread.
    pub thread: u32,
    /// The function, an index in [`Job::functions`].
    pub function: u32,
    /// Time at which the call begins.
    pub begun: Time,
    /// Time at which the call returns; `None`: not before the end of the trace; `begun`: the event of its end was lost.
    pub ended: Option<Time>,
}

/// A fragment of a message after the first, sent or received between the begin and the end of the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragment {
    /// The process that recorded it.
    pub rank: u32,
    /// The thread that recorded it.
    pub thread: u32,
    /// The message, an index in [`Job::messages`].
    pub message: u32,
    /// Whether the receiver recorded it.
    pub is_received: bool,
    /// Time at which it was sent or received.
    pub time: Time,
    /// Whether `time` is from the adapter's clock rather than the host's.
    pub is_by_adapter: bool,
    /// Offset in the message and length in bytes; only transfer events have them.
    pub part: Option<(u64, u64)>,
}

named! {
    /// A matching queue.
    Queue:
    /// The posted receive queue.
    Posted "posted"
    /// The unexpected message queue.
    Unexpected "unexpected"
}

/// A search of a queue: of the posted receives for a message, or of the unexpected messages for a receive or a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// The searching process.
    pub rank: u32,
    /// The searching thread.
    pub thread: u32,
    /// The queue.
    pub queue: Queue,
    /// The sender of the message, or the source of the receive or probe: a rank in the communicator; negative: any.
    pub peer: i32,
    /// The tag of the message, receive or probe; -1: any. That of libfabric's has 64 bits, see
    /// [`Communicator::tag_text`].
    pub tag: i64,
    /// Length of the queue.
    pub length: Option<u32>,
    /// Index in [`Job::messages`] of the message that was found, or that the receive gets later; `None` for a probe.
    pub message: Option<u32>,
    /// Whether the search finds a message or receive; `None`: unknown (a probe leaves the message there).
    pub is_found: Option<bool>,
    /// Time at which the search begins.
    pub begun: Time,
    /// Time at which the search ends.
    pub ended: Time,
}

/// A time in which the program had stopped the recording (`MPI_Pcontrol`), except of communicators and ends of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The process.
    pub rank: u32,
    /// Time at which the recording stops.
    pub from: Time,
    /// Time at which the recording goes on; `None`: it did not.
    pub to: Option<Time>,
}

/// A port that a rank has opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// The process that opened it.
    pub rank: u32,
    /// Its number among the ports of the rank.
    pub index: u32,
    /// Name of the adapter in libibverbs, such as `mlx5_0`.
    pub device: String,
    /// Number of the port on the adapter, from 1.
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

named! {
    /// The protocol that carried a message.
    Protocol:
    /// Inline in the work request.
    Inline "inline"
    /// Copied into a buffer of ibex, sent, and copied out.
    Copied "copied"
    /// Rendezvous: the receiver reads the message.
    Read "read"
    /// Rendezvous: sent in copied fragments.
    Fragments "fragments"
    /// Through shared memory of the host.
    SharedMemory "shared memory"
    /// From a process to itself: copied once.
    Loopback "loopback"
}

named! {
    /// The reason for a message's protocol.
    Reason:
    /// By its size.
    Size "size"
    /// The send is synchronous (`MPI_Ssend`).
    Synchronous "synchronous"
    /// Its data is not contiguous.
    Gaps "gaps"
    /// Its memory could not be registered with the adapter.
    NotRegistered "not registered"
    /// Flow control: the receiver's memory for unexpected messages is full.
    HeldBack "held back"
    /// The adapter does not support a better protocol.
    Adapter "adapter"
    /// The receiver is the sender.
    Loopback "loopback"
    /// The receiver is on this host.
    SameHost "same host"
}

impl Communicator {
    /// Whether it stands for libfabric's messages, whose tags have 64 bits.
    pub fn is_of_libfabric(&self) -> bool {
        matches!(self.context, TAGGED | UNTAGGED)
    }

    /// Returns a tag as people read it: of MPI a number, of libfabric's messages hexadecimal, because an MPI packs
    /// several numbers into one.
    pub fn tag_text(&self, tag: i64) -> String {
        if self.is_of_libfabric() { format!("{tag:#x}") } else { tag.to_string() }
    }
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
    /// Its tag; negative in collective operations. That of libfabric's has 64 bits, see [`Communicator::tag_text`].
    pub tag: i64,
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
    /// The sender's part; `None` if its events are missing.
    pub send: Option<SendSide>,
    /// The receiver's part; `None` if its events are missing.
    pub receive: Option<ReceiveSide>,
}

/// Says which times of a side the adapter's clock gave. The host's clock gave all others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByAdapter {
    /// Whether it stamped `arrived`.
    pub arrived: bool,
    /// Whether it stamped `begun`.
    pub begun: bool,
    /// Whether it stamped `ended`.
    pub ended: bool,
}

/// The sender's part of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SendSide {
    /// The number of the request in its process.
    pub request: u64,
    /// The thread of the call.
    pub thread: u32,
    /// Time at which the call begins.
    pub activated: Option<Time>,
    /// Time at which the rendezvous request leaves; `None`: there is none.
    pub announced: Option<Time>,
    /// Time at which the first bytes leave; equal to `ended` for a message that the receiver reads.
    pub begun: Option<Time>,
    /// Time at which the adapter has the last bytes; if the receiver reads them, at which its answer arrives.
    pub ended: Option<Time>,
    /// The times from the adapter's clock.
    pub by_adapter: ByAdapter,
    /// Time at which the request is complete.
    pub completed: Option<Time>,
    /// Time at which MPI reports the completion to the caller.
    pub notified: Option<Time>,
    /// Time at which MPI frees the request.
    pub freed: Option<Time>,
    /// The MPI call that waited for the request, an index in [`Job::calls`].
    pub call: Option<u32>,
}

/// The receiver's part of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveSide {
    /// The number of the message in its process.
    pub message: u64,
    /// The number of the receive request; 0 if there is none.
    pub request: u64,
    /// The thread of the call.
    pub thread: u32,
    /// Time at which the message or its rendezvous request arrives.
    pub arrived: Option<Time>,
    /// Time at which the message enters the unexpected message queue.
    pub unexpected: Option<Time>,
    /// Time at which the receive's call begins.
    pub activated: Option<Time>,
    /// Time at which the receive enters the posted receive queue.
    pub posted: Option<Time>,
    /// Time at which the receive leaves the posted receive queue.
    pub removed: Option<Time>,
    /// Time at which the receive is cancelled.
    pub cancelled: Option<Time>,
    /// Time at which the message leaves the unexpected message queue.
    pub taken: Option<Time>,
    /// Time at which message and receive are matched.
    pub matched: Option<Time>,
    /// Time at which the first bytes are in the user's buffer, or, by the adapter's clock, at which they arrived.
    pub begun: Option<Time>,
    /// Time at which the last bytes are in the user's buffer, or, by the adapter's clock, at which they arrived.
    pub ended: Option<Time>,
    /// The times from the adapter's clock.
    pub by_adapter: ByAdapter,
    /// Time at which the request is complete.
    pub completed: Option<Time>,
    /// Time at which MPI reports the completion to the caller.
    pub notified: Option<Time>,
    /// Time at which MPI frees the request.
    pub freed: Option<Time>,
    /// The MPI call that waited for the request, an index in [`Job::calls`].
    pub call: Option<u32>,
}

named! {
    /// Why a process waits (found by `late`). The first three are waits in an MPI call, as Scalasca defines them.
    WaitKind:
    /// The receiver waits, and the send has not been called.
    LateSender "late sender"
    /// The sender waits, and the receive has not been called.
    LateReceiver "late receiver"
    /// The sender waits, both have been called, but the receiver is outside MPI, so the message makes no progress.
    NoProgress "no progress"
    /// The data is at the receiver. Its program has called the receive, and does not yet ask for the data.
    LateWait "late wait"
    /// A request waits for a connection.
    Connection "connection"
    /// A request waits for room in a queue of the adapter.
    Queue "queue"
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
    /// Kind of the operation.
    pub kind: OperationKind,
    /// Number of bytes.
    pub bytes: u64,
    /// Time at which ibex accepted the operation.
    pub begun: Option<Time>,
    /// Time at which the operation is complete, or has failed.
    pub completed: Option<Time>,
    /// The adapter's status (`enum ibv_wc_status`): 0 is success.
    pub status: u32,
}

named! {
    /// Kind of a one-sided operation.
    OperationKind:
    /// An RDMA write.
    Put "put"
    /// An RDMA read.
    Get "get"
    /// An atomic operation.
    Atomic "atomic"
}

/// A connection between two queue pairs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// The process of this side.
    pub rank: u32,
    /// The other process.
    pub peer: u32,
    /// The port, an index in [`Job::ports`].
    pub port: Option<u32>,
    /// This side's queue pair.
    pub queue_pair: u32,
    /// The other side's queue pair.
    pub remote_queue_pair: u32,
    /// Time at which ibex begins to connect.
    pub begun: Option<Time>,
    /// Time at which the connection is ready for messages.
    pub established: Option<Time>,
    /// Time at which the connection failed.
    pub failed: Option<Time>,
    /// The adapter's status (`enum ibv_wc_status`) with which the connection failed; 0 otherwise.
    pub status: u32,
}

/// A rare event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// The process.
    pub rank: u32,
    /// Time of the event.
    pub time: Time,
    /// Kind of the event.
    pub kind: IncidentKind,
    /// The other process, if any.
    pub peer: Option<u32>,
    /// The port, an index in [`Job::ports`], if any.
    pub port: Option<u32>,
    /// Number of waiting requests, bytes of memory, or the adapter's number of the event, depending on `kind`.
    pub value: u64,
}

named! {
    /// Kind of an [`Incident`].
    IncidentKind:
    /// A request cannot be posted; `value` requests wait.
    QueuedBegin "request queued"
    /// A queued request is posted; `value` requests still wait.
    QueuedEnd "queued request posted"
    /// This process had no receive posted.
    ReceiverNotReady "receiver not ready"
    /// `value` bytes of memory were registered.
    RegistrationMiss "memory registered"
    /// `value` bytes of memory were deregistered.
    RegistrationEvict "memory deregistered"
    /// An asynchronous event of the adapter.
    DeviceAsync "event of the adapter"
    /// An asynchronous event of a port.
    PortAsync "event of the port"
}

/// Events that were lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// The process.
    pub rank: u32,
    /// Name of the event.
    pub event: String,
    /// Number of lost events.
    pub count: u64,
}

impl Job {
    /// Returns the name of the called function.
    pub fn function(&self, call: &Call) -> &str {
        self.functions.get(call.function as usize).map_or("MPI call", String::as_str)
    }
}

impl SendSide {
    /// Returns the time at which the rendezvous request leaves, or the first bytes if there is none.
    pub fn left(&self) -> Option<Time> {
        self.announced.or(self.begun)
    }

    /// Returns the times at which its phases begin and end, in their usual order.
    pub fn times(&self) -> [Option<Time>; 6] {
        [self.activated, self.announced, self.begun, self.ended, self.completed, self.notified]
    }
}

impl ReceiveSide {
    /// Returns the times at which its phases begin and end, in their usual order.
    pub fn times(&self) -> [Option<Time>; 9] {
        [
            self.arrived,
            self.unexpected,
            self.activated,
            self.posted,
            self.matched,
            self.begun,
            self.ended,
            self.completed,
            self.notified,
        ]
    }
}

impl Message {
    /// Returns all known times of the message.
    pub fn moments(&self) -> impl Iterator<Item = Time> + '_ {
        self.send.iter().flat_map(SendSide::times).chain(self.receive.iter().flat_map(ReceiveSide::times)).flatten()
    }

    /// Returns the nanoseconds from the post of the first bytes, or of the rendezvous request, by the host's clock, to
    /// the arrival, by the adapter's where it stamps, with the error of both ranks' clocks. `None` also if the post of
    /// the rendezvous request is unknown.
    pub fn delay(&self) -> Option<i64> {
        let (arrived, send) = (self.receive?.arrived?, self.send?);
        match self.protocol {
            Some(Protocol::Loopback) => None,
            Some(Protocol::Fragments) => Some(arrived.since(send.announced?)),
            protocol => Some(arrived.since(send.left()?)).filter(|delay| *delay >= 0 || protocol.is_some()),
        }
    }
}

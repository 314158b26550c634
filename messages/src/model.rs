// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structures of a [`Job`]. Plain data: who reads a trace fills them, who shows a job reads them.
//!
//! Ranks, ports, communicators and messages are named by their places in the vectors of the job. What a trace does not
//! say is `None`, never 0.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// What a job did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What its launcher calls it.
    pub name: String,
    /// By world and rank.
    pub ranks: Vec<Rank>,
    /// Ports of adapters, by rank and index in it.
    pub ports: Vec<Port>,
    /// In the order in which they were made.
    pub communicators: Vec<Communicator>,
    /// By the first moment that is known of each.
    pub messages: Vec<Message>,
    /// Calls of MPI in which processes could wait for others, by rank.
    pub calls: Vec<Call>,
    /// Puts, gets and atomic operations, by their begins.
    pub operations: Vec<Operation>,
    /// By their begins.
    pub connections: Vec<Connection>,
    /// What is rare and costs time, by time.
    pub incidents: Vec<Incident>,
    /// Events that were lost, and of which therefore something may lack here.
    pub losses: Vec<Loss>,
    /// What could not be read, and what it means for what is shown: a sentence each.
    pub faults: Vec<String>,
    /// The first moment and the last.
    pub span: Option<(Time, Time)>,
}

/// A process of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// Which `MPI_COMM_WORLD`: 0 is the first, others were spawned.
    pub world: u32,
    /// The rank in it.
    pub rank: u32,
    /// Its host; empty where it has left no trace and others alone tell of it.
    pub host: String,
    /// The process's number there.
    pub pid: u32,
    /// The program.
    pub program: String,
    /// Threads in which something happened, by number; each its name, which may be empty.
    pub threads: Vec<(u32, String)>,
    /// By how much its times may be wrong against those of `ranks[0]`, nanoseconds; `None`: nobody has measured it.
    pub clock_error: Option<i64>,
    /// Whether its trace goes up to the end of the process.
    pub is_whole: bool,
    /// Whether its trace has all calls of MPI in which it could wait for others.
    pub has_calls: bool,
}

/// A process was in a call of MPI in which it could wait for others; of calls within each other, in the outermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Whose.
    pub rank: u32,
    /// It begins.
    pub begun: Time,
    /// It returns; `None` of one that had not when the trace ended.
    pub ended: Option<Time>,
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
    /// The GID in use, in text; empty where it is not known.
    pub gid: String,
}

/// A communicator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Communicator {
    /// Its number on the wire. Another may have it once this is freed.
    pub context: u32,
    /// Its members by their ranks in it; places in [`Job::ranks`]. Of an intercommunicator, those of one side.
    pub members: Vec<u32>,
    /// Of an intercommunicator, those of the other side; empty otherwise.
    pub remote: Vec<u32>,
    /// `MPI_COMM_WORLD`, what a tool or the application called it, or empty.
    pub name: String,
}

/// How the bytes of a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// In the send request itself.
    Inline,
    /// Copied into a buffer of ibex, sent, and copied out.
    Copied,
    /// Announced, and read by the receiver.
    Read,
    /// Announced, and written by the sender where the receiver said.
    Written,
    /// Announced, and sent in copied pieces.
    Pieces,
    /// Written at once: the receiver had said where.
    ReceiverFirst,
    /// Through the memory that the processes of a host share.
    SharedMemory,
    /// To oneself: copied once.
    Oneself,
}

/// Why a message went as it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// By its size.
    Size,
    /// The call asks for an answer of the receiver (`MPI_Ssend`).
    Synchronous,
    /// Its datatype has gaps.
    Gaps,
    /// Its memory could not be registered with the adapter.
    NotRegistered,
    /// The receiver has so much that nobody has asked for that senders are held back.
    HeldBack,
    /// The adapter cannot do what would be better.
    Adapter,
    /// The receiver is this process.
    Oneself,
    /// The receiver is on this host.
    SameHost,
    /// The receiver had said where.
    Offered,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who sends it.
    pub sender: u32,
    /// Who gets it.
    pub receiver: u32,
    /// In which communicator.
    pub communicator: u32,
    /// Its tag; negative in collective operations.
    pub tag: i32,
    /// Its bytes.
    pub bytes: u64,
    /// How it went.
    pub protocol: Option<Protocol>,
    /// Why so.
    pub reason: Option<Reason>,
    /// The sender's port, a place in [`Job::ports`]; of several rails the first.
    pub port: Option<u32>,
    /// The sender's queue pair.
    pub queue_pair: Option<u32>,
    /// By how many ports it went.
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
    /// The first bytes go.
    pub begun: Option<Time>,
    /// The adapter has the last.
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
    /// That of the request that took it; 0 where nobody did.
    pub request: u64,
    /// The thread of the call.
    pub thread: u32,
    /// The message comes, or its announcement.
    pub arrived: Option<Time>,
    /// It goes to the queue of unexpected messages.
    pub unexpected: Option<Time>,
    /// The receive's call begins.
    pub activated: Option<Time>,
    /// The receive goes to the queue of posted ones.
    pub posted: Option<Time>,
    /// Both have found each other.
    pub matched: Option<Time>,
    /// The first bytes are put where they belong.
    pub begun: Option<Time>,
    /// The last are there.
    pub ended: Option<Time>,
    /// The request is done.
    pub completed: Option<Time>,
    /// The caller is told so.
    pub notified: Option<Time>,
    /// In which call of MPI, a place in [`Job::calls`]: that which waited for it.
    pub call: Option<u32>,
}

/// What a process waited for. The first three are waits in a call of MPI, as Scalasca defines them; `late.rs` says when each
/// begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// The receiver waits, and the send has not been called.
    LateSender,
    /// The sender waits, and the receive has not been called.
    LateReceiver,
    /// The sender waits, both have been called, and the receiver is not in MPI: the message makes no progress.
    NoProgress,
    /// A connection that was being made.
    Connection,
    /// Room in a queue of the adapter.
    Queue,
}

/// A wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// For what.
    pub kind: WaitKind,
    /// From when.
    pub from: Time,
    /// Up to when.
    pub to: Time,
}

/// A one-sided operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Who began it.
    pub rank: u32,
    /// Whose memory it is on.
    pub peer: u32,
    /// What it is.
    pub kind: OperationKind,
    /// Bytes.
    pub bytes: u64,
    /// ibex accepted it.
    pub begun: Option<Time>,
    /// It is done, or has failed.
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
    /// Whose side this is.
    pub rank: u32,
    /// To whom.
    pub peer: u32,
    /// By which port, a place in [`Job::ports`].
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

/// Something rare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// Where.
    pub rank: u32,
    /// When.
    pub time: Time,
    /// What.
    pub kind: IncidentKind,
    /// The other process, where there is one.
    pub peer: Option<u32>,
    /// The port, a place in [`Job::ports`], where there is one.
    pub port: Option<u32>,
    /// Requests that wait, bytes of memory, or the adapter's number of the event, as `kind` says.
    pub value: u64,
}

/// What an [`Incident`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    /// A request cannot be posted now; so many wait.
    QueuedBegin,
    /// A queued request is posted; so many still wait.
    QueuedEnd,
    /// This process had no receive posted.
    ReceiverNotReady,
    /// Memory of so many bytes was registered.
    RegistrationMiss,
    /// Memory of so many bytes was deregistered.
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

impl Message {
    /// All moments that are known of it.
    pub fn moments(&self) -> impl Iterator<Item = Time> + '_ {
        let send = self.send.iter().flat_map(|s| [s.activated, s.begun, s.ended, s.completed, s.notified]);
        let receive = self.receive.iter().flat_map(|r| {
            [r.arrived, r.unexpected, r.activated, r.posted, r.matched, r.begun, r.ended, r.completed, r.notified]
        });
        send.chain(receive).flatten()
    }

    /// Nanoseconds from the first bytes' leaving to the arrival; its error is those of both clocks. `None` also of a
    /// message whose bytes go when its announcement has arrived: nothing tells when that left.
    #[must_use]
    pub fn delay(&self) -> Option<i64> {
        let delay = self.receive?.arrived?.since(self.send?.begun?);
        match self.protocol {
            Some(Protocol::Pieces | Protocol::Written | Protocol::Oneself) => None,
            None if delay < 0 => None,
            _ => Some(delay),
        }
    }
}

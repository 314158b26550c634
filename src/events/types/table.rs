// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of all event types ([`TABLE`]), and for each type a structure with which a site raises it: [`XferBegin`]
//! and so on (`elements.rs`), which implement [`Payload`]. The rows of matching events are in `matching_table.rs`. A
//! row's vocabulary is in `event_type.rs`; `page.rs` makes docs/events.md from the table. Tools see each type as
//! `ibex_<name>`. Grade: setup. Threads: plain data. Tests: `tests/table.rs` (`cargo test -p ibex
//! events::tests::table`; `IBEX_WRITE_DOCS=1` in front rewrites the page).

use super::elements::{displacements, elements, extent, put};
use super::event_type::{Element, ElementType, EventType, StampedBy, TypeId, WORDS, Words};
use super::instance::EventInstance;
use super::matching_table::{self, MATCHING_TYPES};
use crate::events::SourceId;

/// The elements of one event, ready to be recorded.
pub trait Payload {
    /// Type of the event.
    const TYPE: TypeId;
    /// The elements at their displacements.
    fn words(&self) -> Words;
}

pub(in crate::events) const COUNT: usize = RAISED + MATCHING_TYPES;

/// All event types. The position of a type never changes while a process lives.
pub static TABLE: [EventType; COUNT] = rows();

const fn rows() -> [EventType; COUNT] {
    let mut rows = [RAISED_ROWS[0]; COUNT];
    let mut index = 0;
    while index < COUNT {
        rows[index] = if index < RAISED { RAISED_ROWS[index] } else { matching_table::row(index - RAISED) };
        index += 1;
    }
    rows
}

impl TypeId {
    /// The matching type at this position among the matching types (`matching_table.rs`); `None` beyond their end.
    pub fn of_matching(place: usize) -> Option<TypeId> {
        TypeId::from_index(RAISED + place)
    }

    /// Position among the matching types, if this is one.
    #[inline]
    pub const fn place_in_matching(self) -> Option<usize> {
        self.index().checked_sub(RAISED)
    }

    /// The type at `index` of the table; `None` beyond its end.
    pub fn from_index(index: usize) -> Option<TypeId> {
        (index < TABLE.len()).then_some(TypeId(index as u16))
    }

    /// Row of this type.
    pub fn row(self) -> &'static EventType {
        &TABLE[self.index()]
    }
}

/// Position of the element with this name, to which the type is bound; `None` for the empty name.
pub(super) const fn place(elements: &[Element], wanted: &str) -> Option<usize> {
    let mut index = 0;
    while index < elements.len() {
        if same(elements[index].name.as_bytes(), wanted.as_bytes()) {
            return Some(index);
        }
        index += 1;
    }
    assert!(wanted.is_empty(), "the bounding element is one of the elements");
    None
}

const fn same(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

/// Makes the rows of [`TABLE`] and the structures from one list, in which types that follow each other may share their
/// elements.
macro_rules! table {
    ($( $( $structure:ident = $name:ident: stamp $stamp:ident, bound $bound:literal, level $level:literal,
           $description:literal )+ => $elements:tt )*) => {
        enum Place { $( $( $structure, )+ )* }

        pub(in crate::events) const RAISED: usize = [$( $( stringify!($name), )+ )*].len();

        const RAISED_ROWS: [EventType; RAISED] = [$( $(
            EventType {
                name: stringify!($name),
                description: $description,
                level: $level,
                elements: $structure::ELEMENTS,
                displacements: $structure::DISPLACEMENTS,
                extent: $structure::EXTENT,
                bound: place($structure::ELEMENTS, $bound),
                stamp: StampedBy::$stamp,
            },
        )+ )*];

        $( $(
            elements! { #[doc = $description] $structure $elements }

            impl Payload for $structure {
                const TYPE: TypeId = TypeId(Place::$structure as u16);

                #[inline]
                fn words(&self) -> Words {
                    $structure::words(self)
                }
            }
        )+ )*
    };
}

table! {
    // One message as MPI sees it: all its fragments are one transfer; control messages are no transfers. Below another
    // PML a message is what that PML hands to the transport, its headers included.
    XferBegin = xfer_begin: stamp Adapter, bound "context", level 2,
        "The first byte of a message is scheduled for sending, or its first fragment has arrived and has a receive, or this process is about to read its first bytes. A message that the receiver reads begins for its sender with its end, when the receiver's answer comes: its rendezvous request is no part of the transfer."
    XferContinue = xfer_continue: stamp Adapter, bound "context", level 3,
        "A further fragment of a message, neither its first nor its last, is scheduled for sending or has arrived. If the last port that could read a message fails, the message comes again as copies, and what had been read counts twice."
    XferEnd = xfer_end: stamp Adapter, bound "context", level 2,
        "The last byte of a message is scheduled for sending, or has arrived; of a message that the receiver reads, the last byte has been read, or for its sender the receiver's answer says so."
    => {
        request: U64 "The number of the request, as in its `comm_req` events; 0 below another PML.";
        message: U64 "The number of the message in this process, in all its events and in no other message's: the one in its `comm_msg` events; for a sent message the number of its request.";
        offset: U64 "The offset of the fragment in the message, bytes.";
        bytes: U64 "The bytes of the message in the fragment. Each byte counts in one event: a message of one fragment has all in its begin and none in its end; a message that is read has none in its begin, and in all only those for which the receive has room.";
        total: U64 "The bytes of the whole message, as sent; the receive may have room for fewer.";
        context: U32 "The context number of the communicator; 4294967295 below another PML.";
        source: I32 "The sender's rank in the communicator; -1 below another PML.";
        tag: I32 "The message's tag; -1 below another PML.";
        direction: U32 "0: sent; 1: received.";
        peer: U32 "The rank of the other process in the job.";
        port: U32 "The index (among the ports of this process) of the port whose completion told of the step; 4294967295 if none did: the step is a post, or a copy by the processor. Below another PML also the port of a post.";
        thread: U32 "The source of the thread that handled it (an index for `MPI_T_source_get_info`).";
    }
    MsgArrived = msg_arrived: stamp Adapter, bound "context", level 2,
        "A message has arrived in this process: all of it, or its rendezvous request. The event does not say whether a receive is posted. The xfer events show the transfer of the message as well. If the message came before this process had made its communicator, the event follows when that is made, by the host's clock and with no port."
    => {
        message: U64 "The number of the message in this process: the same as in the `xfer` events, and in the `comm_msg` events.";
        bytes: U64 "The bytes of the message that have arrived with this event.";
        total: U64 "The bytes of the whole message, as sent.";
        context: U32 "The context number of the communicator; 4294967295 below another PML.";
        source: I32 "The sender's rank in the communicator; -1 below another PML.";
        tag: I32 "The message's tag; -1 below another PML.";
        peer: U32 "The rank of the sender in the job.";
        port: U32 "The index of the port, among those of this process, that it came by; 4294967295: by none.";
        thread: U32 "The source of the thread that handled it (an index for `MPI_T_source_get_info`).";
    }

    // One-sided operations; operation is the same in started and complete.
    PutStarted = put_started: stamp Host, bound "", level 4, "ibex accepts an RDMA write."
    => {
        operation: U64 "The number of the operation in this process: the same in all its events, and not soon reused.";
        local: U64 "The address of the bytes in this process.";
        remote: U64 "The address in the peer's memory to which they go.";
        bytes: U64 "The number of bytes.";
        peer: U32 "The rank of the other process in the job.";
        port: U32 "The index of the port, among those of this process, by which it goes.";
    }
    PutComplete = put_complete: stamp Adapter, bound "", level 4, "An RDMA write has completed, or has failed."
    => {
        operation: U64 "The number of the operation in this process: the same in all its events, and not soon reused.";
        local: U64 "The address of the bytes in this process.";
        remote: U64 "The address in the peer's memory to which they went.";
        bytes: U64 "The number of bytes.";
        peer: U32 "The rank of the other process in the job.";
        status: U32 "The adapter's status (`enum ibv_wc_status`): 0 is success.";
        thread: U32 "The source of the thread that handled it (an index for `MPI_T_source_get_info`).";
        port: U32 "The index of the port, among those of this process, by which it goes.";
    }
    GetStarted = get_started: stamp Host, bound "", level 4,
        "ibex posts an RDMA read: a one-sided operation, or of a message, from the sender's memory to the receiver's."
    => {
        operation: U64 "The number of the operation in this process: the same in all its events, and not soon reused.";
        local: U64 "The address in this process to which the bytes go.";
        remote: U64 "The address of the bytes in the peer's memory.";
        bytes: U64 "The number of bytes.";
        peer: U32 "The rank of the other process in the job.";
        request: U64 "The number of the receive whose message it reads, as in the `xfer` events; 0: a one-sided operation.";
        port: U32 "The index of the port, among those of this process, by which it goes.";
    }
    GetComplete = get_complete: stamp Adapter, bound "", level 4, "An RDMA read has completed, or has failed."
    => {
        operation: U64 "The number of the operation in this process: the same in all its events, and not soon reused.";
        local: U64 "The address in this process to which the bytes went.";
        remote: U64 "The address of the bytes in the peer's memory.";
        bytes: U64 "The number of bytes.";
        peer: U32 "The rank of the other process in the job.";
        status: U32 "The adapter's status (`enum ibv_wc_status`): 0 is success.";
        request: U64 "The number of the receive whose message it reads, as in the `xfer` events; 0: a one-sided operation.";
        thread: U32 "The source of the thread that handled it (an index for `MPI_T_source_get_info`).";
        port: U32 "The index of the port, among those of this process, by which it goes.";
    }
    AtomicStarted = atomic_started: stamp Host, bound "", level 4, "ibex accepts an atomic operation on memory of a peer."
    => {
        operation: U64 "The number of the operation in this process: the same in all its events, and not soon reused.";
        local: U64 "The address in this process to which the former value goes.";
        remote: U64 "The address of the number in the peer's memory.";
        bytes: U64 "The size of the number, bytes.";
        kind: U32 "0: fetch and add; 1: compare and swap; 2: one of libfabric's (`fi_atomic(3)`).";
        peer: U32 "The rank of the other process in the job.";
        port: U32 "The index of the port, among those of this process, by which it goes; 4294967295: by none, on memory of this process.";
    }
    AtomicComplete = atomic_complete: stamp Adapter, bound "", level 4,
        "An atomic operation has completed, or has failed. The host's clock stamps one of an adapter that has none: the process that has the memory has done it and answered."
    => {
        operation: U64 "The number of the operation in this process: the same in all its events, and not soon reused.";
        local: U64 "The address of the former value in this process.";
        remote: U64 "The address of the number in the peer's memory.";
        bytes: U64 "The size of the number, bytes.";
        kind: U32 "0: fetch and add; 1: compare and swap; 2: one of libfabric's (`fi_atomic(3)`).";
        peer: U32 "The rank of the other process in the job.";
        status: U32 "The adapter's status (`enum ibv_wc_status`): 0 is success.";
        thread: U32 "The source of the thread that handled it (an index for `MPI_T_source_get_info`).";
        port: U32 "The index of the port, among those of this process, by which it goes; 4294967295: by none, on memory of this process.";
    }

    FlushStarted = flush_started: stamp Host, bound "", level 4,
        "Open MPI begins to wait until one-sided operations are over, as `MPI_Win_flush`, `MPI_Win_unlock` and `MPI_Win_fence` do: for each of them at least once."
    FlushComplete = flush_complete: stamp Host, bound "", level 4,
        "All these operations have completed, and Open MPI knows of each, or the job ends."
    => {
        operation: U64 "The number of the wait in this process: the same in both its events, and not soon reused.";
        peer: U32 "The rank in the job of the process whose operations Open MPI waits for; 4294967295: of all.";
        port: U32 "The index of the port, among those of this process, whose operations it waits for.";
    }

    ConnectionBegin = connection_begin: stamp Host, bound "", level 3,
        "ibex begins to connect to a peer, for a request of this process or because the peer asked."
    => {
        peer: U32 "The rank of the other process in the job.";
        port: U32 "The index of the port among those of this process, from 0.";
        asked: U32 "0: this process has something to send; 1: the peer asked.";
    }
    ConnectionEstablished = connection_established: stamp Host, bound "", level 3, "A connection is ready for messages."
    => {
        peer: U32 "The rank of the other process in the job.";
        port: U32 "The index of the port among those of this process, from 0.";
        queue_pair: U32 "The number of this side's queue pair.";
        remote_queue_pair: U32 "The number of the peer's queue pair.";
    }
    ConnectionFailed = connection_failed: stamp Host, bound "", level 1,
        "A connection could not be made, or has failed; the requests on it fail with it."
    => {
        peer: U32 "The rank of the other process in the job.";
        port: U32 "The index of the port among those of this process, from 0.";
        queue_pair: U32 "The number of this side's queue pair; 0 where there was none.";
        status: U32 "The adapter's status (`enum ibv_wc_status`) where it gave one, else 0.";
    }

    QueuedBegin = queued_begin: stamp Host, bound "", level 4,
        "ibex cannot post a request now (not connected yet, or no room) and queues it."
    => {
        operation: U64 "The number of the operation in this process; 0 for a send that nobody waits for.";
        peer: U32 "The rank of the other process in the job.";
        waiting: U32 "The requests that now wait for this peer, this one included.";
    }
    QueuedEnd = queued_end: stamp Host, bound "", level 4, "ibex has posted a queued request, or the request has failed."
    => {
        operation: U64 "The number of the operation in this process; 0 for a send that nobody waits for.";
        peer: U32 "The rank of the other process in the job.";
        waiting: U32 "The requests that still wait for this peer.";
    }
    ReceiverNotReady = receiver_not_ready: stamp Host, bound "", level 3,
        "This process found all its posted receives used up: its adapter tells senders to wait."
    => {
        port: U32 "The index of the port among those of this process, from 0.";
        receives: U32 "The number of receives that a port keeps posted.";
    }

    RegistrationMiss = registration_miss: stamp Host, bound "", level 5,
        "The registration cache has no registration of some memory, and registers it with the adapter."
    RegistrationEvict = registration_evict: stamp Host, bound "", level 5,
        "The registration cache deregisters memory: the memory is freed, or the cache needs room."
    => {
        address: U64 "The address of the memory.";
        bytes: U64 "The size of the memory, bytes.";
        port: U32 "The index of the port among those of this process, from 0.";
    }

    DeviceAsync = device_async: stamp Host, bound "", level 2, "The adapter reports an asynchronous event of the device or of one of its objects."
    => {
        event: U32 "The event (`enum ibv_event_type`).";
        port: U32 "The index of the first port on that device among those of this process, from 0.";
    }
    PortAsync = port_async: stamp Host, bound "", level 2, "The adapter reports an asynchronous event of a port."
    => {
        event: U32 "The event (`enum ibv_event_type`).";
        port: U32 "The index of the port among those of this process, from 0.";
    }

    // Communicators, where ibex does the matching.
    CommunicatorCreated = communicator_created: stamp Host, bound "", level 2,
        "A communicator is there, those of Open MPI's own included: of each run of members whose ranks in their job are an arithmetic progression, one event. `MPI_COMM_WORLD` is one event; an intercommunicator has those of both groups. Before any event of the communicator's messages."
    => {
        context: U32 "The context number of the communicator. Another may have it once this one is freed.";
        kind: U32 "0: an intracommunicator; 1: an intercommunicator.";
        rank: I32 "The rank of this process in it, in the local group.";
        size: U32 "How many members the group has that `side` names.";
        side: U32 "0: of the local group; 1: of the remote group.";
        first: U32 "The rank, in that group, of the first member of this run.";
        count: U32 "How many members the run has: those of the ranks from `first` on.";
        process: U32 "The rank of the first member in its job.";
        stride: I32 "By how much the rank in the job of each further member is greater; 0 where there is none.";
        job: U32 "The job of these members, as Open MPI names it.";
    }
    CommunicatorFreed = communicator_freed: stamp Host, bound "", level 2,
        "A communicator is no longer there: its last request has ended, and this process has freed it, or MPI is being finalized. After all events of its messages."
    => {
        context: U32 "The context number of the communicator.";
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of all event types, and for each a structure with which a site raises it.
//!
//! Owns [`TABLE`] and, per row, a structure of the same elements ([`XferBegin`] and so on) that is [`Payload`]. A row's
//! vocabulary is in `event_type.rs`, the page made from the table (docs/events.md) in `page.rs`. Who registers shows
//! each as `btl_ibex_<name>`.
//!
//! Path: hot, behind the branch of a site: `words` is a handful of shifts. Threads: plain data. Units: each element
//! says its own. Tests: `tests/table.rs` (`cargo test -p ibex events::tests::table`; `IBEX_WRITE_DOCS=1` in front
//! rewrites the page).

use super::event_type::{Element, ElementType, EventType, StampedBy, TypeId, WORDS, Words, displacements, extent};

/// The elements of one event, ready to be recorded.
pub trait Payload {
    /// Its type.
    const TYPE: TypeId;
    /// The elements at their displacements.
    fn words(&self) -> Words;
}

impl TypeId {
    /// The type at `index` of the table; `None` beyond its end.
    #[must_use]
    pub fn from_index(index: usize) -> Option<TypeId> {
        (index < TABLE.len()).then_some(TypeId(index as u16))
    }

    /// Its row.
    #[must_use]
    pub fn row(self) -> &'static EventType {
        &TABLE[self.index()]
    }
}

/// A value an element may have.
trait Scalar: Copy {
    fn bits(self) -> u64;
}

impl Scalar for i32 {
    #[inline]
    fn bits(self) -> u64 {
        u64::from(self.cast_unsigned())
    }
}

impl Scalar for u32 {
    #[inline]
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

impl Scalar for u64 {
    #[inline]
    fn bits(self) -> u64 {
        self
    }
}

/// Puts a value where it belongs: the low half of its word at a multiple of 8, else the high half.
#[inline]
fn put(words: &mut Words, at: usize, value: impl Scalar) {
    words[at / 8] |= value.bits() << (at % 8 * 8);
}

/// The place of the bounding element among the names; `None` where there is none.
const fn place(names: &[&str], wanted: &str) -> Option<usize> {
    let mut index = 0;
    while index < names.len() {
        if same(names[index].as_bytes(), wanted.as_bytes()) {
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

/// Makes [`TABLE`], the structures and their encoding out of one list.
macro_rules! table {
    (@type I32) => { i32 };
    (@type U32) => { u32 };
    (@type U64) => { u64 };
    ($( $structure:ident = $name:ident: stamp $stamp:ident, bound $bound:literal, level $level:literal, $description:literal
        { $( $element:ident: $kind:ident $help:literal; )* } )*) => {
        /// Numbers the types in the order of the table.
        enum Place { $( $structure, )* }

        /// How many types there are.
        pub(super) const COUNT: usize = [$( stringify!($name) ),*].len();

        /// Every event type there is. A place in it never changes while a process lives.
        pub static TABLE: [EventType; COUNT] = [$(
            {
                const KINDS: [ElementType; <[ElementType]>::len(&[$(ElementType::$kind),*])] = [$(ElementType::$kind),*];
                const NAMES: &[&str] = &[$(stringify!($element)),*];
                EventType {
                    name: stringify!($name),
                    description: $description,
                    level: $level,
                    elements: &[$( Element { name: stringify!($element), element_type: ElementType::$kind, help: $help } ),*],
                    displacements: const { &displacements(KINDS) },
                    extent: extent(KINDS),
                    bound: place(NAMES, $bound),
                    stamp: StampedBy::$stamp,
                }
            },
        )*];

        $(
            #[doc = $description]
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
            pub struct $structure {
                $( #[doc = $help] pub $element: table!(@type $kind), )*
            }

            impl Payload for $structure {
                const TYPE: TypeId = TypeId(Place::$structure as u16);

                #[inline]
                fn words(&self) -> Words {
                    const KINDS: [ElementType; <[ElementType]>::len(&[$(ElementType::$kind),*])] = [$(ElementType::$kind),*];
                    const AT: [usize; KINDS.len()] = displacements(KINDS);
                    const { assert!(extent(KINDS) <= WORDS * 8, "an event's data fits an instance") };
                    let mut words = [0; WORDS];
                    let mut at = AT.iter();
                    $( put(&mut words, at.next().copied().unwrap_or(0), self.$element); )*
                    words
                }
            }
        )*
    };
}

table! {
    // One message, as MPI sees it: the fragments of a message are one transfer. Control messages are none.
    XferBegin = xfer_begin: stamp Adapter, bound "context", level 2,
        "The first byte of a message is scheduled for sending, or its first fragment has arrived, or its first bytes are about to be read here. The adapter's clock is that of a message that arrived in one piece; all else is told by the host's. Of a message that began when nobody was registered for messages it is not shown."
    {
        request: U64 "The request, as the upper layer of this process names it. 0 where its headers do not say: of a message of one piece; of one that arrives until its sender is answered; of one that is read here, always.";
        message: U64 "Which message this is: the same number in all its events in this process, and in no other's.";
        offset: U64 "Where the fragment begins in the message, bytes. Of one that was read: how many had been read before, as which of several reads it was is not told.";
        bytes: U64 "How many bytes of the message the fragment carries. Each byte is in one event: of a message of one fragment all are in its begin and none in its end, and of one that is read the begin has none.";
        total: U64 "How many bytes the whole message has, as its sender sends it; the receive may have room for fewer.";
        context: U32 "The communicator: its context number.";
        source: I32 "The sender's rank in it.";
        tag: I32 "The message's tag.";
        sequence: U32 "The message's number among those of this sender to this receiver in this communicator, modulo 65536.";
        direction: U32 "0: sent; 1: received.";
        peer: U32 "The other process: its rank in the job.";
    }
    XferContinue = xfer_continue: stamp Host, bound "context", level 3,
        "A further fragment of a message, neither its first nor its last, is scheduled or has arrived."
    {
        request: U64 "The request, as the upper layer of this process names it. 0 where its headers do not say: of a message of one piece; of one that arrives until its sender is answered; of one that is read here, always.";
        message: U64 "Which message this is: the same number in all its events in this process, and in no other's.";
        offset: U64 "Where the fragment begins in the message, bytes. Of one that was read: how many had been read before, as which of several reads it was is not told.";
        bytes: U64 "How many bytes of the message the fragment carries. Each byte is in one event: of a message of one fragment all are in its begin and none in its end, and of one that is read the begin has none.";
        total: U64 "How many bytes the whole message has, as its sender sends it; the receive may have room for fewer.";
        context: U32 "The communicator: its context number.";
        source: I32 "The sender's rank in it.";
        tag: I32 "The message's tag.";
        sequence: U32 "The message's number among those of this sender to this receiver in this communicator, modulo 65536.";
        direction: U32 "0: sent; 1: received.";
        peer: U32 "The other process: its rank in the job.";
    }
    XferEnd = xfer_end: stamp Adapter, bound "context", level 2,
        "The last byte of a message is scheduled, or has arrived; of one that the receiver reads, it has been read."
    {
        request: U64 "The request, as the upper layer of this process names it. 0 where its headers do not say: of a message of one piece; of one that arrives until its sender is answered; of one that is read here, always.";
        message: U64 "Which message this is: the same number in all its events in this process, and in no other's.";
        offset: U64 "Where the fragment begins in the message, bytes. Of one that was read: how many had been read before, as which of several reads it was is not told.";
        bytes: U64 "How many bytes of the message the fragment carries. Each byte is in one event: of a message of one fragment all are in its begin and none in its end, and of one that is read the begin has none.";
        total: U64 "How many bytes the whole message has, as its sender sends it; the receive may have room for fewer.";
        context: U32 "The communicator: its context number.";
        source: I32 "The sender's rank in it.";
        tag: I32 "The message's tag.";
        sequence: U32 "The message's number among those of this sender to this receiver in this communicator, modulo 65536.";
        direction: U32 "0: sent; 1: received.";
        peer: U32 "The other process: its rank in the job.";
    }
    MsgArrived = msg_arrived: stamp Adapter, bound "context", level 2,
        "A message has arrived in this process: all of it, or what announces it. Whether there is a receive for it already is not known to the transport. Its transfer is told besides: of a message that came whole, at the same moment."
    {
        message: U64 "Which message this is: the same number as in the events of its transfer in this process.";
        bytes: U64 "How many bytes of the message came with it.";
        total: U64 "How many bytes the whole message has, as its sender sends it.";
        context: U32 "The communicator: its context number.";
        source: I32 "The sender's rank in it.";
        tag: I32 "The message's tag.";
        sequence: U32 "The message's number among those of this sender to this receiver in this communicator, modulo 65536.";
        peer: U32 "The sender: its rank in the job.";
    }

    // One-sided operations; operation is the same in started and complete.
    PutStarted = put_started: stamp Host, bound "", level 4, "An RDMA write is taken up."
    {
        operation: U64 "Which operation of this process it is: the same number in all its events, and not soon another's.";
        local: U64 "Where the bytes are in this process.";
        remote: U64 "Where they go in the peer's memory.";
        bytes: U64 "How many there are.";
        peer: U32 "The other process: its rank in the job.";
    }
    PutComplete = put_complete: stamp Adapter, bound "", level 4, "An RDMA write is done, or has failed."
    {
        operation: U64 "Which operation of this process it is: the same number in all its events, and not soon another's.";
        local: U64 "Where the bytes are in this process.";
        remote: U64 "Where they went in the peer's memory.";
        bytes: U64 "How many there are.";
        peer: U32 "The other process: its rank in the job.";
        status: U32 "The adapter's status (`enum ibv_wc_status`): 0 is success.";
    }
    GetStarted = get_started: stamp Host, bound "", level 4, "An RDMA read is taken up."
    {
        operation: U64 "Which operation of this process it is: the same number in all its events, and not soon another's.";
        local: U64 "Where the bytes go in this process.";
        remote: U64 "Where they are in the peer's memory.";
        bytes: U64 "How many there are.";
        peer: U32 "The other process: its rank in the job.";
    }
    GetComplete = get_complete: stamp Adapter, bound "", level 4, "An RDMA read is done, or has failed."
    {
        operation: U64 "Which operation of this process it is: the same number in all its events, and not soon another's.";
        local: U64 "Where the bytes went in this process.";
        remote: U64 "Where they are in the peer's memory.";
        bytes: U64 "How many there are.";
        peer: U32 "The other process: its rank in the job.";
        status: U32 "The adapter's status (`enum ibv_wc_status`): 0 is success.";
    }
    AtomicStarted = atomic_started: stamp Host, bound "", level 4, "An atomic operation on memory of a peer is taken up."
    {
        operation: U64 "Which operation of this process it is: the same number in all its events, and not soon another's.";
        local: U64 "Where the former value goes in this process.";
        remote: U64 "Where the number is in the peer's memory.";
        bytes: U64 "How many bytes it has.";
        kind: U32 "0: fetch and add; 1: compare and swap.";
        peer: U32 "The other process: its rank in the job.";
    }
    AtomicComplete = atomic_complete: stamp Adapter, bound "", level 4, "An atomic operation is done, or has failed."
    {
        operation: U64 "Which operation of this process it is: the same number in all its events, and not soon another's.";
        local: U64 "Where the former value is in this process.";
        remote: U64 "Where the number is in the peer's memory.";
        bytes: U64 "How many bytes it has.";
        kind: U32 "0: fetch and add; 1: compare and swap.";
        peer: U32 "The other process: its rank in the job.";
        status: U32 "The adapter's status (`enum ibv_wc_status`): 0 is success.";
    }

    // How a message goes.
    EagerChosen = eager_chosen: stamp Host, bound "context", level 4,
        "A message goes eagerly: whole, without asking the receiver."
    {
        bytes: U64 "The size of the message.";
        context: U32 "The communicator: its context number.";
        tag: I32 "The message's tag.";
        sequence: U32 "The message's number among those of this sender to this receiver in this communicator, modulo 65536.";
        peer: U32 "The receiver: its rank in the job.";
    }
    RendezvousChosen = rendezvous_chosen: stamp Host, bound "context", level 4,
        "A message goes by rendezvous: announced first, moved when the receiver has a place for it."
    {
        bytes: U64 "The size of the message.";
        context: U32 "The communicator: its context number.";
        tag: I32 "The message's tag.";
        sequence: U32 "The message's number among those of this sender to this receiver in this communicator, modulo 65536.";
        peer: U32 "The receiver: its rank in the job.";
    }

    // Connections.
    ConnectionBegin = connection_begin: stamp Host, bound "", level 3,
        "A connection to a peer is begun, by this process or because the peer asked."
    {
        peer: U32 "The other process: its rank in the job.";
        port: U32 "Which of this process's ports it is on, from 0.";
        asked: U32 "0: this process has something to send; 1: the peer asked.";
    }
    ConnectionEstablished = connection_established: stamp Host, bound "", level 3, "A connection is ready for messages."
    {
        peer: U32 "The other process: its rank in the job.";
        port: U32 "Which of this process's ports it is on, from 0.";
        queue_pair: U32 "The number of this side's queue pair.";
        remote_queue_pair: U32 "The number of the peer's queue pair.";
    }
    ConnectionFailed = connection_failed: stamp Host, bound "", level 1,
        "A connection could not be made, or has failed; what was under way on it comes back failed."
    {
        peer: U32 "The other process: its rank in the job.";
        port: U32 "Which of this process's ports it was on, from 0.";
        queue_pair: U32 "The number of this side's queue pair; 0 where there was none.";
        status: U32 "The adapter's status (`enum ibv_wc_status`) where it gave one, else 0.";
    }

    // Waiting.
    QueuedBegin = queued_begin: stamp Host, bound "", level 4,
        "A request cannot be posted now (not connected yet, or no room) and waits inside ibex."
    {
        operation: U64 "Which operation of this process it is; 0 for a send that nobody waits for.";
        peer: U32 "The other process: its rank in the job.";
        waiting: U32 "How many requests wait for this peer now, this one included.";
    }
    QueuedEnd = queued_end: stamp Host, bound "", level 4, "A request that waited inside ibex is posted, or has failed."
    {
        operation: U64 "Which operation of this process it is; 0 for a send that nobody waits for.";
        peer: U32 "The other process: its rank in the job.";
        waiting: U32 "How many requests still wait for this peer.";
    }
    ReceiverNotReady = receiver_not_ready: stamp Host, bound "", level 3,
        "This process found all its posted receives used up: senders are told to wait."
    {
        port: U32 "Which of this process's ports it is, from 0.";
        receives: U32 "How many receives a port keeps posted.";
    }

    // Registration of memory.
    RegistrationMiss = registration_miss: stamp Host, bound "", level 5,
        "Memory was not found among those registered already, and is registered with the adapter."
    {
        address: U64 "Where it begins.";
        bytes: U64 "How much it is.";
        port: U32 "Which of this process's ports it is registered for, from 0.";
    }
    RegistrationEvict = registration_evict: stamp Host, bound "", level 5,
        "A registration is taken back: the memory is given up, or room is needed."
    {
        address: U64 "Where it begins.";
        bytes: U64 "How much it is.";
        port: U32 "Which of this process's ports it was registered for, from 0.";
    }

    // What the adapter says of itself.
    DeviceAsync = device_async: stamp Host, bound "", level 2, "The adapter reports an event of the device or one of its objects."
    {
        event: U32 "Which (`enum ibv_event_type`).";
        port: U32 "The first of this process's ports on that device, from 0.";
    }
    PortAsync = port_async: stamp Host, bound "", level 2, "The adapter reports an event of a port."
    {
        event: U32 "Which (`enum ibv_event_type`).";
        port: U32 "Which of this process's ports it is, from 0.";
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host of the messenger: it owns the requests, their data and the communicators, and tells tools. Open MPI's face
//! is one (`pml/host.rs`), that of the unit tests another (`tests.rs`).
//!
//! The messenger calls it for all that it does not own. The end of a request is such a call, and no value of a poll:
//! for a blocking call it is one store. Grade: hot, by static dispatch. Threads: the one that has entered it.

use std::fmt::Debug;

use super::State;
use super::header::{Header, Match, PortKey};
use super::link::{Account, Link};
use super::matching::Envelope;
use super::path_taken::{PathTaken, Protocol, Reason};
use super::receive::arrived::Arrived;
use super::rendezvous::Step;
use super::rendezvous::read::{Path, Readable};
use super::rendezvous::stripes::Part;
use super::request::transfer_id::TransferId;
use super::request::{Core, Outcome};
use crate::transport::Failed;

/// The entered state of a host.
pub trait Host: Sized {
    /// Names a request.
    type Handle: Copy;
    /// Data of a request, in user memory.
    type Data: Data;
    /// Registration of user memory with a port.
    type Registration: Copy + Debug;
    /// What tools are told of the reads of a message.
    type WatchedReads;
    /// A fragment that is packed, and not posted yet.
    type Fragment;
    /// What all threads of the process share: its ports and settings.
    type Process;

    /// Returns the protocols' record of a request.
    fn core(&mut self, request: Self::Handle) -> &mut Core<Self>;

    /// Returns the messenger's part of the state.
    fn messenger(&mut self) -> &mut State<Self>;

    /// Returns the rank of this process in the communicator of a request.
    fn rank(&mut self, request: Self::Handle) -> i32;

    /// Returns the context number of the communicator of a request.
    fn context(&mut self, request: Self::Handle) -> u32;

    /// Returns the length of the longest data that is sent eagerly by this link now, bytes.
    fn eager_limit(&self, process: &Self::Process, link: Link) -> usize;

    /// Returns the link that messages to the peer of `link` use now.
    fn route(&mut self, process: &Self::Process, link: Link) -> Link;

    /// Whether short messages to the peer of a send need not ask flow control: the host notes so beside its link.
    fn takes_short_path(&mut self, process: &Self::Process, send: Self::Handle) -> bool;

    /// Notes the link of a send, and whether later short messages to its peer need not ask flow control.
    fn set_short_path(&mut self, process: &Self::Process, send: Self::Handle, passes: bool);

    /// Whether nobody waits for a send that pends any more, because its communicator has gone.
    fn is_abandoned(&mut self, send: Self::Handle) -> bool;

    /// Whether a port, or shared memory, has room for another message by this link.
    fn has_room(&mut self, process: &Self::Process, link: Link) -> bool;

    /// Has the port, or shared memory, say when it has room for messages by this link: the host then calls
    /// [`send::in_turn`].
    ///
    /// [`send::in_turn`]: super::send::in_turn
    fn queue_turn(&mut self, process: &Self::Process, link: Link);

    /// Begins the turn of pending messages: they take room before any other.
    fn begin_turn(&mut self, process: &Self::Process, link: Link);

    /// Ends the turn of pending messages, of which none is left.
    fn end_turn(&mut self, process: &Self::Process, link: Link);

    /// Sends a header and all data of a send, together no longer than the eager limit. If the message has to wait, the
    /// port takes a copy; once that is sent, it finishes the send if `finishes`.
    fn send_whole(
        &mut self,
        process: &Self::Process,
        send: Self::Handle,
        header: &Header,
        finishes: bool,
    ) -> Transmitted;

    /// Lets the peer read the data of a send.
    ///
    /// # Errors
    /// It has gaps, or cannot be registered.
    fn expose(&mut self, process: &Self::Process, send: Self::Handle) -> Result<Exposed<Self::Registration>, Reason>;

    /// Takes out the posted receive that the message of a send to this process matches, and tells tools of both.
    ///
    /// # Errors
    /// No receive matches; the number of the message, for tools.
    fn take_posted(&mut self, send: Self::Handle, envelope: Envelope, length: usize) -> Result<Self::Handle, u64>;

    /// Stores the message of a send to this process, which no receive matches.
    fn keep(&mut self, process: &Self::Process, send: Self::Handle, envelope: Envelope, message: Arrived);

    /// Delivers a whole message, which is still in its receive slot, to the receive that it matches, or stores it.
    /// `sender` looks up the link to its sender.
    fn deliver_whole(
        &mut self,
        process: &Self::Process,
        of: Match,
        bytes: &[u8],
        sender: impl Fn() -> Option<Link> + Copy,
    );

    /// Delivers a message that has arrived to the receive that it matches, or stores it.
    fn deliver(&mut self, process: &Self::Process, context: u32, envelope: Envelope, message: Arrived);

    /// Writes the status of a receive.
    fn note(&mut self, receive: Self::Handle, outcome: &Outcome);

    /// Copies the data of a send to a receive, as far as that has room. Changes its status if that cannot be unpacked.
    fn copy(&mut self, send: Self::Handle, receive: Self::Handle);

    /// Changes the status of a receive, because data cannot be unpacked.
    fn cannot_unpack(&mut self, receive: Self::Handle);

    /// Sends a message without data to the peer of a link. Ends the job if no port can.
    fn control(&mut self, process: &Self::Process, link: Link, header: &Header);

    /// [`Self::control`] with keys behind the header.
    fn control_with_keys(&mut self, process: &Self::Process, link: Link, header: &Header, keys: &[PortKey]);

    /// Packs the fragment of a send's data that begins at `offset`, where the last one ended, for this receive. Returns
    /// it with the length of its data, at least 1 byte.
    ///
    /// # Errors
    /// No fragment can be packed now, or the job ends.
    fn pack_fragment(
        &mut self,
        process: &Self::Process,
        send: Self::Handle,
        receiver: TransferId,
        offset: u64,
    ) -> Result<(Self::Fragment, u64), NotPacked>;

    /// Gives a port a fragment that [`Self::pack_fragment`] has packed of this send's data.
    fn post_fragment(&mut self, process: &Self::Process, send: Self::Handle, fragment: Self::Fragment) -> Posted;

    /// Whether any port has a free send buffer for fragments.
    fn has_free_buffer(&self) -> bool;

    /// Returns the links by which this process can read a message that was announced by the link `from` with the `keys`
    /// of several ports, and the key for each.
    fn readable_by(&mut self, process: &Self::Process, from: Link, keys: &[PortKey], wanted: u64) -> Vec<(Link, u32)>;

    /// Registers the first `wanted` bytes of a receive's contiguous data with the port of a link. `None`: the port does
    /// not exist, or cannot register them.
    fn register(
        &mut self,
        process: &Self::Process,
        receive: Self::Handle,
        link: Link,
        wanted: u64,
    ) -> Option<Readable<Self::Registration>>;

    /// Ends a registration with the port of a rail. The data is not read or written any more.
    fn deregister(&mut self, process: &Self::Process, rail: usize, registered: Self::Registration);

    /// Posts a read of a part of the message of a receive, which is [`Transfer::Reading`]. The host calls [`read::done`]
    /// once it is done. Returns false if the port refuses it, because its connection has failed.
    ///
    /// [`Transfer::Reading`]: super::request::Transfer::Reading
    /// [`read::done`]: super::rendezvous::read::done
    fn post_read(
        &mut self,
        process: &Self::Process,
        receive: Self::Handle,
        path: &Path<Self::Registration>,
        part: Part,
    ) -> bool;

    /// Copies bytes of another process of this host, `of`: their address and number, to the contiguous data of a receive. The host calls
    /// [`single_copy::done`] when they are copied, perhaps within this call. Returns false if it cannot, and does not.
    ///
    /// [`single_copy::done`]: super::rendezvous::single_copy::done
    fn copy_from_process(&mut self, process: &Self::Process, receive: Self::Handle, link: Link, of: (u64, u64))
    -> bool;

    /// Moves the messages of a peer to another port, because the connection of this link has failed. Returns false if
    /// that is not possible without a loss.
    fn fails_over(&mut self, process: &Self::Process, link: Link) -> bool;

    /// Returns flow control's account of the peer of a link.
    fn account(&mut self, process: &Self::Process, link: Link) -> Account;

    /// Whether a receive may wait for a message that pends at its sender: one is posted in this communicator, or the
    /// communicator has no unexpected message.
    fn wants_more(&mut self, context: u32) -> bool;

    /// Makes each later message to a peer ask flow control how it goes.
    fn mark(&mut self, process: &Self::Process, account: Account);

    /// Tells tools the path of a request's message.
    fn goes(&mut self, _request: Self::Handle, _path: PathTaken) {}

    /// Like [`Self::goes`], for data that goes to or comes from the peer of this link, by so many rails.
    fn goes_by_link(
        &mut self,
        _process: &Self::Process,
        _request: Self::Handle,
        _link: Link,
        _how: (Protocol, Reason),
        _rails: usize,
    ) {
    }

    /// Whether tools were told that the first data of a request's message moves.
    fn has_begun(&mut self, _request: Self::Handle) -> bool {
        false
    }

    /// Tells tools that the first data of a request's message moves now, unless they were told before.
    fn begins(&mut self, _request: Self::Handle, _moved: Moved) {}

    /// Tells tools that data of a request's message has moved, neither the first nor the last.
    fn continues(&mut self, _request: Self::Handle, _moved: Moved) {}

    /// Tells tools that the last data of a request's message has moved.
    fn ends(&mut self, _request: Self::Handle, _moved: Moved) {}

    /// Like [`Self::ends`], for a message that is sent whole.
    fn ends_whole(&mut self, _process: &Self::Process, send: Self::Handle, moved: Moved) {
        self.ends(send, moved);
    }

    /// Like [`Self::begins`], for a receive that will read its message by the paths of its transfer.
    fn begins_reading(&mut self, _process: &Self::Process, receive: Self::Handle) {
        self.begins(receive, Bytes::None.posted());
    }

    /// Tells tools that a read by this rail has completed or failed.
    fn read_ended(
        &mut self,
        _process: &Self::Process,
        _receive: Self::Handle,
        _rail: usize,
        _part: Part,
        _outcome: Result<(), Failed>,
    ) {
    }

    /// Enters a step of a long message in the flight recorder.
    fn record(&mut self, _request: Self::Handle, _step: &Step) {}

    /// Enters in the flight recorder that a peer is held back, or that all may go on.
    fn record_flow(&mut self, _process: &Self::Process, _held_back: Option<Account>) {}

    /// Finishes a request that has no transfer in progress. Afterwards only its owner uses it.
    fn finish(&mut self, request: Self::Handle);

    /// Ends the job, because a peer is lost.
    fn peer_is_lost(&mut self);

    /// Ends the job, because the data of a send, `length` bytes, cannot be packed.
    fn cannot_pack(&mut self, length: usize);

    /// Ends the job, because a peer asks for `asked` bytes of a message of `length` bytes that it was not offered.
    fn cannot_send(&mut self, asked: u64, length: u64);
}

/// State of a message that was given to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmitted {
    /// The adapter has the message.
    Posted,
    /// The port has a copy that waits; its request, if any, is finished when it is sent.
    Waits,
    /// Nothing is sent: there is no connection yet, no room, or other requests wait.
    NoRoom,
    /// The peer is lost, or the data cannot be packed.
    Failed,
}

/// Memory of a send that its receiver may read.
#[derive(Debug)]
pub struct Exposed<R> {
    /// Address of the data; 0: it cannot be read.
    pub address: u64,
    /// Its remote key for the port of the send's link.
    pub key: u32,
    /// Its registration with that port; shared memory needs none.
    pub registered: Option<R>,
    /// Its registrations with other rails, by their indices.
    pub others: Vec<(usize, R)>,
    /// The keys of all ports, if the process has several.
    pub keys: Vec<PortKey>,
}

impl<R> Default for Exposed<R> {
    fn default() -> Self {
        Exposed { address: 0, key: 0, registered: None, others: Vec::new(), keys: Vec::new() }
    }
}

/// Why a fragment was not packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPacked {
    /// It needs a send buffer, and none is free.
    NoBuffer,
    /// Without send buffers, one fragment of a message is sent at a time.
    OneInFlight,
    /// The job ends.
    Failed,
}

/// State of a fragment that a port was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The host calls [`fragments::done`] once it has been sent.
    ///
    /// [`fragments::done`]: super::rendezvous::fragments::done
    InFlight,
    /// It has been sent.
    Sent,
    /// The job ends, because no port takes it.
    Failed,
}

/// The data of a request.
pub trait Data {
    /// Length of the data in a message, bytes.
    fn length(&self) -> usize;

    /// Whether the data is in one piece. Empty data is.
    fn is_contiguous(&self) -> bool;

    /// Copies the beginning of a whole message to the data of a receive, as far as that has room. Returns false if it
    /// cannot be unpacked.
    fn put(&mut self, from: &[u8]) -> bool;

    /// Copies all the data of a send to `to`, which is as long. Returns false if it cannot be packed.
    fn take_all(&mut self, to: &mut [u8]) -> bool;

    /// Copies a fragment to the data of a receive, from `offset` on, where the last one ended. Returns false if it has
    /// no room, or cannot be unpacked; then no later fragment is, either.
    fn put_at(&mut self, offset: u64, from: &[u8]) -> bool;

    /// Notes that no other fragment follows.
    fn end(&mut self);
}

/// Bytes of a message that a step of its transfer moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// First step of a message that is sent whole.
    All,
    /// Other steps report the bytes.
    None,
    /// Bytes of a fragment.
    Of {
        /// Offset of the fragment in the message.
        offset: u64,
        /// Length of the fragment.
        length: u64,
    },
}

/// Bytes of a step, for tools.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Which bytes.
    pub bytes: Bytes,
    /// Whether a completion reported the step; otherwise it is a post.
    pub is_completed: bool,
}

impl Bytes {
    /// The adapter gets the bytes now, or the processor copies them.
    #[inline(always)]
    pub const fn posted(self) -> Moved {
        Moved { bytes: self, is_completed: false }
    }

    /// The bytes have arrived or were sent. The event has the host's time if their completion is not being handled.
    #[inline(always)]
    pub const fn completed(self) -> Moved {
        Moved { bytes: self, is_completed: true }
    }
}

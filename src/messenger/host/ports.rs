// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols' interface to the ports and to shared memory: routes to peers, sending, and access to memory.
//! `messenger/rails` implements it for each host with ports.
//!
//! Called by the protocols. Grade: hot for [`Ports::send_whole`], else pending; by static dispatch. Threads: the one
//! that has entered the messenger, and no port. Tests: those of the hosts.

use super::process::Types;
use crate::messenger::header::{Header, PortKey};
use crate::messenger::path_taken::Reason;
use crate::messenger::rendezvous::read::{ReadRail, ReadTarget};
use crate::messenger::rendezvous::stripes::Part;
use crate::messenger::request::transfer_id::TransferId;
use crate::messenger::route::{Account, Route};

/// The protocols' interface to the ports and to shared memory.
pub trait Ports: Types {
    /// A fragment that is packed, and not posted yet.
    type Fragment;

    /// Returns the route that messages to the peer of `route` use now.
    fn home(&mut self, process: &Self::Process, route: Route) -> Route;

    /// Returns flow control's account of the peer of a route.
    fn account(&mut self, process: &Self::Process, route: Route) -> Account;

    /// Returns the routes that communicators may have stored for the peer of an account.
    fn routes_of(&mut self, process: &Self::Process, account: Account) -> Vec<Route>;

    /// Whether a port, or shared memory, has room for another message by this route.
    fn has_room(&mut self, process: &Self::Process, route: Route) -> bool;

    /// Has the port, or shared memory, say when it has room for messages by this route: the host then calls
    /// [`send::in_turns`](crate::messenger::send::in_turns).
    fn queue_turn(&mut self, process: &Self::Process, route: Route);

    /// Begins the turn of pending messages: they take room before any other.
    fn begin_turn(&mut self, process: &Self::Process, route: Route);

    /// Ends the turn of pending messages, of which none is left.
    fn end_turn(&mut self, process: &Self::Process, route: Route);

    /// Sends a header and all data of a send, no longer than the eager limit. If the message has to wait, the port
    /// takes a copy; once that is sent, the host finishes the send if `finishes`.
    fn send_whole(
        &mut self,
        process: &Self::Process,
        send: Self::Handle,
        header: &Header<Self::Envelope>,
        finishes: bool,
    ) -> Transmitted;

    /// Sends a message without data to the peer of a route. Ends the job if no port can.
    fn control(&mut self, process: &Self::Process, route: Route, header: &Header<Self::Envelope>);

    /// [`Self::control`] by a port, with keys behind the header.
    fn control_with_keys(
        &mut self,
        process: &Self::Process,
        route: Route,
        header: &Header<Self::Envelope>,
        keys: &[PortKey],
    );

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
    fn has_free_buffer(&mut self) -> bool;

    /// Lets the peer read the data of a send.
    ///
    /// # Errors
    /// It has gaps, or cannot be registered.
    fn expose(&mut self, process: &Self::Process, send: Self::Handle) -> Result<Exposed<Self::Registration>, Reason>;

    /// Returns the routes by which this process can read a message that was announced by the route `from` with the
    /// `keys` of several ports, and the key for each.
    fn readable_by(&mut self, process: &Self::Process, from: Route, keys: &[PortKey], wanted: u64)
    -> Vec<(Route, u32)>;

    /// Registers the first `wanted` bytes of a receive's contiguous data with the port of a route. `None`: the port
    /// does not exist, or cannot register them.
    fn register(
        &mut self,
        process: &Self::Process,
        receive: Self::Handle,
        route: Route,
        wanted: u64,
    ) -> Option<ReadTarget<Self::Registration>>;

    /// Posts a read of a part of the message of a receive, which is [`Transfer::Reading`]. The host calls
    /// [`read::done`] once it is done. Returns false if the port cannot post it; then this rail reads no more of the
    /// message.
    ///
    /// [`Transfer::Reading`]: crate::messenger::request::Transfer::Reading
    /// [`read::done`]: crate::messenger::rendezvous::read::done
    fn post_read(
        &mut self,
        process: &Self::Process,
        receive: Self::Handle,
        by: &ReadRail<Self::Registration>,
        part: Part,
    ) -> bool;

    /// Gives up the connection of this route, which has failed; if it is the peer's home, another port carries its
    /// messages. Returns false if a message is lost, or no port is left.
    fn fails_over(&mut self, process: &Self::Process, route: Route) -> bool;
}

/// State of a message that was given to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmitted {
    /// The adapter has the message.
    Posted,
    /// The port has a copy, and sends it later.
    Waits,
    /// Nothing is sent: there is no connection yet, no room, or other requests wait.
    NoRoom,
    /// The peer is lost, or the data cannot be packed.
    Failed,
}

/// Memory of a send that its receiver may read.
#[derive(Debug)]
pub struct Exposed<R> {
    /// Address of the data.
    pub address: u64,
    /// Its remote key for the port of the send's route.
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
    /// The data cannot be packed, or its port has gone: the job ends.
    Failed,
}

/// State of a fragment that was given to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The host calls [`fragments::done`] once it has been sent.
    ///
    /// [`fragments::done`]: crate::messenger::rendezvous::fragments::done
    InFlight,
    /// It has been sent.
    Sent,
    /// No port takes it; the messenger ends the job.
    Failed,
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host of the messenger: it owns the requests and their data, has [`communicators`], and gives events to
//! [`tools`]. It has ports ([`PortHost`]), which [`super::rails`] drives: it lends them ([`process`]), the [`memory`]
//! that they access, its knowledge of [`peers`], and [`shared_memory`]. The PML is one, a simulated process another.
//! `SmallHost` of the unit tests (`messenger/tests`) has queues in place of [`ports`].
//!
//! A request ends by a call ([`Host::finish`]) and not by a value that a poll returns, because for a blocking call of
//! MPI that call is one store. Grade: hot, by static dispatch. Threads: the one that has entered the messenger.

use super::State;
use super::request::{Core, Outcome};
use super::route::Route;

mod communicators;
mod memory;
mod peers;
mod ports;
mod process;
mod shared_memory;
mod tools;

pub use communicators::Communicators;
pub use memory::{Memory, Record};
pub use peers::Peers;
pub use ports::{Exposed, NotPacked, Ports, Posted, Transmitted};
pub use process::{PeerOf, Process, Rail, TagOf, Types};
pub use shared_memory::{Payload, SharedMemory};
pub use tools::Tools;

/// A host with ports.
pub trait PortHost: Memory + Peers + SharedMemory {}

impl<H: Memory + Peers + SharedMemory> PortHost for H {}

/// The entered state of a host, and its requests.
pub trait Host: Tools {
    /// Data of a request, in user memory.
    type Data: Data;

    /// Returns the protocols' record of a request.
    fn core(&mut self, request: Self::Handle) -> &mut Core<Self>;

    /// Returns the messenger's part of the state.
    fn messenger(&mut self) -> &mut State<Self>;

    /// Writes the status of a receive.
    fn note(&mut self, receive: Self::Handle, outcome: &Outcome<Self::Envelope>);

    /// Returns the source and the tag, and the length of the message, of a receive whose status was written.
    fn noted(&mut self, receive: Self::Handle) -> ((PeerOf<Self>, TagOf<Self>), usize);

    /// Copies the data of a send to a receive, as far as there is room. If the receive cannot unpack it, changes its
    /// status.
    fn copy(&mut self, send: Self::Handle, receive: Self::Handle);

    /// Copies bytes of another process of this machine (`of`: their address and number) to the contiguous data of a
    /// receive. Calls [`single_copy::done`] when they are copied, perhaps within this call. Returns false if it cannot.
    ///
    /// [`single_copy::done`]: super::rendezvous::single_copy::done
    fn copy_from_process(
        &mut self,
        process: &Self::Process,
        receive: Self::Handle,
        route: Route,
        of: (u64, u64),
    ) -> bool;

    /// Ends a registration of data with the port of a rail. The adapter and the peer have done with the data.
    fn deregister(&mut self, process: &Self::Process, rail: usize, registered: Self::Registration);

    /// Changes the status of a receive, because data cannot be unpacked.
    fn cannot_unpack(&mut self, receive: Self::Handle);

    /// Finishes a request that has no transfer in progress. Afterwards only its owner uses it.
    fn finish(&mut self, request: Self::Handle);

    /// Gives a receive a whole message, to which no tool listens: writes its status, copies the data, and finishes it.
    #[inline(always)]
    fn take_whole(&mut self, receive: Self::Handle, outcome: &Outcome<Self::Envelope>, bytes: &[u8]) {
        self.note(receive, outcome);
        if !self.core(receive).data.put(bytes) {
            self.cannot_unpack(receive);
        }
        self.finish(receive);
    }

    /// [`Self::finish`] of a receive, with the listeners to its communicator at hand: the host of a watched blocking
    /// receive need not look them up again.
    fn finish_with_events(&mut self, _listeners: Self::Listeners, receive: Self::Handle) {
        self.finish(receive);
    }

    /// Notes that a peer is lost, which [`State::rails`] has noted. A host that outlives its peers ends their requests
    /// soon, by [`lost::end`]; any other ends the job.
    ///
    /// [`lost::end`]: super::rails::lost::end
    fn loses_peer(&mut self);

    /// Ends a request with an error, because its peer, to which this route led, is lost. It has no transfer in
    /// progress, and no adapter uses its memory. Afterwards only its owner uses it. A host that ends the job need not.
    fn fail(&mut self, process: &Self::Process, request: Self::Handle, peer: Route);

    /// Ends the job, because the data of a send, `length` bytes, cannot be packed.
    fn cannot_pack(&mut self, length: usize);

    /// Ends the job, or gives the peer up, because it asks for `asked` bytes of the message of this send that it was
    /// not offered.
    fn cannot_send(&mut self, process: &Self::Process, send: Self::Handle, asked: u64);
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

    /// Packs a send from `offset` on, where the last call ended, until `to` is full or the data ends. Returns the
    /// number of bytes; 0 if the data cannot be packed.
    fn take_at(&mut self, offset: u64, to: &mut [u8]) -> usize;

    /// Unpacks a fragment of a receive from `offset` on, where the last call ended. Returns false if there is no room
    /// or the data cannot be unpacked; so do all later calls.
    fn put_at(&mut self, offset: u64, from: &[u8]) -> bool;

    /// Notes that no other fragment follows.
    fn end(&mut self);
}

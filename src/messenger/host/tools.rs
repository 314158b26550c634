// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a host tells tools of the messages: their arrival, the searches of the queues, the path that each message took,
//! the steps of its transfer, and entries of the flight recorder.
//!
//! Called by `receive` and the protocols where the step happens. A host that has no tools leaves all of it
//! out. Grade: pending. Threads: the one that has entered the messenger. Tests: those of the hosts.

use std::fmt::Debug;

use super::communicators::Communicators;
use crate::messenger::matching::{Envelope, Message};
use crate::messenger::path_taken::{PathTaken, Protocol, Reason};
use crate::messenger::receive::arrived::{Arrival, Arrived};
use crate::messenger::receive::probe::Found;
use crate::messenger::rendezvous::stripes::Part;
use crate::messenger::route::{Account, Route};
use crate::transport::Failed;

/// Tells tools what happens to messages.
pub trait Tools: Communicators {
    /// Listeners of tools to a communicator.
    type Listeners: Copy;
    /// What a host notes of the completion that it handles, for the events of a message that is handled later.
    type Completed: Copy + Debug;

    /// Returns the note of the completion that is handled now.
    fn completed(&mut self) -> Self::Completed;

    /// Sets the note of the completion that is handled from now on.
    fn set_completed(&mut self, completed: Self::Completed);

    /// Returns the listeners to a communicator; `None`: tools are told of no search.
    fn listeners(&mut self, _of: Self::Communicator) -> Option<Self::Listeners> {
        None
    }

    /// Whether these listeners want the path of each message.
    fn want_paths(&mut self, _listeners: Self::Listeners) -> bool {
        false
    }

    /// Tells tools that a message has arrived, runs the `search` for its receive, and tells them what it has found,
    /// with the message's path.
    ///
    /// # Errors
    /// The search has found nothing; the number of the message.
    fn arrives(
        &mut self,
        _process: &Self::Process,
        _listeners: Self::Listeners,
        _of: (Self::Communicator, Envelope),
        _arrival: &Arrival<'_>,
        search: impl FnOnce(&mut Self) -> Option<Self::Handle>,
    ) -> Result<Self::Handle, u64> {
        search(self).ok_or(0)
    }

    /// Tells tools that a message with this number and length was stored as unexpected.
    fn stored(&mut self, _of: (Self::Communicator, Envelope), _message: (u64, usize)) {}

    /// Tells tools that a receive begins, runs the `search` for its unexpected message, and tells them what it has
    /// found, with the message's path.
    fn seeks(
        &mut self,
        _process: &Self::Process,
        _listeners: Self::Listeners,
        _of: Self::Communicator,
        _receive: Self::Handle,
        search: impl FnOnce(&mut Self) -> Option<Message<Arrived>>,
    ) -> Option<Message<Arrived>> {
        search(self)
    }

    /// Runs the `search` of a probe for this source and tag, and tells tools of it.
    fn probes(
        &mut self,
        _of: Self::Communicator,
        _wanted: (i32, i32),
        search: impl FnOnce(&mut Self) -> Option<Found>,
    ) -> Option<Found> {
        search(self)
    }

    /// Tells tools that a matched probe has taken out the message with this number and length. Returns its number.
    fn set_aside(&mut self, _of: (Self::Communicator, Envelope), message: (u64, usize)) -> u64 {
        message.0
    }

    /// Tells tools that a receive begins, and gets the message of a matched probe.
    fn gets_aside(
        &mut self,
        _process: &Self::Process,
        _of: Self::Communicator,
        _receive: Self::Handle,
        _message: &Message<Arrived>,
    ) {
    }

    /// Tells tools that a receive was posted.
    fn posted(&mut self, _listeners: Self::Listeners, _receive: Self::Handle) {}

    /// Tells tools by which protocol, and by which port, a request's message goes.
    fn goes(&mut self, _request: Self::Handle, _path: PathTaken) {}

    /// Like [`Self::goes`], for data that goes to or comes from the peer of this route, by so many rails.
    fn goes_by_route(
        &mut self,
        _process: &Self::Process,
        _request: Self::Handle,
        _route: Route,
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

    /// Like [`Self::begins`], for a message that is sent whole by this route. If tools listen and the route has no
    /// room, tells them nothing and returns false: the message pends, so its transfer does not begin.
    fn begins_whole(&mut self, _process: &Self::Process, send: Self::Handle, _route: Route) -> bool {
        self.begins(send, Bytes::All.posted());
        true
    }

    /// Tells tools that data of a request's message has moved, neither the first nor the last.
    fn continues(&mut self, _request: Self::Handle, _moved: Moved) {}

    /// Tells tools that the last data of a request's message has moved.
    fn ends(&mut self, _request: Self::Handle, _moved: Moved) {}

    /// Like [`Self::ends`], for a message that is sent whole.
    fn ends_whole(&mut self, _process: &Self::Process, send: Self::Handle, moved: Moved) {
        self.ends(send, moved);
    }

    /// Like [`Self::begins`], for a receive that will read its message by the rails of its transfer.
    fn begins_reading(&mut self, _process: &Self::Process, receive: Self::Handle) {
        self.begins(receive, Bytes::None.posted());
    }

    /// Tells tools that a read by this rail is about to be posted.
    fn read_begins(&mut self, _process: &Self::Process, _receive: Self::Handle, _rail: usize, _part: Part) {}

    /// Tells tools that the port has refused a read.
    fn read_refused(&mut self, _process: &Self::Process, _receive: Self::Handle, _rail: usize, _part: Part) {}

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

    /// Enters in the flight recorder that a peer is held back, or that all may go on.
    fn record_flow(&mut self, _process: &Self::Process, _held_back: Option<Account>) {}
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

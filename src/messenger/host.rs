// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host of the messenger: it owns the requests, their data and the communicators, and tells tools. Open MPI's face
//! is one (`pml/host.rs`), that of the unit tests another (`tests.rs`).
//!
//! The messenger calls it for all that it does not own. The end of a request is such a call, and no value of a poll:
//! for a blocking call it is one store. Grade: hot, by static dispatch. Threads: the one that has entered it.

use std::fmt::Debug;

use super::arrived::Arrived;
use super::matching::Envelope;
use super::passage::Passage;
use super::request::{Core, Outcome};
use super::transfer_id::Transfers;

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
    /// What all threads of the process share: its ports and settings.
    type Process;

    /// Returns the protocols' record of a request.
    fn core(&mut self, request: Self::Handle) -> &mut Core<Self>;

    /// Returns the transfers that have begun and not ended.
    fn transfers(&mut self) -> &mut Transfers<Self::Handle>;

    /// Returns the rank of this process in the communicator of a request.
    fn rank(&mut self, request: Self::Handle) -> i32;

    /// Returns the length of the longest data that a port sends eagerly now, bytes.
    fn eager_limit(&self, process: &Self::Process) -> usize;

    /// Takes out the posted receive that the message of a send to this process matches, and tells tools of both.
    ///
    /// # Errors
    /// No receive matches; the number of the message, for tools.
    fn take_posted(&mut self, send: Self::Handle, envelope: Envelope, length: usize) -> Result<Self::Handle, u64>;

    /// Stores the message of a send to this process, which no receive matches.
    fn keep(&mut self, process: &Self::Process, send: Self::Handle, envelope: Envelope, message: Arrived);

    /// Writes the status of a receive.
    fn note(&mut self, receive: Self::Handle, outcome: &Outcome);

    /// Copies the data of a send to a receive, as far as that has room. Changes its status if that cannot be unpacked.
    fn copy(&mut self, send: Self::Handle, receive: Self::Handle);

    /// Tells tools the passage of a request's message.
    fn goes(&mut self, _request: Self::Handle, _passage: Passage) {}

    /// Tells tools that the first data of a request's message moves now.
    fn begins(&mut self, _request: Self::Handle, _moved: Moved) {}

    /// Tells tools that the last data of a request's message has moved.
    fn ends(&mut self, _request: Self::Handle, _moved: Moved) {}

    /// Finishes a request that has no transfer in progress. Afterwards only its owner uses it.
    fn finish(&mut self, request: Self::Handle);

    /// Ends the job, because the data of a send, `length` bytes, cannot be packed.
    fn cannot_pack(&mut self, length: usize);
}

/// The data of a request.
pub trait Data {
    /// Length of the data in a message, bytes.
    fn length(&self) -> usize;

    /// Copies all the data of a send to `to`, which is as long. Returns false if it cannot be packed.
    fn take_all(&mut self, to: &mut [u8]) -> bool;
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

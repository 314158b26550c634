// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages by shared memory that wait for room, in order, each with its request.
//!
//! Data in one piece stays where it is, as its request lives until it has gone; data with gaps is packed before it
//! comes here. Sent by [`Backlog::send`], where nothing waits; what waits is taken out by `local`. Grade: pending.
//! Threads: who has entered the PML.

use std::collections::VecDeque;
use std::ptr::NonNull;

use engine::protocol::header::{Header, MAX_SIZE};

use super::datatype::Extent;
use super::request::Request;
use super::shared_memory::{EAGER, OTHER, SharedMemory};

/// What is to be done when a message has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nobody waits for it.
    Nothing,
    /// It was the whole message of a send.
    Finish(NonNull<Request>),
    /// It was a piece of a send's message.
    Piece(NonNull<Request>),
}

/// The data of a message.
pub(crate) enum Payload {
    /// In the user's memory, until the request is finished.
    InPlace(Extent),
    /// Packed.
    Packed(Vec<u8>),
}

impl Payload {
    fn extent(&self) -> Extent {
        match self {
            Payload::InPlace(extent) => *extent,
            Payload::Packed(bytes) => Extent { start: bytes.as_ptr().cast_mut(), length: bytes.len() },
        }
    }
}

/// A message that waits.
struct Waiting {
    tag: u8,
    header: Box<[u8]>,
    payload: Payload,
    then: Then,
}

/// What waits, for each process of the host.
#[derive(Default)]
pub(crate) struct Backlog {
    queues: Vec<VecDeque<Waiting>>,
    count: usize,
}

impl Backlog {
    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Processes that there may be messages for.
    pub(crate) fn places(&self) -> u32 {
        self.queues.len() as u32
    }

    /// Whether anything waits for a process.
    pub(crate) fn waits_for(&self, to: u32) -> bool {
        self.queues.get(to as usize).is_some_and(|queue| !queue.is_empty())
    }

    fn push(&mut self, to: u32, message: Waiting) {
        let place = to as usize;
        if self.queues.len() <= place {
            self.queues.resize_with(place + 1, VecDeque::new);
        }
        self.queues[place].push_back(message);
        self.count += 1;
    }

    /// Sends the first message that waits for a process, if there is room now. `None`: none waits, or none can go.
    pub(crate) fn send_first(&mut self, shared: &SharedMemory, to: u32) -> Option<Then> {
        let queue = self.queues.get_mut(to as usize)?;
        let first = queue.front()?;
        // SAFETY: P2: the memory of a send that is not finished; or packed, or of no bytes.
        if !unsafe { shared.send(to, first.tag, &first.header, first.payload.extent()) } {
            return None;
        }
        let then = first.then;
        queue.pop_front();
        self.count -= 1;
        if queue.is_empty() {
            shared.hold_up(to, false);
        }
        Some(then)
    }

    /// Sends a message, or lets it wait behind others. True: it has gone, and nothing is done by `then`.
    pub(crate) fn send(
        &mut self,
        shared: &SharedMemory,
        to: u32,
        header: &Header,
        payload: Payload,
        then: Then,
    ) -> bool {
        let encoded = header.encode();
        let mut bytes = [0; size_of::<u32>() + MAX_SIZE];
        let is_eager = matches!(header, Header::Eager(_));
        let before = if is_eager { 0 } else { size_of::<u32>() };
        let length = before + encoded.as_slice().len();
        bytes[..before].copy_from_slice(&shared.me.to_le_bytes()[..before]);
        bytes[before..length].copy_from_slice(encoded.as_slice());
        let tag = if is_eager { EAGER } else { OTHER };
        let header = &bytes[..length];
        // SAFETY: P2: the memory of a send that is not finished; or packed, or of no bytes.
        if !self.waits_for(to) && unsafe { shared.send(to, tag, header, payload.extent()) } {
            return true;
        }
        shared.hold_up(to, true);
        self.push(to, Waiting { tag, header: header.into(), payload, then });
        false
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages without data and fragments that wait for room in shared memory, in order. `local` sends them.
//!
//! The messages that begin a send pend (`flow`) until their turn, which waits here. Contiguous data is not copied,
//! because its request lives until the fragment is sent. Called by `routing`, `pieces` and `local`. Grade: pending.
//! Threads: the one that has entered the PML. Tests: `pml/tests.rs`, and `hw-tests/tests/device/local.rs`.

use std::collections::VecDeque;
use std::ptr::NonNull;

use engine::messenger::header::{Header, MAX_SIZE};

use super::datatype::Extent;
use super::request::Request;
use super::shared_memory::{EAGER, OTHER, SharedMemory};

/// Action once a message has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// Continue this send: it was a fragment.
    Piece(NonNull<Request>),
    /// Send messages that pend: it was none.
    Turn,
}

pub(crate) enum Payload {
    /// The user's memory, until the request is finished.
    InPlace(Extent),
    /// A packed copy.
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

struct Waiting {
    header: Box<[u8]>,
    payload: Payload,
    then: Then,
}

/// Queues of messages, by the place of the receiver.
#[derive(Default)]
pub(crate) struct Backlog {
    queues: Vec<VecDeque<Waiting>>,
    count: usize,
}

impl Backlog {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn places(&self) -> u32 {
        self.queues.len() as u32
    }

    pub(crate) fn waits_for(&self, to: u32) -> bool {
        self.queues.get(to as usize).is_some_and(|queue| !queue.is_empty())
    }

    fn push(&mut self, shared: &SharedMemory, to: u32, message: Waiting) {
        shared.hold_up(to, true);
        let place = to as usize;
        if self.queues.len() <= place {
            self.queues.resize_with(place + 1, VecDeque::new);
        }
        self.queues[place].push_back(message);
        self.count += 1;
    }

    /// Sends the first message that waits for a process. `None`: no message waits, or it finds no room.
    pub(crate) fn send_first(&mut self, shared: &SharedMemory, to: u32) -> Option<Then> {
        let queue = self.queues.get_mut(to as usize)?;
        let first = queue.front()?;
        // SAFETY: P2: the memory of a send that is not finished; or a packed copy, or no bytes.
        if first.then != Then::Turn && !unsafe { shared.send(to, OTHER, &first.header, first.payload.extent()) } {
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

    /// Sends a message that begins no send, or queues it behind others. True: it has been sent, and `then` is not done.
    pub(crate) fn send(
        &mut self,
        shared: &SharedMemory,
        to: u32,
        header: &Header,
        payload: Payload,
        then: Then,
    ) -> bool {
        let (tag, bytes, length) = head(shared, header);
        // SAFETY: P2: the memory of a send that is not finished; or a packed copy, or no bytes.
        if !self.waits_for(to) && unsafe { shared.send(to, tag, &bytes[..length], payload.extent()) } {
            return true;
        }
        self.push(shared, to, Waiting { header: bytes[..length].into(), payload, then });
        false
    }

    /// Queues the turn of messages that pend.
    pub(crate) fn queue_turn(&mut self, shared: &SharedMemory, to: u32) {
        let (header, payload) = (Box::default(), Payload::InPlace(Extent::EMPTY));
        self.push(shared, to, Waiting { header, payload, then: Then::Turn });
    }
}

/// Sends a message, whether others wait or not. Returns false if there is no room.
pub(crate) unsafe fn send_now(shared: &SharedMemory, to: u32, header: &Header, data: Extent) -> bool {
    let (tag, bytes, length) = head(shared, header);
    // SAFETY: P2: the data may be read during the call.
    unsafe { shared.send(to, tag, &bytes[..length], data) }
}

/// Returns the tag of a message and what stands before its data: the first bytes, as many as the number says.
fn head(shared: &SharedMemory, header: &Header) -> (u8, [u8; size_of::<u32>() + MAX_SIZE], usize) {
    let encoded = header.encode();
    let mut bytes = [0; size_of::<u32>() + MAX_SIZE];
    let is_eager = matches!(header, Header::Eager(_));
    let before = if is_eager { 0 } else { size_of::<u32>() };
    let length = before + encoded.as_slice().len();
    bytes[..before].copy_from_slice(&shared.me.to_le_bytes()[..before]);
    bytes[before..length].copy_from_slice(encoded.as_slice());
    (if is_eager { EAGER } else { OTHER }, bytes, length)
}

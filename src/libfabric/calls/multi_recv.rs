// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers for several messages (`FI_MULTI_RECV`): a receive is posted for the rest of the buffer; when it matches, the
//! next one takes its place in the queue, until less room is left than `FI_OPT_MIN_MULTI_RECV`. So a buffer is used up
//! before the receives that were posted after it.
//!
//! The last completion of a buffer has the flag `FI_MULTI_RECV`: the program has the buffer back. Called by `flags.rs`,
//! and by the messenger for a match. Grade: pending. Threads: the one that has entered the endpoint. Tests:
//! `simulation`, `hw-tests`.

use crate::messenger::events::{self, Event};
use crate::messenger::header::WireEnvelope as _;
use crate::messenger::matching::{FiTag, Tagged};
use crate::messenger::request::Role;

use super::Wanted;
use crate::libfabric::completion::Completion;
use crate::libfabric::environment::{Data, Environment, Piece};
use crate::libfabric::request::{Call, Handle};
use crate::libfabric::{PieceOf, Result, Shared, State, fi};

/// A buffer for several messages.
pub(in crate::libfabric) struct Buffer<P> {
    call: Call,
    /// The messages that its receives take.
    from: (u64, FiTag),
    /// The part behind the messages that have matched.
    rest: P,
    /// Least room for a further message, bytes.
    least: usize,
    /// Number of its receives, posted or matched.
    receives: u32,
    /// Whether a receive is in the queue, and not only about to be posted.
    is_queued: bool,
}

/// The buffers of an endpoint.
pub(in crate::libfabric) struct Buffers<P> {
    all: Vec<Option<Buffer<P>>>,
    /// Those whose next receive is to be posted.
    due: Vec<usize>,
}

impl<P> Default for Buffers<P> {
    fn default() -> Self {
        Buffers { all: Vec::new(), due: Vec::new() }
    }
}

impl<P: Piece> Buffers<P> {
    fn get(&mut self, buffer: usize) -> &mut Buffer<P> {
        self.all[buffer].as_mut().expect("it has receives")
    }

    /// Whether receives are to be posted.
    pub(in crate::libfabric) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Completes the report of a receive of a buffer, which is given back with its last one.
    pub(in crate::libfabric) fn report(&mut self, buffer: usize, start: usize, completion: &mut Completion) {
        completion.buffer = start;
        let known = self.get(buffer);
        known.receives -= 1;
        if known.receives == 0 && !known.has_room() {
            completion.flags |= fi::FI_MULTI_RECV;
            self.all[buffer] = None;
        }
    }

    /// Gives a buffer back whose posted receive was cancelled, or failed. Returns whether it has no other.
    pub(in crate::libfabric) fn cancel(&mut self, buffer: usize) -> bool {
        let known = self.get(buffer);
        known.receives -= 1;
        known.rest = known.rest.behind(usize::MAX);
        let is_last = known.receives == 0;
        if is_last {
            self.all[buffer] = None;
        }
        is_last
    }
}

impl<P: Piece> Buffer<P> {
    fn has_room(&self) -> bool {
        self.rest.length() >= self.least.max(1)
    }
}

impl<E: Environment> State<E> {
    /// Posts a buffer for several messages. `least`: `FI_OPT_MIN_MULTI_RECV`.
    pub(in crate::libfabric) fn receive_several(
        &mut self,
        shared: &Shared<E::Adapter>,
        call: Call,
        wanted: Wanted,
        (rest, least): (PieceOf<E>, usize),
    ) -> Result<()> {
        let from = self.wanted(shared, wanted)?;
        let buffer = Buffer { call, from, rest, least, receives: 0, is_queued: false };
        if !buffer.has_room() {
            return Err(fi::FI_EINVAL);
        }
        let place = self.buffers.all.iter().position(Option::is_none).unwrap_or_else(|| {
            self.buffers.all.push(None);
            self.buffers.all.len() - 1
        });
        self.buffers.all[place] = Some(buffer);
        self.buffers.due.push(place);
        self.has_more = true;
        self.leave(shared);
        Ok(())
    }

    /// Posts the receives that are due. No port is entered.
    pub fn post_due(&mut self, shared: &Shared<E::Adapter>) {
        while let Some(place) = self.buffers.due.pop() {
            let (receive, from) = self.next_receive(place);
            let kind = self.requests.get(receive).call.kind;
            let is_queued = self.post(shared, kind, receive, from);
            // Otherwise its only receive may have ended, and the buffer with it.
            if is_queued {
                self.buffers.get(place).is_queued = true;
            }
        }
    }

    /// Makes the receive for the rest of a buffer.
    fn next_receive(&mut self, place: usize) -> (Handle, (u64, FiTag)) {
        let known = self.buffers.get(place);
        known.receives += 1;
        let (call, from, rest) = (known.call, known.from, known.rest.clone());
        let (receive, request) = self.requests.take(Role::Receive, from, call);
        request.core.data.set(rest);
        (request.buffer, request.is_plain) = (Some(place), false);
        (receive, from)
    }

    /// Notes the match of a receive, which may be one of a buffer: then a receive for the rest follows. A message that
    /// has just arrived has taken it out of the queue; one that had arrived before kept it from being posted.
    #[inline(always)]
    pub fn note_match(&mut self, receive: Handle, length: usize) {
        if let Some(buffer) = self.requests.get(receive).buffer {
            self.follow(receive, buffer, length);
        }
    }

    #[inline(never)]
    fn follow(&mut self, receive: Handle, buffer: usize, length: usize) {
        let name = self.requests.get(receive).core.posted;
        let known = self.buffers.get(buffer);
        known.rest = known.rest.behind(length);
        if !known.has_room() {
            return;
        }
        if !known.is_queued {
            self.has_more = true;
            return self.buffers.due.push(buffer);
        }
        let kind = known.call.kind;
        let (next, (source, tag)) = self.next_receive(buffer);
        let (queues, lengths) = &mut self.queues[kind as usize];
        let name = queues.put_back(lengths, name, Tagged::pattern(source, tag), next);
        self.requests.get(next).core.posted = name;
        for event in [Event::Activate, Event::InsertPosted] {
            events::raise(self, next, event);
        }
    }
}

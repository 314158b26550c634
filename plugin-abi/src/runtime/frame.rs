// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames: a batch of completions from the poll of a port until all of them are dealt with.
//!
//! Callbacks run meanwhile, and may poll the same port again, with another frame. Frames are used again, so that none is
//! allocated but the first, and one for each level of nesting. Grade: hot (a move of a pointer). Threads: who has entered
//! what the frames belong to: a port (the BTL's), or the PML.

use engine::events::{PolledBatch, SourceId};
use engine::transport::{Batch, Port};
use ibex_ffi::openmpi::release::ReceiveDescriptor;

/// What was polled from a port.
#[repr(C)]
pub(crate) struct Frame {
    /// First, so that a poll has its address.
    pub(crate) batch: Batch,
    /// A message, as a callback of the BTL's is shown it.
    pub(crate) descriptor: ReceiveDescriptor,
    /// The PML's rail that it was polled from.
    pub(crate) rail: usize,
    /// While a tool listens: that events of it are yet to be raised, on the source of its port.
    pub(crate) polled: Option<(SourceId, PolledBatch)>,
    next: Option<Box<Frame>>,
}

// SAFETY: what a frame points to is its own.
unsafe impl Send for Frame {}

impl Frame {
    pub(crate) fn new() -> Box<Self> {
        let (batch, descriptor) = (Batch::new(), ReceiveDescriptor::new());
        let frame = Box::new(Frame { batch, descriptor, rail: 0, polled: None, next: None });
        frame.descriptor.settle();
        frame
    }
}

/// Frames that are not in use.
#[derive(Default)]
pub(crate) struct Frames {
    first: Option<Box<Frame>>,
}

impl Frames {
    /// Takes one that was given back, or a new one.
    #[inline]
    pub(crate) fn take(&mut self) -> Box<Frame> {
        match self.first.take() {
            Some(mut frame) => {
                self.first = frame.next.take();
                frame
            }
            None => Frame::new(),
        }
    }

    /// Takes one back. The batch of the one that is polled with next is released by that poll; any other one at once, as
    /// it may not be used again for long.
    #[inline]
    pub(crate) fn give_back(&mut self, mut frame: Box<Frame>, port: &mut Port) {
        if self.first.is_some() || port.is_short_of_receives() {
            port.release(&mut frame.batch);
        }
        self.give_back_released(frame);
    }

    /// Takes one back whose batch was released.
    pub(crate) fn give_back_released(&mut self, mut frame: Box<Frame>) {
        match &mut self.first {
            Some(first) => {
                frame.next = first.next.take();
                first.next = Some(frame);
            }
            None => self.first = Some(frame),
        }
    }
}

/// Frames that wait to be delivered, in the order in which they were polled.
#[derive(Default)]
pub(crate) struct Polled {
    first: Option<Box<Frame>>,
}

impl Polled {
    pub(crate) fn push(&mut self, frame: Box<Frame>) {
        // Hardly ever is there one already.
        let mut place = &mut self.first;
        while let Some(earlier) = place {
            place = &mut earlier.next;
        }
        *place = Some(frame);
    }

    /// Takes all of them.
    pub(crate) fn take_all(&mut self) -> Polled {
        Polled { first: self.first.take() }
    }
}

impl Iterator for Polled {
    type Item = Box<Frame>;

    fn next(&mut self) -> Option<Box<Frame>> {
        let mut frame = self.first.take()?;
        self.first = frame.next.take();
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_delivered_in_the_order_in_which_they_were_polled_and_used_again() {
        let (mut frames, mut polled) = (Frames::default(), Polled::default());
        let mut of = |rail| {
            let mut frame = frames.take();
            frame.rail = rail;
            polled.push(frame);
        };
        of(0);
        of(1);
        let mut taken = polled.take_all();
        assert!(polled.next().is_none(), "all were taken");
        let (first, second) = (taken.next().expect("the first"), taken.next().expect("the second"));
        assert_eq!((first.rail, second.rail, taken.next().is_none()), (0, 1, true));
        let address = std::ptr::from_ref::<Frame>(&second);
        frames.give_back_released(second);
        frames.give_back_released(first);
        assert!(std::ptr::eq(address, &raw const *frames.take()), "the one that was given back first");
    }
}

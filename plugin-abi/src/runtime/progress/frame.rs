// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames: a batch of completions, from the poll of a port until all of them are processed. Callbacks run meanwhile,
//! and may poll the same port again, with another frame. Frames are reused, so each level of nesting allocates one.
//! Grade: hot (a move of a pointer). Threads: the thread that has entered the port (the BTL's frames) or the PML.

use engine::events::{PolledBatch, SourceId};
use engine::transport::Batch;
use ibex_ffi::openmpi::release::ReceiveDescriptor;

use crate::runtime::device::Port;

#[repr(C)]
pub(crate) struct Frame {
    /// First, so that the frame has the address of the batch that a poll gets.
    pub(crate) batch: Batch,
    /// Description of a message for a callback of the BTL.
    pub(crate) descriptor: ReceiveDescriptor,
    pub(crate) rail: usize,
    /// Source of the port, and the batch whose events are still to be raised; `None` if no tool listens.
    pub(crate) polled: Option<(SourceId, PolledBatch)>,
    next: Option<Box<Frame>>,
}

// SAFETY: a frame owns everything that it points to.
unsafe impl Send for Frame {}

impl Frame {
    pub(crate) fn new() -> Box<Self> {
        let (batch, descriptor) = (Batch::new(), ReceiveDescriptor::new());
        let frame = Box::new(Frame { batch, descriptor, rail: 0, polled: None, next: None });
        frame.descriptor.settle();
        frame
    }
}

#[derive(Default)]
pub(crate) struct Frames {
    first: Option<Box<Frame>>,
}

impl Frames {
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

    /// Takes back a frame. The next poll uses the top frame, and releases its batch. Any other frame may stay unused
    /// for long, so its batch is released at once; so is every batch while the port is short of receive slots.
    #[inline]
    pub(crate) fn give_back(&mut self, mut frame: Box<Frame>, port: &mut Port) {
        if self.first.is_some() || port.is_short_of_receives() {
            port.release(&mut frame.batch);
        }
        self.give_back_released(frame);
    }

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

/// Queue of polled frames that are to be delivered to the BTL.
#[derive(Default)]
pub(crate) struct Polled {
    first: Option<Box<Frame>>,
}

impl Polled {
    pub(crate) fn push(&mut self, frame: Box<Frame>) {
        // Usually the queue is empty.
        let mut place = &mut self.first;
        while let Some(earlier) = place {
            place = &mut earlier.next;
        }
        *place = Some(frame);
    }

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
    fn a_queue_returns_frames_in_the_order_of_their_polls_and_later_polls_reuse_them() {
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

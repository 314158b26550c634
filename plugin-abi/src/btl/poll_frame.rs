// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one call of progress works with while the port is not entered: a batch of events, and a message as a callback
//! is shown it.
//!
//! Made once and used again by `progress`. Grade: hot (a move of a pointer); the first, and one for each level of
//! nesting, is allocated. Threads: inside the port.

use engine::transport::Batch;
use engine::transport::Port;
use ibex_ffi::openmpi::release::ReceiveDescriptor;

/// What one call of progress works with while the port is not entered.
pub(crate) struct PollFrame {
    pub(crate) batch: Batch,
    pub(crate) descriptor: ReceiveDescriptor,
}

/// The frames not in use. As many exist as progress was ever nested, or called by threads at once: mostly one.
#[derive(Default)]
pub(crate) struct PollFrames {
    spare: Option<Box<PollFrame>>,
    #[allow(clippy::vec_box, reason = "a pointer is moved in and out, not half a kibibyte")]
    more: Vec<Box<PollFrame>>,
}

// SAFETY: what a frame points to is its own.
unsafe impl Send for PollFrame {}

impl PollFrames {
    #[inline]
    pub(crate) fn take(&mut self) -> Box<PollFrame> {
        self.spare.take().unwrap_or_else(|| self.take_more())
    }

    #[cold]
    fn take_more(&mut self) -> Box<PollFrame> {
        self.more.pop().unwrap_or_else(|| {
            let frame = Box::new(PollFrame { batch: Batch::new(), descriptor: ReceiveDescriptor::new() });
            frame.descriptor.settle();
            frame
        })
    }

    /// The batch of the spare frame is released by the next poll; any other one at once, as it may not be used again
    /// for long.
    #[inline]
    pub(crate) fn give_back(&mut self, mut frame: Box<PollFrame>, port: &mut Port) {
        if self.spare.is_some() || port.is_short_of_receives() {
            port.release(&mut frame.batch);
        }
        if self.spare.is_none() {
            self.spare = Some(frame);
        } else {
            self.more.push(frame);
        }
    }
}

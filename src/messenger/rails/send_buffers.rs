// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send buffers: registered memory of a port, to which a message is copied before the port sends it.
//!
//! There are two sizes: the eager limit, and a receive slot for fragments of long messages. Used by `transmit`,
//! `fragment`, `failover` and `completions`, and by hosts that copy messages themselves. Grade: hot (a pop, a push); an
//! empty list grows (pending). Threads: the one that has entered the messenger. Tests: below.

use ibex_ffi::verbs::LocalSpan;

use crate::transport::Port;
use crate::transport::adapter::Adapter;

/// Names a buffer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferId(pub u32);

/// Contents of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<T> {
    /// A message whose completion nobody waits for; or none.
    Silent,
    /// A fragment of this send's message.
    Fragment(T),
}

struct Buffer<T> {
    span: LocalSpan,
    content: Content<T>,
    is_large: bool,
}

/// The send buffers of a port. `T` names a request.
pub struct SendBuffers<T> {
    all: Vec<Buffer<T>>,
    eager: Free,
    large: Free,
}

/// Free buffers of one size.
struct Free {
    buffers: Vec<BufferId>,
    /// Length of a buffer, bytes.
    size: usize,
    made: u32,
    most: u32,
}

const GROW_BY: u32 = 32;

impl<T: Copy> SendBuffers<T> {
    /// Makes empty lists for buffers of `eager` and of `large` bytes, headers included; at most `most` of each.
    pub fn new(eager: usize, large: usize, most: u32) -> Self {
        let free = |size| Free { buffers: Vec::new(), size, made: 0, most };
        SendBuffers { all: Vec::new(), eager: free(eager), large: free(large) }
    }

    /// Takes a buffer for a message of `length` bytes, header included. Returns it with these bytes of it. `None`: the
    /// message is too long, or no buffer is free and none can be made.
    #[inline]
    pub fn take<A: Adapter>(&mut self, port: &mut Port<A>, length: usize) -> Option<(BufferId, LocalSpan)> {
        if length > self.eager.size {
            return None;
        }
        let buffer = match self.eager.buffers.pop() {
            Some(buffer) => buffer,
            None => self.grow(port, false)?,
        };
        Some((buffer, self.all[buffer.0 as usize].span.first(length as u32)))
    }

    /// Takes a buffer for a fragment. Returns it with all its bytes.
    pub fn take_large<A: Adapter>(&mut self, port: &mut Port<A>) -> Option<(BufferId, LocalSpan)> {
        let buffer = match self.large.buffers.pop() {
            Some(buffer) => buffer,
            None => self.grow(port, true)?,
        };
        Some((buffer, self.all[buffer.0 as usize].span))
    }

    /// Whether buffers for fragments exist, so that one will become free.
    pub fn has_large(&self) -> bool {
        self.large.made > 0
    }

    /// Whether a buffer for fragments is free.
    pub fn has_free_large(&self) -> bool {
        !self.large.buffers.is_empty()
    }

    /// Notes that a buffer contains a fragment of this send's message. Returns the first `length` bytes of the buffer.
    pub fn set_fragment(&mut self, buffer: BufferId, send: T, length: usize) -> LocalSpan {
        let known = &mut self.all[buffer.0 as usize];
        known.content = Content::Fragment(send);
        known.span.first(length as u32)
    }

    /// Gives back a buffer that the adapter does not use any more. Returns what it contained.
    #[inline]
    pub fn give_back(&mut self, buffer: BufferId) -> Content<T> {
        let known = &mut self.all[buffer.0 as usize];
        let content = std::mem::replace(&mut known.content, Content::Silent);
        let free = if known.is_large { &mut self.large } else { &mut self.eager };
        free.buffers.push(buffer);
        content
    }

    /// Gives back a buffer that was sent if nobody waits for its completion. Returns whether it did.
    #[inline]
    pub fn give_back_silent(&mut self, buffer: BufferId) -> bool {
        let known = &self.all[buffer.0 as usize];
        let is_silent = matches!(known.content, Content::Silent);
        if is_silent {
            let free = if known.is_large { &mut self.large } else { &mut self.eager };
            free.buffers.push(buffer);
        }
        is_silent
    }

    /// Returns the number of buffers that are not free.
    pub fn in_use(&self) -> usize {
        self.all.len() - self.eager.buffers.len() - self.large.buffers.len()
    }

    #[cold]
    fn grow<A: Adapter>(&mut self, port: &mut Port<A>, is_large: bool) -> Option<BufferId> {
        let free = if is_large { &mut self.large } else { &mut self.eager };
        let count = GROW_BY.min(free.most - free.made);
        if count == 0 {
            return None;
        }
        let spans = port.grow(free.size as u32, count).ok()?;
        free.made += spans.len() as u32;
        free.buffers.reserve(free.made as usize);
        for span in spans {
            free.buffers.push(BufferId(self.all.len() as u32));
            self.all.push(Buffer { span, content: Content::Silent, is_large });
        }
        free.buffers.pop()
    }
}

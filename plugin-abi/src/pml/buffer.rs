// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send buffers: registered memory of a port that a message is copied to, and what is to be done when it has been sent.
//!
//! Two sizes: of the eager limit, and of a receive slot for the pieces of long messages. Bound for life to the port
//! that registered the memory. Grade: hot (a pop, a push); an empty list grows (pending). Threads: who has entered the
//! PML.

use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};

use engine::transport::Port;
use ibex_ffi::verbs::LocalSpan;

use super::request::Request;
use crate::runtime::free_list::{FreeList, Linked};

/// What was waiting for the bytes of a buffer to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A message of which nobody needs to hear.
    Silent,
    /// The message of a request.
    Message(NonNull<Request>),
    /// A piece of a request's message.
    Piece(NonNull<Request>),
}

/// A send buffer.
#[repr(C, align(64))]
pub(crate) struct SendBuffer {
    /// The next on the free list.
    next: *mut SendBuffer,
    span: LocalSpan,
    pub(crate) content: Content,
    /// Which list it is of.
    is_large: bool,
}

// SAFETY: `next` is for free lists alone. What a free buffer points to is its own memory.
unsafe impl Linked for SendBuffer {
    const NEXT: usize = offset_of!(SendBuffer, next);
}

impl SendBuffer {
    /// Where its memory starts.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.span.addr() as usize)
    }

    /// Its first `length` bytes.
    #[inline]
    pub(crate) fn filled(&self, length: usize) -> LocalSpan {
        self.span.first(length as u32)
    }
}

/// The send buffers of one port.
pub(crate) struct SendBuffers {
    eager: Buffers,
    large: Buffers,
}

struct Buffers {
    free: FreeList<SendBuffer>,
    /// Bytes of each.
    size: usize,
    made: u32,
    /// How many there may be.
    most: u32,
}

/// Buffers made at a time.
const GROW_BY: u32 = 32;

impl SendBuffers {
    /// None yet, for messages of up to `eager` and pieces of up to `large` bytes, header and all; at most so many of
    /// each.
    pub(crate) const fn new(eager: usize, large: usize, most: u32) -> Self {
        SendBuffers {
            eager: Buffers { free: FreeList::new(), size: eager, made: 0, most },
            large: Buffers { free: FreeList::new(), size: large, made: 0, most },
        }
    }

    /// Takes a buffer for a message. `None`: it is too long, or there is none, and none to be had.
    #[inline]
    pub(crate) fn take(&mut self, port: &mut Port, length: usize) -> Option<NonNull<SendBuffer>> {
        if length <= self.eager.size { self.eager.take(port, false) } else { None }
    }

    /// Takes a buffer for a piece.
    pub(crate) fn take_large(&mut self, port: &mut Port) -> Option<NonNull<SendBuffer>> {
        self.large.take(port, true)
    }

    /// Whether there are buffers for pieces, so that one comes back some time.
    pub(crate) fn has_large(&self) -> bool {
        self.large.made > 0
    }

    /// Whether one of them can be taken now without more memory.
    pub(crate) fn has_free_large(&self) -> bool {
        !self.large.free.is_empty()
    }

    /// # Safety
    /// P3, R2: it was taken from here, and the adapter is through with it.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, buffer: NonNull<SendBuffer>) {
        // SAFETY: P3: taken from here, and ours alone.
        let is_large = unsafe { (*buffer.as_ptr()).is_large };
        let buffers = if is_large { &mut self.large } else { &mut self.eager };
        // SAFETY: P3, R2: taken from this list, and the adapter is through with it.
        unsafe { buffers.free.give_back(buffer.as_ptr()) };
    }
}

impl Buffers {
    #[inline]
    fn take(&mut self, port: &mut Port, is_large: bool) -> Option<NonNull<SendBuffer>> {
        match self.free.take() {
            Some(buffer) => Some(buffer),
            None => self.grow(port, is_large),
        }
    }

    #[cold]
    fn grow(&mut self, port: &mut Port, is_large: bool) -> Option<NonNull<SendBuffer>> {
        let count = GROW_BY.min(self.most - self.made);
        if count == 0 {
            return None;
        }
        let spans = port.grow(self.size as u32, count).ok()?;
        self.made += spans.len() as u32;
        let unused = |span| SendBuffer { next: null_mut(), span, content: Content::Silent, is_large };
        self.free.add(spans.into_iter().map(unused).collect(), |_| {});
        self.free.take()
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send buffers: registered memory of a port, to which the PML copies a message before the port sends it.
//!
//! There are two sizes: the eager limit, and a receive slot for fragments of long messages. Used by `transmit`,
//! `fragment`, `failover` and `progress`. Grade: hot (a pop, a push); an empty list grows (pending). Threads: the one
//! that has entered the PML. Tests: `pml/tests.rs`.

use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};

use ibex_ffi::verbs::LocalSpan;

use crate::pml::request::Handle;
use crate::runtime::device::Port;
use crate::runtime::free_list::{FreeList, Linked};

/// Contents of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A message whose completion nobody waits for.
    Silent,
    /// A fragment of this request's message.
    Fragment(Handle),
}

#[repr(C, align(64))]
pub(crate) struct SendBuffer {
    next: *mut SendBuffer,
    span: LocalSpan,
    pub(crate) content: Content,
    is_large: bool,
}

// SAFETY: only free lists use `next`. A free buffer refers only to its own memory, so any thread may use it.
unsafe impl Linked for SendBuffer {
    const NEXT: usize = offset_of!(SendBuffer, next);
}

impl SendBuffer {
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.span.addr() as usize)
    }

    /// Returns the first `length` bytes.
    #[inline]
    pub(crate) fn filled(&self, length: usize) -> LocalSpan {
        self.span.first(length as u32)
    }
}

pub(crate) struct SendBuffers {
    eager: Buffers,
    large: Buffers,
}

struct Buffers {
    free: FreeList<SendBuffer>,
    /// Length of a buffer, bytes.
    size: usize,
    made: u32,
    most: u32,
}

const GROW_BY: u32 = 32;

impl SendBuffers {
    /// Makes empty lists for buffers of `eager` and of `large` bytes, headers included; at most `most` of each.
    pub(crate) const fn new(eager: usize, large: usize, most: u32) -> Self {
        SendBuffers {
            eager: Buffers { free: FreeList::new(), size: eager, made: 0, most },
            large: Buffers { free: FreeList::new(), size: large, made: 0, most },
        }
    }

    /// Takes a buffer for a message. `None`: the message is too long, or no buffer is free and none can be made.
    #[inline]
    pub(crate) fn take(&mut self, port: &mut Port, length: usize) -> Option<NonNull<SendBuffer>> {
        if length <= self.eager.size { self.eager.take(port, false) } else { None }
    }

    pub(crate) fn take_large(&mut self, port: &mut Port) -> Option<NonNull<SendBuffer>> {
        self.large.take(port, true)
    }

    /// Whether buffers for fragments exist, so that one will become free.
    pub(crate) fn has_large(&self) -> bool {
        self.large.made > 0
    }

    pub(crate) fn has_free_large(&self) -> bool {
        !self.large.free.is_empty()
    }

    /// # Safety
    /// P3, R2: the buffer was taken from here, and the adapter does not use it any more.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, buffer: NonNull<SendBuffer>) {
        // SAFETY: P3: taken from here, and ours alone.
        let is_large = unsafe { (*buffer.as_ptr()).is_large };
        let buffers = if is_large { &mut self.large } else { &mut self.eager };
        // SAFETY: P3, R2: taken from this list, and the adapter does not use it any more.
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

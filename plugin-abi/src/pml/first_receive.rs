// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of the first posted receive, as long as nothing has come for it: it is in no queue.
//!
//! Any thread may ask whether it is taken, for a performance variable; so the request is an atomic pointer, which is
//! read and written as any other. Grade: hot. Threads: who has entered the PML, but for [`FirstReceive::is_taken`].
//! Tests: those of `communicator.rs`.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use engine::matching::{Envelope, Pattern};

use super::request::Request;

/// A posted receive that is in no queue.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    pub(crate) pattern: Pattern,
    pub(crate) request: NonNull<Request>,
}

/// A place for one.
pub(crate) struct FirstReceive {
    /// Of nothing where there is none.
    pattern: Cell<Pattern>,
    /// Null: none.
    request: AtomicPtr<Request>,
}

impl FirstReceive {
    pub(crate) fn empty() -> Self {
        FirstReceive { pattern: Cell::new(nothing()), request: AtomicPtr::new(null_mut()) }
    }

    /// Whether there is one. Any thread.
    #[inline(always)]
    pub(crate) fn is_taken(&self) -> bool {
        !self.request.load(Ordering::Relaxed).is_null()
    }

    /// Takes it out if it takes this message. Without a copy of the pattern, which would cost each message.
    #[inline(always)]
    pub(crate) fn take_for(&self, envelope: Envelope) -> Option<NonNull<Request>> {
        let request = NonNull::new(self.request.load(Ordering::Relaxed))?;
        // SAFETY: P3: written by who has entered the PML alone, who is here; no reference to it outlives this call.
        if unsafe { &*self.pattern.as_ptr() }.takes(envelope) {
            self.clear();
            return Some(request);
        }
        None
    }

    /// Whether there is one that takes this message.
    #[inline(always)]
    pub(crate) fn takes(&self, envelope: Envelope) -> bool {
        // SAFETY: P3: written by who has entered the PML alone, who is here; no reference to it outlives this call.
        self.is_taken() && unsafe { &*self.pattern.as_ptr() }.takes(envelope)
    }

    /// What is there.
    pub(crate) fn get(&self) -> Option<Posted> {
        let request = NonNull::new(self.request.load(Ordering::Relaxed))?;
        Some(Posted { pattern: self.pattern.get(), request })
    }

    #[inline(always)]
    pub(crate) fn set(&self, Posted { pattern, request }: Posted) {
        self.pattern.set(pattern);
        self.request.store(request.as_ptr(), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.request.store(null_mut(), Ordering::Relaxed);
    }

    /// Takes it out.
    pub(crate) fn take(&self) -> Option<Posted> {
        self.take_if(|_| true)
    }

    /// Takes it out if this holds of it.
    pub(crate) fn take_if(&self, holds: impl FnOnce(&Posted) -> bool) -> Option<Posted> {
        let posted = self.get().filter(holds)?;
        self.clear();
        Some(posted)
    }

    /// Puts something there that no message goes to. Returns what was there.
    pub(crate) fn block(&self) -> Option<Posted> {
        let former = self.get();
        self.set(Posted { pattern: nothing(), request: NonNull::dangling() });
        former
    }
}

/// What takes no message: none has that source.
fn nothing() -> Pattern {
    Pattern::exact(Envelope::new(-1, 0))
}

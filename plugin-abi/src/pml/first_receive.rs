// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first receive slot of a communicator: a posted receive that is in no queue, until its message comes.
//!
//! Grade: hot. Threads: the one that has entered the PML; [`FirstReceive::is_taken`], for a performance variable: any.
//! Tests: those of `communicator.rs`.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use engine::messenger::matching::{Envelope, Pattern};

use super::request::{Handle, Request};

#[derive(Clone, Copy)]
pub(crate) struct Posted {
    pub(crate) pattern: Pattern,
    pub(crate) request: Handle,
}

pub(crate) struct FirstReceive {
    /// Meaningless while the slot is free.
    pattern: Cell<Pattern>,
    /// Null while the slot is free. Atomic for [`FirstReceive::is_taken`].
    request: AtomicPtr<Request>,
}

impl FirstReceive {
    pub(crate) fn empty() -> Self {
        FirstReceive { pattern: Cell::new(nothing()), request: AtomicPtr::new(null_mut()) }
    }

    #[inline(always)]
    pub(crate) fn is_taken(&self) -> bool {
        !self.request.load(Ordering::Relaxed).is_null()
    }

    /// Takes the receive out if it matches this message, without a copy of the pattern.
    #[inline(always)]
    pub(crate) fn take_for(&self, envelope: Envelope) -> Option<Handle> {
        let request = NonNull::new(self.request.load(Ordering::Relaxed))?;
        // SAFETY: P3: only the thread that has entered the PML writes the pattern; the reference ends with this call.
        if unsafe { &*self.pattern.as_ptr() }.takes(envelope) {
            self.clear();
            // SAFETY: P1: a request that `set` has stored, because the blocker matches no message.
            return Some(unsafe { Handle::new(request) });
        }
        None
    }

    #[inline(always)]
    pub(crate) fn takes(&self, envelope: Envelope) -> bool {
        // SAFETY: P3: only the thread that has entered the PML writes the pattern; the reference ends with this call.
        self.is_taken() && unsafe { &*self.pattern.as_ptr() }.takes(envelope)
    }

    /// Returns the receive without taking it out; `None` for the blocker.
    fn get(&self) -> Option<Posted> {
        let request = NonNull::new(self.request.load(Ordering::Relaxed)).filter(|_| self.pattern.get() != nothing())?;
        // SAFETY: P1: a request that `set` has stored, because it is not the blocker.
        Some(Posted { pattern: self.pattern.get(), request: unsafe { Handle::new(request) } })
    }

    #[inline(always)]
    pub(crate) fn set(&self, Posted { pattern, request }: Posted) {
        self.pattern.set(pattern);
        self.request.store(request.pointer().as_ptr(), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.request.store(null_mut(), Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Option<Posted> {
        self.take_if(|_| true)
    }

    pub(crate) fn take_if(&self, holds: impl FnOnce(&Posted) -> bool) -> Option<Posted> {
        let posted = self.get().filter(holds)?;
        self.clear();
        Some(posted)
    }

    /// Fills the slot with a blocker, which matches no message. Returns the receive that was there.
    pub(crate) fn block(&self) -> Option<Posted> {
        let former = self.get();
        self.pattern.set(nothing());
        self.request.store(NonNull::dangling().as_ptr(), Ordering::Relaxed);
        former
    }
}

/// Returns a pattern that matches no message: no message has this source.
fn nothing() -> Pattern {
    Pattern::exact(Envelope::new(-1, 0))
}

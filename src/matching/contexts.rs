// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of communicators by their context, the number that messages carry.
//!
//! Contexts are small numbers, the lowest that is free on all members, and used again after a communicator has gone:
//! the table is an array, and a lookup one load. A message may arrive for a context that this process has not added
//! yet; it is kept, and handed over when the context is added, in order of arrival. A context that messages name never
//! makes the array longer, so that a damaged one costs what is kept.
//!
//! Communicators that were made without a parent have no small number that all members agree on. They have large ones,
//! from [`Contexts::EXTENDED`] on, which are looked for in a map when the array has none.
//!
//! A message that nobody received before its communicator went is for nobody; one that arrives even later is kept for
//! the next communicator of that context. MPI forbids a program to send it.
//!
//! Threads: with a lock around the table, a receiving thread looks up with the lock taken to read. If there is nothing
//! it takes it to write, looks up again, as the context may have been added between, and keeps the message. Whoever
//! adds has what was kept arrive while it still holds the lock to write, or else a later message could be before it.
//!
//! Used beside [`super::Matching`]. Path: hot for a lookup, setup for the rest. Tests: `tests/contexts.rs`.

use std::collections::BTreeMap;

/// Why a communicator was not added. It is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused<C> {
    /// The context is one of another communicator.
    InUse(C),
    /// The context is beyond [`Contexts::LIMIT`], and not one of those from [`Contexts::EXTENDED`] on.
    BeyondLimit(C),
}

/// Communicators (`C`) by context, and messages (`M`) for those that are yet to come.
#[derive(Debug)]
pub struct Contexts<C, M> {
    communicators: Vec<Option<C>>,
    extended: BTreeMap<u32, C>,
    /// Of each context in order of arrival, so that a communicator is added at the same cost whatever waits for others.
    pub(super) kept: BTreeMap<u32, Vec<M>>,
}

impl<C, M> Default for Contexts<C, M> {
    fn default() -> Self {
        Contexts::new()
    }
}

impl<C, M> Contexts<C, M> {
    /// Contexts that are small numbers are below it.
    pub const LIMIT: u32 = 1 << 20;

    /// The first of those that are not.
    pub const EXTENDED: u32 = 1 << 23;

    /// All are below it, as headers have so many bits for one (`protocol/header.rs`).
    const END: u32 = 1 << 24;

    /// A table without communicators.
    #[must_use]
    pub const fn new() -> Self {
        Contexts { communicators: Vec::new(), extended: BTreeMap::new(), kept: BTreeMap::new() }
    }

    /// The communicator with this context.
    #[must_use]
    #[inline]
    pub fn get(&self, context: u32) -> Option<&C> {
        match self.communicators.get(context as usize) {
            Some(one) => one.as_ref(),
            None => self.get_extended(context),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_extended(&self, context: u32) -> Option<&C> {
        self.extended.get(&context)
    }

    /// Adds a communicator. Returns what has arrived for it, in order, which the caller has arrive there before
    /// anything else.
    ///
    /// # Errors
    /// The context is in use or too large.
    pub fn add(&mut self, context: u32, communicator: C) -> Result<Vec<M>, Refused<C>> {
        if self.get(context).is_some() {
            return Err(Refused::InUse(communicator));
        }
        match context {
            0..Self::LIMIT => {
                let at = context as usize;
                if at >= self.communicators.len() {
                    self.communicators.resize_with(at + 1, || None);
                }
                self.communicators[at] = Some(communicator);
            }
            Self::EXTENDED..Self::END => {
                self.extended.insert(context, communicator);
            }
            _ => return Err(Refused::BeyondLimit(communicator)),
        }
        Ok(self.kept.remove(&context).unwrap_or_default())
    }

    /// Takes a communicator out; its context can be added again.
    pub fn remove(&mut self, context: u32) -> Option<C> {
        match self.communicators.get_mut(context as usize) {
            Some(one) => one.take(),
            None => self.extended.remove(&context),
        }
    }

    /// Keeps a message whose context has no communicator.
    pub fn keep(&mut self, context: u32, message: M) {
        debug_assert!(self.get(context).is_none(), "context {context} has a communicator");
        self.kept.entry(context).or_default().push(message);
    }
}
